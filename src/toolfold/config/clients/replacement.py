"""Points a client at toolfold instead of its own servers, when a person asks for it.

Only the servers in the client's file change; every other character stays. Comments among the servers would be lost:
then it refuses, unless `drop_comments` allows it. Nothing is written here: `transaction` does that.
"""

import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from toolfold.config.clients.discovery import ClientConfig
from toolfold.config.files import line_and_column, read_text
from toolfold.config.jsonc import is_json, parse_json
from toolfold.config.secrets import _inputs_of
from toolfold.config.toml import format_table, parse_toml, remove_tables
from toolfold.config.toml_file import TomlFile
from toolfold.config.transaction import FileChange, WrittenFile
from toolfold.config.validation import KeyPath, format_key
from toolfold.errors import ConfigError

_NAME = "toolfold"


def toolfold_entry(
    client: str,
    config: str | os.PathLike[str] | None,
    *,
    home: str | os.PathLike[str] | None = None,
    command: Sequence[str] = ("toolfold",),
) -> dict[str, Any]:
    """The entry that makes a client start toolfold with that configuration, and that state folder where one is named.
    Without a configuration it is the one of the folder that the client works in: no path of one machine in a file that
    many share."""
    program, *args = command
    named = [("--config", config), ("--home", home)]
    options = [text for option, path in named if path is not None for text in (option, os.fspath(path))]
    entry: dict[str, Any] = {"command": program, "args": [*args, *options, "serve"]}
    # These two write the type themselves, too.
    return {"type": "stdio", **entry} if client in {"vscode", "claude-code"} else entry


def plan_replacement(
    path: Path,
    configs: Iterable[ClientConfig],
    entry: dict[str, Any],
    *,
    kept: Collection[tuple[KeyPath, str]] = (),
    drop_comments: bool = False,
) -> FileChange:
    """The file of these configurations with just toolfold's entry in each, and the servers that are `kept`, by their
    place and name. VS Code goes on asking for their inputs. Raises `ConfigError`, also where other servers stand
    there than were read; writes nothing."""
    old = path.read_bytes()
    held = {config.key: config for config in configs}
    text = read_text(path)
    in_json = is_json(path, text)
    parsed = _json_value(path, text) if in_json else parse_toml(path, text)
    rewrite = _rewrite_json if in_json else _rewrite_toml
    for key, config in held.items():
        before = config.entries
        if _at_or_none(parsed, key) != before:
            raise ConfigError(
                f"{path}: the servers there changed meanwhile; nothing was written",
                next_action="Run the import again: it then takes over what is there now.",
            )
        text = rewrite(path, text, key, _new_servers(config, kept, entry), drop_comments)
    mode = path.stat().st_mode & 0o777
    return FileChange(path=path, old=old, new=_marked(old, text), mode=mode, keys=tuple(held))


def _new_servers(config: ClientConfig, kept: Collection[tuple[KeyPath, str]], entry: dict[str, Any]) -> dict[str, Any]:
    """What stays, and toolfold, for which VS Code asks what it asked for those that go."""
    stay = {name: table for name, table in config.entries.items() if (config.key, name) in kept}
    gone = [table for name, table in config.entries.items() if name not in stay]
    asked = _inputs_of(gone) if config.dialect == "vscode" else {}
    return {**stay, _NAME: {**entry, "env": asked} if asked else entry}


def put_back(file: WrittenFile, current: bytes, old: bytes) -> bytes:
    """A file that was changed since, without what the import did: a client's with the servers that it had, ours without
    those that were added and not changed. What came since stays. Raises `ConfigError` where that cannot be done."""
    path, keys = file.path, file.keys
    now, before = current.decode("utf-8-sig"), old.decode("utf-8-sig")
    if not keys:
        marks = TomlFile.marks(parse_toml(path, now), file.added)
        unchanged = [name for name, mark in marks.items() if mark == file.added[name]]
        return TomlFile(path).without(now, unchanged) if unchanged else current
    put = _put_back_json if is_json(path, now) else _put_back_toml
    for key in keys:
        now = put(path, now, before, key)
    return _marked(current, now)


def _put_back_toml(path: Path, now: str, before: str, key: KeyPath) -> str:
    name = str(key[0])
    rest, own = remove_tables(now, key)[0], remove_tables(before, key)[1]
    servers, since = _joined(parse_toml(path, now).get(name, {}), parse_toml(path, before)[name])
    for server, table in since.items():
        own = remove_tables(own, (name, server))[0].rstrip("\r\n") + f"\n\n{format_table((name, server), table)}"
    new = rest.rstrip("\r\n") + "\n\n" + own
    return _read_back(path, new, {**parse_toml(path, now), name: servers}, parse_toml)


def _put_back_json(path: Path, now: str, before: str, key: KeyPath) -> str:
    document, earlier = parse_json(path, now), parse_json(path, before)
    here, there = document.span(key), earlier.span(key)
    if here is None or there is None:
        raise _key_missing(path, key)
    servers, since = _joined(_at(document.value, key), _at(earlier.value, key))
    if since:  # there is no text that has both: it is written anew
        return _rewrite_json(path, now, key, servers, drop_comments=True)
    new = now[: here[0]] + before[slice(*there)] + now[here[1] :]
    return _read_back(path, new, _with(document.value, key, servers), _json_value)


def _joined(now: dict[str, Any], before: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The servers that were there and those that came or changed since, toolfold aside; and these alone. Of one name
    the one that is there now counts."""
    since = {name: table for name, table in now.items() if before.get(name) != table and name != _NAME}
    return {**before, **since}, since


def _at_or_none(value: Any, key: KeyPath) -> Any:
    try:
        return _at(value, key)
    except (KeyError, TypeError):
        return None


def _marked(old: bytes, text: str) -> bytes:
    """The text as bytes. `read_text` takes the byte order mark away; a client that wrote one may need it."""
    return (b"\xef\xbb\xbf" if old.startswith(b"\xef\xbb\xbf") else b"") + text.encode()


def _read_back(path: Path, new: str, expected: Any, parse: Callable[[Path, str], Any], why: str = "") -> str:
    """The new text, once it was read: a rewrite that changed something else would cost a person's settings."""
    with contextlib.suppress(ConfigError):
        if parse(path, new) == expected:
            return new
    raise ConfigError(f"{path} cannot be rewritten safely{why}; nothing was written", next_action="Edit it by hand.")


def _json_value(path: Path, text: str) -> Any:
    return parse_json(path, text).value


def _at(value: Any, key: KeyPath) -> Any:
    return reduce(getitem, key, value)


def _rewrite_json(path: Path, text: str, key: KeyPath, servers: dict[str, Any], drop_comments: bool) -> str:
    document = parse_json(path, text)
    span = document.span(key)
    if span is None:
        raise _key_missing(path, key)
    start, end = span
    comment = next((at for at in document.comments if start <= at < end), None)
    if comment is not None and not drop_comments:
        raise _comments_lost(path, line_and_column(text, comment)[0])
    line_start = text.rfind("\n", 0, start) + 1
    line = text[line_start:start]
    margin = line[: len(line) - len(line.lstrip())]
    unit: str | int = "\t" if "\t" in margin else 2
    written = json.dumps(servers, indent=unit, ensure_ascii=False).replace("\n", "\n" + margin)
    if "\r\n" in text:
        written = written.replace("\n", "\r\n")
    new = text[:start] + written + text[end:]
    return _read_back(path, new, _with(document.value, key, servers), _json_value)


def _with(value: Any, key: KeyPath, servers: dict[str, Any]) -> Any:
    """The value with the servers in place."""
    if not key:
        return servers
    return {**value, key[0]: _with(value[key[0]], key[1:], servers)}


def _rewrite_toml(path: Path, text: str, key: KeyPath, servers: dict[str, Any], drop_comments: bool) -> str:
    before = parse_toml(path, text)
    if key[0] not in before:
        raise _key_missing(path, key)
    rest, _, comments = remove_tables(text, key)
    if comments and not drop_comments:
        raise _comments_lost(path, line_and_column(text, comments[0])[0])
    rest = rest.rstrip("\r\n") + "\n\n"
    added = "\n".join(format_table((str(key[0]), name), entry) for name, entry in servers.items())
    new = rest.lstrip("\n") + added
    if "\r\n" in text:
        new = new.replace("\r\n", "\n").replace("\n", "\r\n")
    why = f": its servers are not all written as [{key[0]}.NAME] tables"
    return _read_back(path, new, {**before, key[0]: servers}, parse_toml, why)


def _comments_lost(path: Path, line: int) -> ConfigError:
    return ConfigError(
        f"{path}:{line} has comments among its servers, and they would be lost; nothing was written",
        next_action="Add --drop-comments: the backup keeps them, and `toolfold import --undo` brings them back. "
        "Or move the comments out of the servers.",
    )


def _key_missing(path: Path, key: KeyPath) -> ConfigError:
    return ConfigError(f"{path} has no `{format_key(key)}` any more", next_action="Run the import again.")
