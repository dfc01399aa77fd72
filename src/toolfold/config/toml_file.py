"""Changes `toolfold.toml` as a person would: adds, removes and switches servers, and keeps every comment.

Nothing that stands in the file is written anew. Each new text is read back before it is written: it must hold the old
content and the change, and nothing else. Above: the import and the command line.
"""

import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path
from typing import Any

from toolfold.config.acceptance import ProjectFile, _changing
from toolfold.config.files import (
    PRIVATE_MODE,
    PUBLIC_MODE,
    line_and_column,
    path_exists,
    read_text,
    write_atomically,
)
from toolfold.config.folders import home_folder
from toolfold.config.schema import SCHEMA_FILE, schema_text
from toolfold.config.secrets import find_plain_secrets
from toolfold.config.self_reference import is_toolfold
from toolfold.config.servers import NAME_RULE, ServerContext, build_server, clean_name, is_valid_name
from toolfold.config.toml import TomlPositions, format_table, parse_toml, remove_tables
from toolfold.config.transaction import FileChange, write_all
from toolfold.config.validation import Checker, KeyPath, closest_match, format_key
from toolfold.errors import ConfigError
from toolfold.types import ServerSpec

__all__ = ["TomlFile"]

_HEADER = "# Servers of toolfold. What each key means: docs/configuration.md\n"
_START = f"""#:schema ./{SCHEMA_FILE}
# What toolfold connects to. Every key and its default: docs/configuration.md
#
# A server is a program, an address, an OpenAPI document, a Python module or a folder of skills:
#
#   [servers.git]
#   command = "mcp-server-git"
#   args = ["--repository", "."]
#
#   [servers.shop]
#   url = "https://shop.example/mcp"
#   bearer_token = "${{SHOP_TOKEN}}"      # from the environment
#
# `toolfold add git -- mcp-server-git --repository .` writes the first for you, `toolfold import` takes over those
# that your MCP clients have.
"""


class TomlFile:
    """A `toolfold.toml`, which may not be there yet. `running`: what the gateway that changes it runs on."""

    def __init__(self, path: Path, running: ProjectFile | None = None) -> None:
        self.path = path
        self._running = running

    def _changing(self) -> AbstractContextManager[None]:
        return _changing(self.path, running=self._running)

    def names_servers(self) -> bool:
        """Whether it says which servers there are, be it none."""
        return "servers" in parse_toml(self.path, read_text(self.path))

    def start(self) -> bool:
        """Writes a file to begin with where there is none, and the schema beside it; says whether there was none."""
        with self._changing():
            return self._start()

    def _start(self) -> bool:
        is_new = not path_exists(self.path)
        if is_new:
            write_atomically(self.path, _START.encode(), PUBLIC_MODE)
        write_atomically(self.path.with_name(SCHEMA_FILE), schema_text().encode(), PUBLIC_MODE)
        return is_new

    def plan(self, added: Mapping[str, Mapping[str, Any]]) -> FileChange:
        """The file with these servers at its end. Raises `ConfigError`; writes nothing."""
        path = self.path
        exists = path_exists(path)
        old = read_text(path) if exists else _HEADER
        text = "".join(f"\n{format_table(('servers', name), table)}" for name, table in added.items())
        if old and not old.endswith("\n"):
            text = f"\n{text}"
        if "\r\n" in old:  # the file keeps its kind of line ends
            text = text.replace("\n", "\r\n")
        new = old + text
        after = _checked(path, parse_toml(path, old), new, added)
        private = any(find_plain_secrets(server) for server in after["servers"].values())
        mode = PRIVATE_MODE if private else _public_mode(path, added)
        return FileChange(path=path, old=path.read_bytes() if exists else None, new=new.encode(), mode=mode)

    def add(self, name: str, table: dict[str, Any]) -> tuple[ServerSpec, tuple[str, ...]]:
        """Adds one server at the file's end; returns it with what a person should know. Raises `ConfigError`."""
        path = self.path
        checker = Checker(f"toolfold add {name}")
        if not is_valid_name(name):
            checker.error(("servers", name), "not a valid server name", f"{NAME_RULE}. Use `{clean_name(name)}`.")
        context = ServerContext(folder=path.parent, user=home_folder(os.environ))
        spec = build_server(name, table, checker, ("servers", name), context)
        checker.raise_errors()
        if spec is None or is_toolfold(name, spec):
            raise ConfigError(
                f"`{name}` is toolfold itself, which never serves itself", next_action="Name another server."
            )
        with self._changing():
            if not path_exists(path):
                self._start()
            self._check_is_new(name)
            change = self.plan({name: table})
            write_atomically(path, change.new or b"", change.mode)
        secrets = [
            f"{format_key(secret.place)} is a secret in plain text, so only you may read the file; better: ${{NAME}}"
            for secret in find_plain_secrets(table)
        ]
        return spec, (*checker.warnings, *secrets)

    def _check_is_new(self, name: str) -> None:
        positions = TomlPositions(read_text(self.path))
        for known in _servers(self.path):
            if known.casefold() == name.casefold():
                line, _ = positions.locate(("servers", known)) or (1, 1)
                raise ConfigError(
                    f"{self.path}:{line} has a server `{known}` already",
                    next_action=f"Choose another name, or remove it first: toolfold remove {known}",
                )

    def remove(self, name: str) -> Path | None:
        """Takes a server out of the file, and returns the backup of the file as it was."""
        path = self.path
        with self._changing():
            old = read_text(path)
            known = _known(path, _servers(path), name)
            new = self.without(old, [known])
            if "servers" not in parse_toml(path, new.decode("utf-8-sig")):
                # A gateway that follows the file takes one that was merely emptied for an accident.
                line_end = b"\r\n" if b"\r\n" in new else b"\n"
                new += (b"" if not new or new.endswith(b"\n") else line_end) + b"[servers]" + line_end
            change = FileChange(path=path, old=path.read_bytes(), new=new, mode=path.stat().st_mode & 0o777)
            return write_all([change])[0].backup

    def without(self, text: str, names: Sequence[str]) -> bytes:
        """The text without these servers. Raises `ConfigError` where one is not written as a table of its own."""
        parsed = parse_toml(self.path, text)
        left = {name: table for name, table in parsed["servers"].items() if name not in names}
        text, _, _ = remove_tables(text, *(("servers", name) for name in names))
        return _read_back(self.path, text, {**parsed, "servers": left}, names[0])

    @staticmethod
    def marks(parsed: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
        """A mark of each of these servers that is there, by which one that was changed since is told."""
        servers = parsed.get("servers", {})
        texts = {name: format_table((name,), servers[name]) for name in names if name in servers}
        return {name: sha256(text.encode()).hexdigest()[:16] for name, text in texts.items()}

    def switch(self, name: str, *, enabled: bool) -> bool:
        """Enables or disables a server in its place; says whether that was news."""
        with self._changing():
            return self._switch(name, enabled)

    def _switch(self, name: str, enabled: bool) -> bool:
        path = self.path
        text, servers = read_text(path), _servers(path)
        known = _known(path, servers, name)
        table = servers[known]
        if (table.get("enabled", True) and not table.get("disabled", False)) is enabled:
            return False
        values = {"enabled": enabled, "disabled": not enabled}
        changed = {key: values[key] for key in values if key in table} or {"enabled": enabled}
        new = text
        for key, value in changed.items():
            new = _with_flag(new, ("servers", known), key, value)
        expected = {**parse_toml(path, text), "servers": {**servers, known: {**table, **changed}}}
        write_atomically(path, _read_back(path, new, expected, known), path.stat().st_mode & 0o777)
        return True

    def tables(self, section: str) -> dict[str, Any]:
        """The tables `[section.…]` as the file has them, by name."""
        found = parse_toml(self.path, read_text(self.path)).get(section, {})
        return found if isinstance(found, dict) else {}

    def put(
        self, section: str, name: str, table: Mapping[str, Any] | None, check: Callable[[Path], None]
    ) -> Path | None:
        """Writes the table `[section.name]` anew at the file's end, or takes it out; returns the backup of the file as
        it was. `check` reads a draft of the new file, and raises where it cannot be used."""
        path = self.path
        with self._changing():
            text = read_text(path)
            before = parse_toml(path, text)
            left = {key: value for key, value in before.get(section, {}).items() if key != name}
            text, removed, _ = remove_tables(text, (section, name))
            if table is not None:
                text = f"{text.rstrip()}\n\n{format_table((section, name), table)}"
                left[name] = table
            elif not removed:
                raise ConfigError(f"{path} has no [{section}.{name}]", hints=sorted(left))
            new = _read_back(path, text, {**before, section: left}, name, section)
            draft = path.with_name(f".{path.stem}.{secrets.token_hex(4)}.draft.toml")
            try:
                write_atomically(draft, new, PRIVATE_MODE)
                check(draft)
            finally:
                draft.unlink(missing_ok=True)
            plain = table is not None and "key" in table and "${" not in str(table["key"])
            mode = PRIVATE_MODE if plain else path.stat().st_mode & 0o777
            return write_all([FileChange(path=path, old=path.read_bytes(), new=new, mode=mode)])[0].backup


def _with_flag(text: str, table: KeyPath, key: str, value: bool) -> str:
    """The text with the flag set where it stands, else in a line of its own below the table's header."""
    word = str(value).lower()
    scan = TomlPositions(text).scan
    at = scan.offsets.get((*table, key))
    if at is not None:
        return text[:at] + re.sub(r"true|false", word, text[at:], count=1)
    start = next((header.start for header in scan.headers if header.path == table), None)
    if start is None:
        return text  # it is written in another way, which reading it back tells
    end = text.find("\n", start) + 1 or len(text)
    line_end = "\r\n" if "\r\n" in text else "\n"
    return f"{text[:end]}{'' if text[:end].endswith(chr(10)) else line_end}{key} = {word}{line_end}{text[end:]}"


def _servers(path: Path) -> dict[str, Any]:
    found = parse_toml(path, read_text(path)).get("servers", {})
    if not isinstance(found, dict) or not all(isinstance(table, dict) for table in found.values()):
        raise ConfigError(f"{path}: servers: expected tables", next_action="Write each server as [servers.NAME].")
    return found


def _known(path: Path, servers: Mapping[str, Any], name: str) -> str:
    """The server's name as the file has it."""
    for known in servers:
        if known.casefold() == name.casefold():
            return known
    meant = closest_match(name, servers)
    raise ConfigError(
        f"{path} has no server `{name}`",
        hints=list(servers),
        next_action=f"Did you mean `{meant}`?"
        if meant
        else "Run `toolfold servers` to see all, and where they come from.",
    )


def _read_back(path: Path, text: str, expected: dict[str, Any], name: str, section: str = "servers") -> bytes:
    try:
        # Where the last server was taken out, no `[servers]` may be left at all.
        same = {section: {}, **parse_toml(path, text)} == expected
    except ConfigError:
        same = False
    if not same:
        line, _ = line_and_column(text, max(text.find(name), 0))
        raise ConfigError(
            f"{path}:{line}: `{name}` is not written as a table of its own, so it cannot be changed from here",
            next_action=f"Write it as [{section}.{name}], or edit the file by hand; nothing was changed.",
        )
    # `read_text` takes the byte order mark away.
    mark = b"\xef\xbb\xbf" if path.read_bytes().startswith(b"\xef\xbb\xbf") else b""
    return mark + text.encode()


def _checked(path: Path, before: dict[str, Any], text: str, added: Mapping[str, Any]) -> dict[str, Any]:
    """Reads the new text back: it must hold the old content and the new servers, and nothing else."""
    here = before.get("servers", {})
    names = {name.casefold() for name in here} if isinstance(here, dict) else set()
    if clash := names & {name.casefold() for name in added}:
        raise ConfigError(
            f"{path} has changed since the import was planned: it has {', '.join(sorted(clash))} now",
            next_action="Run the import again.",
        )
    try:
        after = parse_toml(path, text)
    except ConfigError:
        after = {}
    if not isinstance(here, dict) or after != {**before, "servers": {**here, **added}}:
        raise ConfigError(
            f"servers cannot be added to {path}: its `servers` is written as an inline table",
            next_action="Write each server there as its own table, [servers.NAME], and run it again.",
        )
    return after


def _public_mode(path: Path, added: Mapping[str, Mapping[str, Any]]) -> int:
    """The mode of a file without known secrets: an existing one keeps its own."""
    if path_exists(path):
        return path.stat().st_mode & 0o777
    # A value of `env` or `headers` in plain text may be a secret that nothing gives away.
    tables = (table.get(key) or {} for table in added.values() for key in ("env", "headers"))
    has_literals = any("${" not in str(value) for table in tables for value in table.values())
    return PRIVATE_MODE if has_literals else PUBLIC_MODE
