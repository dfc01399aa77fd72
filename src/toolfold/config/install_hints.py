"""How to install the programs that servers are commonly started with. For error messages; nothing is looked up."""

from pathlib import PurePath

__all__ = ["install_hint"]

_COMMON = {
    "npx": "install Node.js, which brings npx",
    "node": "install Node.js",
    "uvx": "install uv, which brings uvx: pip install uv",
    "uv": "install uv: pip install uv",
    "docker": "install Docker and start it",
}


def install_hint(command: str) -> str:
    """What to do when `command` is not there."""
    return _COMMON.get(PurePath(command).name, "install it, or write its full path as `command`")
