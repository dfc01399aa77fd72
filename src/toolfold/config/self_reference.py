"""Whether a server is toolfold itself, which would offer its own tools once more, through itself, without end.

By what is written, before anything is started; what a script of another name hides shows when it answers. A toolfold on
another machine is a server like any other. Above: the reader, the import, the MCP upstream.
"""

import re
from pathlib import PureWindowsPath
from urllib.parse import urlsplit

from toolfold.types import ServerInfo, ServerSpec

__all__ = ["answers_as_toolfold", "is_toolfold"]

_PACKAGE = re.compile(r"toolfold(\[[\w,-]*\])?([=<>@~!].*)?(\.exe)?", re.IGNORECASE)
_IMAGE = re.compile(r"([\w.:-]+/)+toolfold([:@].*)?", re.IGNORECASE)
_IN_SHELL = re.compile(r"(?:^|[\s;&|/\\])toolfold(?:\.exe)?\s(?:.*\s)?serve\b")
# Programs that start another one, whose name is then among the arguments.
_LAUNCHER = re.compile(
    r"(uvx?|pipx|python[\d.]*|pythonw|py|env|cmd|wsl|poetry|hatch|rye|pdm|conda|mise|npx|npm|pnpx|pnpm|yarn|bunx|docker"
    r"|podman|nerdctl|sudo|nice|timeout|nohup|stdbuf|xvfb-run)(\.exe)?"
)
_SHELLS = {"sh", "bash", "zsh", "fish", "cmd", "powershell", "pwsh"}
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def is_toolfold(name: str, spec: ServerSpec) -> bool:
    """Whether a server is toolfold: by its command, by what a launcher starts, or by name and a local address."""
    if spec.transport == "http":
        return name.casefold() == "toolfold" and _is_local(spec.url)
    if spec.transport != "stdio":
        return False
    program = _base(spec.command)
    if _PACKAGE.fullmatch(program):
        return True
    if program.removesuffix(".exe") in _SHELLS and any(_IN_SHELL.search(arg) for arg in spec.args):
        return True
    return bool(_LAUNCHER.fullmatch(program)) and _launches(spec.args)


def answers_as_toolfold(spec: ServerSpec, info: ServerInfo) -> bool:
    """Whether a server on this machine says of itself that it is toolfold."""
    return info.title == "toolfold" and (spec.transport == "stdio" or _is_local(spec.url))


def _launches(args: tuple[str, ...]) -> bool:
    for index, arg in enumerate(args):
        if _PACKAGE.fullmatch(arg):
            return True
        # A path or an image may be named after toolfold and be anything: only one that is told to serve is it.
        if "serve" in args[index + 1 :] and (_PACKAGE.fullmatch(_base(arg)) or _IMAGE.fullmatch(arg)):
            return True
    return False


def _base(path: str) -> str:
    return PureWindowsPath(path).name.casefold()  # splits at both kinds of slash


def _is_local(url: str) -> bool:
    try:
        return urlsplit(url).hostname in _LOOPBACK
    except ValueError:
        return False
