"""Finds the configurations of MCP clients on this machine and reads their servers.

A file that is missing is passed over; one that cannot be read is reported and holds up nothing. Nothing is written.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from toolfold.config import server_names as names
from toolfold.config.clients.locations import CLIENTS, Location, Scope, locations
from toolfold.config.dialects import Dialect, input_defaults, map_strings
from toolfold.config.files import path_exists, read_text
from toolfold.config.reader import is_json, normalise_table, parse_json, parse_toml, servers_key, toml_locator
from toolfold.config.search_path import CLIENT_FOLDERS, home_folder, working_folder
from toolfold.config.servers import KEYS_BY_TRANSPORT, ServerContext, build_server
from toolfold.config.validation import Checker, KeyPath, Locator, closest_match, scalar_text
from toolfold.errors import ConfigError
from toolfold.types import ServerSpec


class ClientServer(Struct, frozen=True, kw_only=True):
    """One server of a client. Its printed form shows no secret."""

    name: str
    """The name here; `written` is the client's own."""
    written: str
    table: dict[str, Any]
    """In toolfold's keys. May hold secrets."""
    spec: ServerSpec | None
    """The checked form; `None` if it cannot be used, and then `problems` says why."""
    line: int | None = None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"FoundServer(name={self.name!r}, spec={self.spec!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("name", self.name), ("spec", self.spec)]


class ClientConfig(Struct, frozen=True, kw_only=True):
    """The servers that one client keeps in one place."""

    client: str
    scope: Scope
    path: Path
    key: KeyPath
    """Where in the file the servers stand."""
    dialect: Dialect
    servers: tuple[ClientServer, ...] = ()
    problems: tuple[str, ...] = ()
    project: Path | None = None
    """For `project` and `local`: the folder it belongs to."""

    @property
    def title(self) -> str:
        return CLIENTS.get(self.client, self.client)


def discover(
    client: str | None = None,
    *,
    platform: str | None = None,
    home: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    all_projects: bool = False,
) -> list[ClientConfig]:
    """Every client's servers, or one client's. Claude Code's entries for other folders come with `all_projects`."""
    if client is not None and client not in CLIENTS:
        raise _unknown_client(client)
    environ = os.environ if environ is None else environ
    folder = working_folder() if cwd is None else Path(cwd)
    person = home_folder(environ) if home is None else Path(home)
    found: list[ClientConfig] = []
    for location in locations(platform or sys.platform, str(person), environ, str(folder)):
        if client in {None, location.client}:
            for path in _files(location):
                found += _read(location, path, person, folder, all_projects)
    return [config for config in found if config.servers or config.problems]


def read_client_file(path: str | os.PathLike[str], *, home: str | os.PathLike[str] | None = None) -> ClientConfig:
    """The servers of any client's file, its form guessed from name and content. Raises `ConfigError` if unreadable."""
    file = Path(path)
    person = home_folder(os.environ) if home is None else Path(home)
    text = read_text(file)
    if is_json(file, text):
        value = parse_json(file, text).value
        key = servers_key(value) or ("mcpServers",)
        dialect: Dialect = "vscode" if key[-1] == "servers" else "gemini" if file.parent.name == ".gemini" else "mcp"
    else:
        key = ("mcp_servers",) if "mcp_servers" in parse_toml(file, text) else ("servers",)
        dialect = "codex"
    folder = Path(os.path.realpath(file.parent))
    project = folder.parent if folder.name in CLIENT_FOLDERS else folder
    location = Location(client="mcp.json", scope="project", path=file, key=key, dialect=dialect)
    config = _parsed(location, file, _Source(file, text), key, person=person, project=project)
    if not config.servers:
        raise ConfigError(
            f"{file} holds no servers",
            hints=config.problems,
            next_action="Name a file with `mcpServers`, `servers` or `mcp_servers`, or give a client's name: "
            + ", ".join(CLIENTS),
        )
    return config


def _unknown_client(client: str) -> ConfigError:
    meant = closest_match(client, CLIENTS)
    return ConfigError(
        f"'{client}' is not a client that toolfold knows",
        hints=list(CLIENTS),
        next_action=f"Did you mean '{meant}'?" if meant else "Name one of the clients, or a file.",
    )


def _files(location: Location) -> Iterator[Path]:
    path = Path(location.path)
    if not location.is_pattern:
        if path_exists(path):
            yield path
        return
    before, _, after = str(path).partition("*")
    if path_exists(Path(before)):
        yield from sorted(item for item in Path(before).glob("*" + after) if path_exists(item))


class _Source:
    """A file's values, and where they stand."""

    def __init__(self, path: Path, text: str) -> None:
        self.locate: Locator
        if is_json(path, text):
            document = parse_json(path, text) if text.strip() else parse_json(path, "{}")
            self.value, self.locate = document.value, document.locate
        else:
            self.value, self.locate = parse_toml(path, text), toml_locator(text)

    def at(self, key: KeyPath) -> Any:
        value = self.value
        for part in key:
            value = value.get(part) if isinstance(value, dict) else None
        return value


def _read(location: Location, path: Path, person: Path, cwd: Path, all_projects: bool) -> list[ClientConfig]:
    try:
        source = _Source(path, read_text(path))
    except ConfigError as error:
        problems = tuple(str(hint) for hint in error.hints) or (error.message,)
        return [
            ClientConfig(
                client=location.client,
                scope=location.scope,
                path=path,
                key=location.key,
                dialect=location.dialect,
                problems=problems,
            )
        ]
    project = cwd if location.scope == "project" else None
    configs = [_parsed(location, path, source, location.key, person=person, project=project)]
    if location.client == "claude-code" and location.scope == "user":
        configs += _local_projects(location, path, source, person, None if all_projects else cwd)
    return configs


def _local_projects(
    location: Location, path: Path, source: _Source, person: Path, only: Path | None
) -> Iterator[ClientConfig]:
    """Claude Code keeps what a person added for one project in the user's file, under the project's path."""
    from msgspec.structs import replace

    projects = source.at(("projects",))
    local = replace(location, scope="local")
    for folder in projects if isinstance(projects, dict) else ():
        if only is None or Path(os.path.realpath(folder)) == Path(os.path.realpath(only)):
            key = ("projects", folder, "mcpServers")
            yield _parsed(local, path, source, key, person=person, project=Path(folder))


def _parsed(
    location: Location, path: Path, source: _Source, key: KeyPath, *, person: Path, project: Path | None
) -> ClientConfig:
    entries = source.at(key)
    report = Checker(str(path), source.locate, lenient=True)
    if entries is not None and not isinstance(entries, dict):
        report.error(key, "expected a table of servers")
    excluded = source.at(("mcp", "excluded")) if location.dialect == "gemini" else None
    inputs = input_defaults(source.at((*key[:-1], "inputs")))
    around = ServerContext(folder=project or person, user=person, default_cwd=None if project is None else str(project))
    servers: list[ClientServer] = []
    for written, entry in entries.items() if isinstance(entries, dict) else ():
        single = Checker(str(path), source.locate, lenient=True)
        table = normalise_table(entry, location.dialect, inputs, single, (*key, written)) or {}
        if isinstance(excluded, list) and written in excluded:
            table["enabled"] = False
        servers.append(_server(table, single, (*key, written), around))
    return ClientConfig(
        client=location.client,
        scope=location.scope,
        path=path,
        key=key,
        dialect=location.dialect,
        servers=tuple(servers),
        problems=tuple(str(problem) for problem in report.problems),
        project=project,
    )


def _server(table: dict[str, Any], report: Checker, at: KeyPath, around: ServerContext) -> ClientServer:
    written = str(at[-1])
    name = names.clean_name(written)
    spec = None if report.errors else build_server(name, table, report, at, around)
    if spec is not None:
        table = _canonical(table, spec)
    if spec is not None and around.default_cwd is not None:
        table = _independent(table, around)
    position = report.locate(at) if report.locate else None
    return ClientServer(
        name=name,
        written=written,
        table=table,
        spec=spec,
        line=position[0] if position else None,
        problems=tuple(str(problem) for problem in report.errors),
        notes=tuple(str(problem) for problem in report.warnings),
    )


def _canonical(table: dict[str, Any], spec: ServerSpec) -> dict[str, Any]:
    """The table as toolfold's own file, which is read strictly, may hold it."""
    left_out = {"type", "disabled", "enabled"}
    if str(table.get("auth", "")).casefold() == "oauth":
        left_out.add("auth")
    result = {key: table[key] for key in KEYS_BY_TRANSPORT[spec.transport] if key in table and key not in left_out}
    if isinstance(result.get("env"), dict):
        result["env"] = {name: scalar_text(value) for name, value in result["env"].items()}
    return result if spec.enabled else {**result, "enabled": False}


def _independent(table: dict[str, Any], around: ServerContext) -> dict[str, Any]:
    """A project's table so that it means the same in a file that lies elsewhere."""
    result = {name: map_strings(value, around.expand) for name, value in table.items()}
    for key in ("cwd", "env_file"):
        if isinstance(result.get(key), str):
            result[key] = around.absolute(result[key])
    return result
