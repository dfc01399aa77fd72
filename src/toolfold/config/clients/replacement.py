"""Points a client at toolfold instead of its own servers, when a person asks for it.

Only the servers in the client's file change; every other character stays. A backup beside the file comes first.
Comments that stand among the servers would be lost: then it refuses, unless `drop_comments` allows it.
"""

import json
import os
from pathlib import Path
from typing import Any

from msgspec import Struct

from toolfold.config.clients.discovery import ClientConfig
from toolfold.config.files import create_backup, read_text, write_atomically
from toolfold.config.jsonc import is_json, parse_json
from toolfold.config.toml import TomlPositions, format_table, parse_toml
from toolfold.config.validation import KeyPath, format_key
from toolfold.errors import ConfigError

_NAME = "toolfold"


class Replacement(Struct, frozen=True, kw_only=True):
    """What was done to a client's file. `restore(backup)` undoes it."""

    path: Path
    backup: Path
    removed: tuple[str, ...]


def toolfold_entry(client: str, config: str | os.PathLike[str], *, command: str = "toolfold") -> dict[str, Any]:
    """The entry that makes a client start toolfold with that configuration."""
    entry: dict[str, Any] = {"command": command, "args": ["--config", os.fspath(config), "serve"]}
    # These two write the type themselves, too.
    return {"type": "stdio", **entry} if client in {"vscode", "claude-code"} else entry


def replace_servers(
    config: ClientConfig, entry: dict[str, Any], *, drop_comments: bool = False, now: float | None = None
) -> Replacement:
    """Leaves just toolfold's entry among the client's servers. Raises `ConfigError`, and then nothing has changed."""
    path = config.path
    text = read_text(path)
    rewrite = _rewrite_json if is_json(path, text) else _rewrite_toml
    new = rewrite(path, text, config.key, {_NAME: entry}, drop_comments)
    # `read_text` takes the byte order mark away; a client that wrote one may need it.
    mark = b"\xef\xbb\xbf" if path.read_bytes().startswith(b"\xef\xbb\xbf") else b""
    mode = path.stat().st_mode & 0o777
    backup = create_backup(path, now=now)
    write_atomically(path, mark + new.encode(), mode)
    removed = tuple(server.written for server in config.servers)
    return Replacement(path=path, backup=backup, removed=removed)


def _rewrite_json(path: Path, text: str, key: KeyPath, servers: dict[str, Any], drop_comments: bool) -> str:
    document = parse_json(path, text)
    span = document.span(key)
    if span is None:
        raise _key_missing(path, key)
    start, end = span
    if not drop_comments and any(start <= at < end for at in document.comments):
        raise _comments_lost(path)
    line_start = text.rfind("\n", 0, start) + 1
    line = text[line_start:start]
    margin = line[: len(line) - len(line.lstrip())]
    unit: str | int = "\t" if "\t" in margin else 2
    written = json.dumps(servers, indent=unit, ensure_ascii=False).replace("\n", "\n" + margin)
    if "\r\n" in text:
        written = written.replace("\n", "\r\n")
    new = text[:start] + written + text[end:]
    # Read back before anything is written: a rewrite that changed something else would cost a person's settings.
    expected = _with(document.value, key, servers)
    try:
        same = parse_json(path, new).value == expected
    except ConfigError:
        same = False
    if not same:
        raise ConfigError(f"{path} cannot be rewritten safely", next_action="Edit it by hand.")
    return new


def _with(value: Any, key: KeyPath, servers: dict[str, Any]) -> Any:
    """The value with the servers in place."""
    if not key:
        return servers
    return {**value, key[0]: _with(value[key[0]], key[1:], servers)}


def _rewrite_toml(path: Path, text: str, key: KeyPath, servers: dict[str, Any], drop_comments: bool) -> str:
    before = parse_toml(path, text)
    if key[0] not in before:
        raise _key_missing(path, key)
    rest, removed = _without_tables(text, str(key[0]))
    if not drop_comments and any(line.lstrip().startswith("#") for line in removed.splitlines()):
        raise _comments_lost(path)
    rest = rest.rstrip("\r\n") + "\n\n"
    added = "\n".join(format_table((str(key[0]), name), entry) for name, entry in servers.items())
    new = rest.lstrip("\n") + added
    if "\r\n" in text:
        new = new.replace("\r\n", "\n").replace("\n", "\r\n")
    try:
        same = parse_toml(path, new) == {**before, key[0]: servers}
    except ConfigError:
        same = False
    if not same:
        raise ConfigError(
            f"{path} cannot be rewritten safely: its servers are not all written as [{key[0]}.NAME] tables",
            next_action="Edit it by hand.",
        )
    return new


def _without_tables(text: str, name: str) -> tuple[str, str]:
    """The text without the tables of that name and those inside them, and what was removed."""
    headers = TomlPositions(text).scan.headers
    ends = [*(header.start for header in headers), len(text)][1:]
    rest, removed = [text[: headers[0].start] if headers else text], []
    for header, end in zip(headers, ends, strict=True):
        region = text[header.start : end]
        own, after = _split_tail(region) if header.path[0] == name else ("", region)
        removed.append(own)
        rest.append(after)
    return "".join(rest), "".join(removed)


def _split_tail(region: str) -> tuple[str, str]:
    """A table's own lines, and the blank lines and comments after them, which may belong to what follows."""
    lines = region.splitlines(keepends=True)
    count = len(lines)
    while count and (not lines[count - 1].strip() or lines[count - 1].lstrip().startswith("#")):
        count -= 1
    return "".join(lines[:count]), "".join(lines[count:])


def _comments_lost(path: Path) -> ConfigError:
    return ConfigError(
        f"{path} has comments among its servers, and they would be lost",
        next_action="Move the comments, or say that they may go; the backup keeps them.",
    )


def _key_missing(path: Path, key: KeyPath) -> ConfigError:
    return ConfigError(f"{path} has no `{format_key(key)}` any more", next_action="Run the import again.")
