"""Where a configuration is looked for and where state is kept, as pure functions of the environment and the folder.

State never lands beside a project's files, and two configurations never share state.
"""

import os
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from toolfold.config.text import present
from toolfold.errors import ConfigError

PROJECT_FILES = ("toolfold.toml", ".mcp.json", "mcp.json")
CLIENT_FOLDERS = frozenset({".vscode", ".cursor", ".gemini", ".codex", ".claude"})
"""A file in one of these belongs to the folder around it."""


class Found(Struct, frozen=True):
    """A configuration file, and the project it belongs to, if to one."""

    path: Path
    project: Path | None


def working_folder() -> Path:
    try:
        return Path.cwd()
    except OSError:
        raise ConfigError("the working folder is gone", next_action="Change to a folder that is there.") from None


def person_home(environ: Mapping[str, str]) -> Path:
    home = environ.get("HOME") or environ.get("USERPROFILE")
    return Path(home) if home else Path.home()


def user_home(environ: Mapping[str, str]) -> Path:
    """toolfold's own folder: `TOOLFOLD_HOME`, else `~/.toolfold`."""
    named = environ.get("TOOLFOLD_HOME", "").strip()
    return _expanded(named, environ) if named else person_home(environ) / ".toolfold"


def candidates(cwd: Path, home: Path) -> list[Path]:
    """The files that are looked for when none is named, in order."""
    return [*(cwd / name for name in PROJECT_FILES), home / "toolfold.toml"]


def find(path: str | os.PathLike[str] | None, cwd: Path, home: Path, environ: Mapping[str, str]) -> Found | None:
    """The named file, whether or not it is there, else the first that is."""
    if path is not None:
        named = cwd / _expanded(os.fspath(path), environ)
        return Found(named, project_of(named, home))
    for candidate in candidates(cwd, home):
        if present(candidate):
            return Found(candidate, project_of(candidate, home))
    return None


def project_of(path: Path, home: Path) -> Path | None:
    folder = _real(path.parent)
    if folder == _real(home):
        return None
    return folder.parent if folder.name in CLIENT_FOLDERS else folder


def state_home(
    found: Found | None, explicit: str | os.PathLike[str] | None, cwd: Path, environ: Mapping[str, str]
) -> Path:
    """Where catalogue, outputs and logs live for this configuration."""
    if explicit is not None:
        return cwd / _expanded(os.fspath(explicit), environ)
    home = user_home(environ)
    if environ.get("TOOLFOLD_HOME", "").strip() or found is None or found.project is None:
        return cwd / home
    path = _real(found.path.parent) / found.path.name
    digest = sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", found.project.name).strip("-.")[:40] or "project"
    return home / "projects" / f"{name}-{digest}"


def _expanded(text: str, environ: Mapping[str, str]) -> Path:
    if text == "~" or text.startswith(("~/", "~\\")):
        return person_home(environ) / text[2:]
    return Path(text)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
