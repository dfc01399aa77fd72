"""Finds the configurations of MCP clients on this machine and reads their servers.

A file that is missing is skipped; one that cannot be read is reported and holds up nothing. Nothing is written.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from toolfold.config.dialects import Dialect, input_defaults, map_strings, normalise_table, servers_key
from toolfold.config.files import path_exists, read_text
from toolfold.config.folders import CLIENT_FOLDERS, home_folder, working_folder
from toolfold.config.jsonc import is_json, parse_json
from toolfold.config.sections import PartialRepr
from toolfold.config.servers import KEYS_BY_TRANSPORT, ServerContext, build_server, clean_name
from toolfold.config.toml import TomlPositions, parse_toml
from toolfold.config.validation import Checker, KeyPath, Locator, closest_match, scalar_text
from toolfold.errors import ConfigError
from toolfold.types import ServerSpec

# Every client that `toolfold import` knows, with its name for people.
CLIENTS: dict[str, str] = {
    "claude-desktop": "Claude Desktop",
    "claude-code": "Claude Code",
    "cursor": "Cursor",
    "vscode": "VS Code",
    "codex": "Codex",
    "gemini": "Gemini CLI",
    "mcp.json": "mcp.json",
}

# `user`: for all projects. `project`: in the project's folder. `local`: for one project, in the user's file.
Scope = Literal["user", "project", "local"]

# VS Code and the builds of it that keep their settings in the same form.
_EDITORS = ("Code", "Code - Insiders", "VSCodium", "VSCodium - Insiders", "Code - OSS")
# Where clients keep their servers, after their own documentation: client, scope, folder (see `_folders`), file in it.
_FILES: tuple[tuple[str, Scope, str, str], ...] = (
    ("claude-desktop", "user", "data", "Claude/claude_desktop_config.json"),
    ("claude-desktop", "user", "store", "Claude/claude_desktop_config.json"),
    ("claude-code", "user", "claude", ".claude.json"),
    ("claude-code", "project", "project", ".mcp.json"),
    ("cursor", "user", "user", ".cursor/mcp.json"),
    ("cursor", "project", "project", ".cursor/mcp.json"),
    *(
        ("vscode", "user", "editors", f"{editor}/User/{file}")
        for editor in _EDITORS
        for file in ("mcp.json", "profiles/*/mcp.json", "settings.json")
    ),
    ("vscode", "project", "project", ".vscode/mcp.json"),
    ("vscode", "project", "project", ".vscode/settings.json"),
    ("codex", "user", "codex", "config.toml"),
    ("codex", "project", "project", ".codex/config.toml"),
    ("gemini", "user", "gemini", ".gemini/settings.json"),
    ("gemini", "project", "project", ".gemini/settings.json"),
    ("mcp.json", "project", "project", "mcp.json"),
)
_DIALECTS: dict[str, Dialect] = {"vscode": "vscode", "codex": "codex", "gemini": "gemini"}
# The key of the servers, where it is not `mcpServers`.
_KEYS: dict[tuple[str, str], KeyPath] = {
    ("vscode", "mcp.json"): ("servers",),
    ("vscode", "settings.json"): ("mcp", "servers"),
    ("codex", "config.toml"): ("mcp_servers",),
}


class _Location(Struct, frozen=True, kw_only=True):
    """A file that may hold servers, and the key under which they stand. A `*` in it stands for every profile."""

    client: str
    scope: Scope
    path: PurePath
    key: KeyPath
    dialect: Dialect


def _locations(platform: str | None, home: str, environ: Mapping[str, str], cwd: str) -> list[_Location]:
    """All files to look at. `platform` is as in `sys.platform`. Nothing is looked at on disk."""
    folders = _folders(platform or sys.platform, home, environ, cwd)
    return [
        _Location(
            client=client,
            scope=scope,
            path=folders[folder] / file,
            key=_KEYS.get((client, PurePath(file).name), ("mcpServers",)),
            dialect=_DIALECTS.get(client, "mcp"),
        )
        for client, scope, folder, file in _FILES
        if folder in folders
    ]


def _folders(platform: str, home: str, environ: Mapping[str, str], cwd: str) -> dict[str, PurePath]:
    # Pure paths: the layout of every system can be tested on any of them.
    pure = PureWindowsPath if platform == "win32" else PurePosixPath
    user = pure(home)

    def named(variable: str, default: PurePath) -> PurePath:
        value = environ.get(variable, "").strip()
        return pure(value) if value else default

    folders: dict[str, PurePath] = {}
    if platform == "win32":
        data = named("APPDATA", user / "AppData/Roaming")
        local = named("LOCALAPPDATA", user / "AppData/Local")
        # Where Windows' own store installs Claude Desktop.
        folders["store"] = local / "Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming"
    elif platform == "darwin":
        data = user / "Library/Application Support"
    else:
        data = named("XDG_CONFIG_HOME", user / ".config")
    return folders | {
        "user": user,
        "project": pure(cwd),
        "data": data,
        "claude": named("CLAUDE_CONFIG_DIR", user),
        "editors": named("VSCODE_APPDATA", data),
        "codex": named("CODEX_HOME", user / ".codex"),
        "gemini": named("GEMINI_CLI_HOME", user),
    }


class ClientServer(PartialRepr, frozen=True, kw_only=True):
    """One server of a client. Its printed form shows no secret."""

    printed = ("name", "spec")

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


class ClientConfig(PartialRepr, frozen=True, kw_only=True):
    """The servers that one client keeps in one place. Its printed form shows no secret."""

    printed = ("client", "scope", "path", "key", "servers", "problems", "project")

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
    entries: dict[str, Any] = field(default_factory=dict)
    """The servers as they stand in the file. May hold secrets."""

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
    _check_client(client)
    environ = os.environ if environ is None else environ
    folder = working_folder() if cwd is None else Path(cwd)
    person = home_folder(environ) if home is None else Path(home)
    everywhere = _locations(platform, str(person), environ, str(folder))
    wanted = [location for location in everywhere if client in {None, location.client}]
    return _once([config for location in wanted for config in _read(location, person, folder, all_projects)])


def _once(found: list[ClientConfig]) -> list[ClientConfig]:
    """Those that hold something. In the home folder a file for all projects is found as the project's, too."""
    once = {(os.path.realpath(config.path), config.key): config for config in reversed(found)}
    return [config for config in reversed(once.values()) if config.servers or config.problems]


def read_client_file(path: str | os.PathLike[str], *, home: str | os.PathLike[str] | None = None) -> ClientConfig:
    """The servers of any client's file, its form guessed from name and content. Raises `ConfigError` if unreadable."""
    file = Path(path)
    person = home_folder(os.environ) if home is None else Path(home)
    source = _Source(file)
    if source.is_json:
        key = servers_key(source.value) or ("mcpServers",)
        dialect: Dialect = "vscode" if key[-1] == "servers" else "gemini" if file.parent.name == ".gemini" else "mcp"
    else:
        key = ("mcp_servers",) if "mcp_servers" in source.value else ("servers",)
        dialect = "codex"
    folder = Path(os.path.realpath(file.parent))
    project = folder.parent if folder.name in CLIENT_FOLDERS else folder
    location = _Location(client="mcp.json", scope="project", path=file, key=key, dialect=dialect)
    config = _parse(location, file, source, person, project)
    if not config.servers:
        raise ConfigError(
            f"{file} holds no servers",
            hints=config.problems,
            next_action="Name a file with `mcpServers`, `servers` or `mcp_servers`, or give a client's name: "
            + ", ".join(CLIENTS),
        )
    return config


def _check_client(client: str | None) -> None:
    if client is None or client in CLIENTS:
        return
    if "/" in client or Path(client).suffix in {".json", ".jsonc", ".toml"}:
        raise ConfigError(
            f"there is no file {client}", hints=list(CLIENTS), next_action="Check the path, or name a client."
        )
    meant = closest_match(client, CLIENTS)
    raise ConfigError(
        f"'{client}' is not a client that toolfold knows",
        hints=list(CLIENTS),
        next_action=f"Did you mean '{meant}'?" if meant else "Name one of the clients, or a file.",
    )


def _files(location: _Location) -> list[Path]:
    path = Path(location.path)
    before, star, after = str(path).partition("*")
    files = sorted(Path(before).glob(star + after)) if star and path_exists(Path(before)) else [path]
    return [file for file in files if path_exists(file)]


class _Source:
    """A file's values, and where they stand."""

    def __init__(self, path: Path) -> None:
        self.locate: Locator
        self._twins: list[KeyPath] = []  # TOML refuses them
        text = read_text(path)
        self.is_json = is_json(path, text)
        if self.is_json:
            document = parse_json(path, text if text.strip() else "{}")
            self.value, self.locate = document.value, document.locate
            self._twins = document.duplicates
        else:
            self.value, self.locate = parse_toml(path, text), TomlPositions(text).locate

    def warn_of_twins(self, at: KeyPath, checker: Checker) -> None:
        if at in self._twins:
            checker.warning(at, "stands twice in this file", "Only the last counts; the others are not taken over.")

    def at(self, key: KeyPath) -> Any:
        value = self.value
        for part in key:
            value = value.get(part) if isinstance(value, dict) else None
        return value


def _read(location: _Location, person: Path, cwd: Path, all_projects: bool) -> Iterator[ClientConfig]:
    for path in _files(location):
        try:
            source = _Source(path)
        except ConfigError as error:
            problems = tuple(str(hint) for hint in error.hints) or (error.message,)
            yield _config(location, path, problems=problems)
            continue
        yield _parse(location, path, source, person, cwd if location.scope == "project" else None)
        if location.client == "claude-code" and location.scope == "user":
            yield from _local_projects(location, path, source, person, None if all_projects else cwd)


def _local_projects(
    location: _Location, path: Path, source: _Source, person: Path, only: Path | None
) -> Iterator[ClientConfig]:
    """Claude Code keeps what a person added for one project in the user's file, under the project's path."""
    projects = source.at(("projects",))
    for folder in projects if isinstance(projects, dict) else ():
        # Real paths: a client may have recorded the folder through a link.
        if only is None or Path(os.path.realpath(folder)) == Path(os.path.realpath(only)):
            local = replace(location, scope="local", key=("projects", folder, "mcpServers"))
            yield _parse(local, path, source, person, Path(folder))


def _parse(location: _Location, path: Path, source: _Source, person: Path, project: Path | None) -> ClientConfig:
    entries = source.at(location.key)
    if entries is not None and not isinstance(entries, dict):
        checker = Checker(str(path), source.locate, lenient=True)
        checker.error(location.key, "expected a table of servers")
        return _config(location, path, problems=tuple(map(str, checker.problems)), project=project)
    excluded = _excluded(source) if location.dialect == "gemini" else []
    inputs = input_defaults(source.at((*location.key[:-1], "inputs")))
    context = ServerContext(
        folder=project or person, user=person, default_cwd=None if project is None else str(project)
    )
    servers: list[ClientServer] = []
    entries = entries or {}
    for written, entry in entries.items():
        # A checker each: what is wrong with one server holds up no other.
        checker = Checker(str(path), source.locate, lenient=True)
        at = (*location.key, written)
        source.warn_of_twins(at, checker)
        table = normalise_table(entry, location.dialect, inputs, checker, at) or {}
        if written in excluded:
            table["enabled"] = False
        servers.append(_server(table, checker, at, context))
    return _config(location, path, servers=tuple(servers), project=project, entries=entries)


def _excluded(source: _Source) -> list[Any]:
    """Gemini keeps the names of disabled servers in a list beside them."""
    names = source.at(("mcp", "excluded"))
    return names if isinstance(names, list) else []


def _config(location: _Location, path: Path, **parts: Any) -> ClientConfig:
    return ClientConfig(
        client=location.client, scope=location.scope, path=path, key=location.key, dialect=location.dialect, **parts
    )


def _server(table: dict[str, Any], checker: Checker, at: KeyPath, context: ServerContext) -> ClientServer:
    written = str(at[-1])
    name = clean_name(written)
    spec = None if checker.errors else build_server(name, table, checker, at, context)
    if spec is not None:
        table = _canonical(table, spec)
        if context.default_cwd is not None:
            table = _independent(table, context)
    position = checker.locate(at) if checker.locate else None
    return ClientServer(
        name=name,
        written=written,
        table=table,
        spec=spec,
        line=position[0] if position else None,
        problems=tuple(map(str, checker.errors)),
        notes=checker.warnings,
    )


def _canonical(table: dict[str, Any], spec: ServerSpec) -> dict[str, Any]:
    """The table as toolfold's own file, which is read strictly, may hold it."""
    # `type` follows from the other keys, and both flags become one `enabled`.
    omitted = {"type", "disabled", "enabled"}
    if str(table.get("auth", "")).casefold() == "oauth":
        omitted.add("auth")
    result = {key: table[key] for key in KEYS_BY_TRANSPORT[spec.transport] if key in table and key not in omitted}
    if isinstance(result.get("env"), dict):
        result["env"] = {name: scalar_text(value) for name, value in result["env"].items()}
    return result if spec.enabled else {**result, "enabled": False}


def _independent(table: dict[str, Any], context: ServerContext) -> dict[str, Any]:
    """A project's table so that it means the same in a file that lies elsewhere."""
    result = {name: map_strings(value, context.expand) for name, value in table.items()}
    for key in ("cwd", "env_file"):
        if isinstance(result.get(key), str):
            result[key] = context.absolute(result[key])
    return result
