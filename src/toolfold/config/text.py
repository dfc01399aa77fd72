"""Reads a configuration file as text: UTF-8 with or without a mark, any line ends, and clear words for the rest."""

import stat
from pathlib import Path

from toolfold.config.problems import syntax_error
from toolfold.errors import ConfigError

MAX_BYTES = 64 * 1024**2


def read_text(path: Path) -> str:
    """The file's text without its byte order mark. Line ends stay as they are."""
    data = _read_bytes(path)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise syntax_error(str(path), "the file is UTF-16, and only UTF-8 can be read: save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = error.start - (before.rfind(b"\n") + 1) + 1
        raise syntax_error(
            str(path), "the file is not UTF-8 here: save it as UTF-8", line=line, column=column
        ) from None
    return text


def _read_bytes(path: Path) -> bytes:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise ConfigError(
                f"{path} is a directory, not a configuration file",
                next_action=f"Name the file, such as {path / 'toolfold.toml'}.",
            )
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path} is not a regular file", next_action="Name a toolfold.toml or mcp.json file.")
        if status.st_size > MAX_BYTES:
            raise ConfigError(f"{path} has {status.st_size} bytes; a configuration has at most {MAX_BYTES}")
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            f"there is no file {path}",
            next_action="Check the path, or run `toolfold import` to make a configuration from an MCP client's.",
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{path} cannot be read: {reason}", next_action="Check the path and its permissions."
        ) from None


def present(path: Path) -> bool:
    """Whether something is there. What may not be looked at counts as absent."""
    try:
        path.stat()
    except (OSError, ValueError):
        return False
    return True


def position(text: str, offset: int) -> tuple[int, int]:
    """1-based line and column of an offset."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
