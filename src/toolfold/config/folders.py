"""The folders that a configuration is read against: the person's, toolfold's own, the one that work is done in."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from toolfold.errors import ConfigError

# A file in one of these belongs to the folder around it.
CLIENT_FOLDERS = frozenset({".vscode", ".cursor", ".gemini", ".codex", ".claude"})

# In a state folder: the path of the configuration that it is the state of.
OWNER_FILE = "configuration"


def working_folder() -> Path:
    try:
        return Path.cwd()
    except OSError:  # it was removed while a shell still stands in it
        raise ConfigError("the working folder is gone", next_action="Change to a folder that is there.") from None


def home_folder(environ: Mapping[str, str]) -> Path:
    """The person's home folder."""
    if home := environ.get("HOME") or environ.get("USERPROFILE"):
        return Path(home)
    if hasattr(os, "getuid"):  # an empty HOME would be taken for the root of the disk
        import pwd

        with suppress(KeyError):
            return Path(pwd.getpwuid(os.getuid()).pw_dir)
    return Path.home()


def expand_home(text: str, home: Path) -> Path:
    """The path with a `~` at its start filled in."""
    return home / text[2:] if text == "~" or text.startswith(("~/", "~\\")) else Path(text)


def toolfold_home(environ: Mapping[str, str]) -> Path:
    """toolfold's own folder: `TOOLFOLD_HOME`, else `~/.toolfold`."""
    named = environ.get("TOOLFOLD_HOME", "").strip()
    return expand_home(named or "~/.toolfold", home_folder(environ))
