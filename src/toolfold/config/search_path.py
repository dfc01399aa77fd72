"""Where a configuration is looked for and where state is kept, as pure functions of the environment and the folder.

State never lands beside a project's files, and two configurations never share state.
"""

import os
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from toolfold.config.files import path_exists
from toolfold.errors import ConfigError

_PROJECT_FILES = ("toolfold.toml", ".mcp.json", "mcp.json")
CLIENT_FOLDERS = frozenset({".vscode", ".cursor", ".gemini", ".codex", ".claude"})
"""A file in one of these belongs to the folder around it."""


class ConfigLocation(Struct, frozen=True):
    """A configuration file, and the project it belongs to, if to one."""

    path: Path
    project: Path | None


def working_folder() -> Path:
    try:
        return Path.cwd()
    except OSError:
        raise ConfigError("the working folder is gone", next_action="Change to a folder that is there.") from None


def home_folder(environ: Mapping[str, str]) -> Path:
    home = environ.get("HOME") or environ.get("USERPROFILE")
    return Path(home) if home else Path.home()


def toolfold_home(environ: Mapping[str, str]) -> Path:
    """toolfold's own folder: `TOOLFOLD_HOME`, else `~/.toolfold`."""
    named = environ.get("TOOLFOLD_HOME", "").strip()
    return _expanded(named, environ) if named else home_folder(environ) / ".toolfold"


def candidate_files(cwd: Path, home: Path) -> list[Path]:
    """The files that are looked for when none is named, in order."""
    return [*(cwd / name for name in _PROJECT_FILES), home / "toolfold.toml"]


def find_config(
    path: str | os.PathLike[str] | None, cwd: Path, home: Path, environ: Mapping[str, str]
) -> ConfigLocation | None:
    """The named file, whether or not it is there, else the first that is."""
    if path is not None:
        named = cwd / _expanded(os.fspath(path), environ)
        return ConfigLocation(named, _project_of(named, home))
    for candidate in candidate_files(cwd, home):
        if path_exists(candidate):
            return ConfigLocation(candidate, _project_of(candidate, home))
    return None


def _project_of(path: Path, home: Path) -> Path | None:
    folder = _real(path.parent)
    if folder == _real(home):
        return None
    return folder.parent if folder.name in CLIENT_FOLDERS else folder


def state_folder(
    found: ConfigLocation | None, explicit: str | os.PathLike[str] | None, cwd: Path, environ: Mapping[str, str]
) -> Path:
    """Where catalogue, outputs and logs live for this configuration."""
    if explicit is not None:
        return cwd / _expanded(os.fspath(explicit), environ)
    home = toolfold_home(environ)
    if environ.get("TOOLFOLD_HOME", "").strip() or found is None or found.project is None:
        return cwd / home
    path = _real(found.path.parent) / found.path.name
    digest = sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", found.project.name).strip("-.")[:40] or "project"
    return home / "projects" / f"{name}-{digest}"


def _expanded(text: str, environ: Mapping[str, str]) -> Path:
    if text == "~" or text.startswith(("~/", "~\\")):
        return home_folder(environ) / text[2:]
    return Path(text)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
