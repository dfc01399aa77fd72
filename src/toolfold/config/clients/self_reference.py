"""Recognises toolfold among a client's servers, so that it is never imported into itself."""

import re
from pathlib import PureWindowsPath
from urllib.parse import urlsplit

from toolfold.types import ServerSpec

_PACKAGE = re.compile(r"toolfold(\[[\w,-]*\])?([=<>@~!].*)?(\.exe)?", re.IGNORECASE)
_IN_SHELL = re.compile(r"(?:^|[\s;&|/\\])toolfold(?:\.exe)?\s(?:.*\s)?serve\b")
_LAUNCHER = re.compile(r"(uvx?|pipx|python[\d.]*|pythonw|py|env|cmd|wsl|poetry|hatch|rye|pdm|conda|mise)(\.exe)?")
_SHELLS = {"sh", "bash", "zsh", "fish", "cmd", "powershell", "pwsh"}
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def is_toolfold(name: str, spec: ServerSpec) -> bool:
    """By its command, by what a launcher starts, or by name and a local address."""
    if spec.transport == "http":
        return name.casefold() == "toolfold" and _host(spec.url) in _LOOPBACK
    if spec.transport != "stdio":
        return False
    program = PureWindowsPath(spec.command).name.casefold()  # splits at both kinds of slash
    if _PACKAGE.fullmatch(program):
        return True
    if program.removesuffix(".exe") in _SHELLS and any(_IN_SHELL.search(arg) for arg in spec.args):
        return True
    return bool(_LAUNCHER.fullmatch(program)) and any(_PACKAGE.fullmatch(arg) for arg in spec.args)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
