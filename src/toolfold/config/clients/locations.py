"""Where MCP clients keep their servers, for each system, as a pure function of system, home, environment and folder.

After the clients' own documentation. Nothing is looked at on disk here.
"""

from collections.abc import Mapping
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import Literal

from msgspec import Struct

from toolfold.config.dialects import Dialect
from toolfold.config.validation import KeyPath

CLIENTS: dict[str, str] = {
    "claude-desktop": "Claude Desktop",
    "claude-code": "Claude Code",
    "cursor": "Cursor",
    "vscode": "VS Code",
    "codex": "Codex",
    "gemini": "Gemini CLI",
    "mcp.json": "mcp.json",
}
"""Every client that `toolfold import` knows, with its name for people."""

Scope = Literal["user", "project", "local"]
"""`user`: for all projects. `project`: in the project's folder. `local`: for one project, kept in the user's file."""

_EDITORS = ("Code", "Code - Insiders", "VSCodium", "VSCodium - Insiders", "Code - OSS")
_STORE_PACKAGE = "Claude_pzs8sxrjxfjjc"
"""The folder of Claude Desktop as Windows' own store installs it."""


class Location(Struct, frozen=True, kw_only=True):
    """A file that may hold servers, and the key under which they stand."""

    client: str
    scope: Scope
    path: PurePath
    key: KeyPath = ("mcpServers",)
    dialect: Dialect = "mcp"
    is_pattern: bool = False
    """The path holds a `*`: one file for each profile."""


def locations(platform: str, home: str, environ: Mapping[str, str], cwd: str) -> list[Location]:
    """All files to look at. `platform` is `sys.platform`: linux, darwin, win32."""
    pure = PureWindowsPath if platform == "win32" else PurePosixPath
    user, project = pure(home), pure(cwd)
    data = _app_data(platform, user, environ)
    return [
        *_claude_desktop(platform, user, data, environ),
        *_claude_code(user, project, environ),
        Location(client="cursor", scope="user", path=user / ".cursor" / "mcp.json"),
        Location(client="cursor", scope="project", path=project / ".cursor" / "mcp.json"),
        *_vscode(data, project, environ),
        *_codex(user, project, environ),
        *_gemini(user, project, environ),
        Location(client="mcp.json", scope="project", path=project / "mcp.json"),
    ]


def _app_data(platform: str, user: PurePath, environ: Mapping[str, str]) -> PurePath:
    if platform == "win32":
        return _from(environ, "APPDATA", user) or user / "AppData" / "Roaming"
    if platform == "darwin":
        return user / "Library" / "Application Support"
    return _from(environ, "XDG_CONFIG_HOME", user) or user / ".config"


def _from(environ: Mapping[str, str], variable: str, like: PurePath) -> PurePath | None:
    value = environ.get(variable, "").strip()
    return type(like)(value) if value else None


def _claude_desktop(platform: str, user: PurePath, data: PurePath, environ: Mapping[str, str]) -> list[Location]:
    name = "claude_desktop_config.json"
    paths = [data / "Claude" / name]
    if platform == "win32":
        local = _from(environ, "LOCALAPPDATA", user) or user / "AppData" / "Local"
        paths.append(local / "Packages" / _STORE_PACKAGE / "LocalCache" / "Roaming" / "Claude" / name)
    return [Location(client="claude-desktop", scope="user", path=path) for path in paths]


def _claude_code(user: PurePath, project: PurePath, environ: Mapping[str, str]) -> list[Location]:
    folder = _from(environ, "CLAUDE_CONFIG_DIR", user) or user
    return [
        Location(client="claude-code", scope="user", path=folder / ".claude.json"),
        Location(client="claude-code", scope="project", path=project / ".mcp.json"),
    ]


def _vscode(data: PurePath, project: PurePath, environ: Mapping[str, str]) -> list[Location]:
    base = _from(environ, "VSCODE_APPDATA", data) or data
    found: list[Location] = []
    for editor in _EDITORS:
        user = base / editor / "User"
        found += [
            Location(client="vscode", scope="user", path=user / "mcp.json", key=("servers",), dialect="vscode"),
            Location(
                client="vscode",
                scope="user",
                path=user / "profiles" / "*" / "mcp.json",
                key=("servers",),
                dialect="vscode",
                is_pattern=True,
            ),
            Location(
                client="vscode", scope="user", path=user / "settings.json", key=("mcp", "servers"), dialect="vscode"
            ),
        ]
    folder = project / ".vscode"
    return [
        *found,
        Location(client="vscode", scope="project", path=folder / "mcp.json", key=("servers",), dialect="vscode"),
        Location(
            client="vscode", scope="project", path=folder / "settings.json", key=("mcp", "servers"), dialect="vscode"
        ),
    ]


def _codex(user: PurePath, project: PurePath, environ: Mapping[str, str]) -> list[Location]:
    folder = _from(environ, "CODEX_HOME", user) or user / ".codex"
    key: KeyPath = ("mcp_servers",)
    return [
        Location(client="codex", scope="user", path=folder / "config.toml", key=key, dialect="codex"),
        Location(client="codex", scope="project", path=project / ".codex" / "config.toml", key=key, dialect="codex"),
    ]


def _gemini(user: PurePath, project: PurePath, environ: Mapping[str, str]) -> list[Location]:
    folder = _from(environ, "GEMINI_CLI_HOME", user) or user
    return [
        Location(client="gemini", scope="user", path=folder / ".gemini" / "settings.json", dialect="gemini"),
        Location(client="gemini", scope="project", path=project / ".gemini" / "settings.json", dialect="gemini"),
    ]
