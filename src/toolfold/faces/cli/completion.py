"""`toolfold completion`: a script that a shell loads, and the answers that this script asks for.

The script knows nothing itself: it passes on what was typed (bash the line, the others the words) and shows what comes
back. Names come from the configuration, the store and the catalogue as it was built: nothing is started, and where
they cannot be read there is nothing to complete.

Names of arguments and their values are a server's text, and what a shell completes it may run next. zsh and fish quote
what they insert; for bash each name is quoted here. What could not be typed on one line is never offered.
"""

import argparse
import re
import shlex
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from toolfold.config.clients import CLIENTS
from toolfold.errors import ToolfoldError
from toolfold.faces.cli.manual import _topics
from toolfold.faces.cli.parser import build_parser
from toolfold.faces.cli.runner import load_settings, run_with_gateway
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway
from toolfold.schema_walk import Document
from toolfold.scripts.kept import SERVER

# bash 3.2, which macOS has, knows no `mapfile`. `-o default` completes files where nothing else is offered.
_BASH = """\
# toolfold: put this into ~/.bashrc:  source <(toolfold completion bash)
_toolfold() {
    local name
    COMPREPLY=()
    while IFS= read -r name; do COMPREPLY+=("$name"); done < <(
        toolfold completion bash --line "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    if [[ ${COMPREPLY[0]-} == *[=\\'] ]]; then compopt -o nospace; fi
}
complete -o default -F _toolfold toolfold
"""
_ZSH = """\
#compdef toolfold
# toolfold: put this into ~/.zshrc, after compinit:  source <(toolfold completion zsh)
_toolfold() {
    local -a found
    found=(${(f)"$(toolfold completion zsh -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)"})
    (( $#found )) || { _files; return }
    compadd -S '' -- ${(M)found:#*=}
    compadd -- ${found:#*=}
}
compdef _toolfold toolfold
"""
_FISH = """\
# toolfold: save this:  toolfold completion fish > ~/.config/fish/completions/toolfold.fish
function __toolfold
    set -l words (commandline -opc) (commandline -ct)
    toolfold completion fish -- $words[2..-1] 2>/dev/null
end
complete -c toolfold -a '(__toolfold)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

_MAX_NAMES = 2_000
_MAX_CHARS = 200
# Of a line of bash: space between words, something quoted as a whole, all else; at last a quote that is still open.
_PIECE = re.compile(r"""\s+|'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^\s'"\\]+|.+""", re.DOTALL)
# What means nothing to a shell, inside quotes that are open or without any.
_PLAIN = re.compile(r"[\w ,.:=@/+%-]*", re.ASCII)

_Read = Callable[[Gateway], Awaitable[list[str]]]


def completion(arguments: argparse.Namespace, output: Output) -> None:
    words = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    if not words:
        output.out.write(SCRIPTS[arguments.shell])
        return
    typed = ""
    if words[0] == "--line":
        _, *words = _split(words[1])
        typed = words[-1] if words else ""
        words = list(map(_unquoted, words))
    for name in _complete(words or [""], arguments):
        shown = _for_bash(typed, name) if arguments.shell == "bash" else name
        if shown is not None:
            output.out.write(f"{shown}\n")


def _complete(words: Sequence[str], arguments: argparse.Namespace) -> list[str]:
    """How the last word may go on, in what can be typed on one line."""
    *before, current = words
    for option in ("config", "home"):
        if f"--{option}" in before[:-1]:
            setattr(arguments, option, before[before.index(f"--{option}") + 1])
    names = [name for name in _candidates(before, current, arguments) if name.startswith(current)]
    return [name for name in names if name.isprintable() and len(name) <= _MAX_CHARS][:_MAX_NAMES]


def _split(line: str) -> list[str]:
    """The words of a line of bash as they are typed, the last of them up to the cursor."""
    words = [""]
    for piece in _PIECE.findall(line):
        if piece.isspace():
            words.append("")
        else:
            words[-1] += piece
    return words


def _unquoted(word: str) -> str:
    try:
        return "".join(shlex.split(word))
    except ValueError:  # a quote or an escape that is still open
        return word.replace("'", "").replace('"', "").removesuffix("\\")


def _for_bash(typed: str, name: str) -> str | None:
    """A name as bash may insert it, which replaces the last word only from `=` or `:` on; `None`: it cannot be."""
    if _unquoted(typed) != typed:
        return name if _PLAIN.fullmatch(name) and typed[0] in "'\"" else None
    done = max(typed.rfind("="), typed.rfind(":")) + 1
    return shlex.quote(name[done:])


def _candidates(before: Sequence[str], current: str, arguments: argparse.Namespace) -> Iterable[str]:
    parser = build_parser()
    commands = parser.commands()
    named = [word in commands for word in before]
    if not any(named):
        return parser.options() if current.startswith("-") else commands
    at = named.index(True)
    name, given = before[at], before[at + 1 :]
    if current.startswith("-"):
        return commands[name].options()
    action = commands[name].awaited(given)
    if action is None:
        return ()
    if action.dest == "args":
        return _arguments_of(name, given, current, arguments)
    return action.choices or _named(name, action.dest, arguments)


def _arguments_of(command: str, given: Sequence[str], current: str, arguments: argparse.Namespace) -> Iterable[str]:
    """The arguments of the tool or the script that is named already."""
    given = [word for word in given if not word.startswith("-")]
    tool = {"call": "".join(given[:1]), "scripts": f"{SERVER}.{''.join(given[1:2])}"}.get(command)
    names = _read(arguments, partial(_argument_names, tool, current)) if tool else []
    return [name for name in names if not name.startswith("-")]  # which would be an option


def _named(command: str, what: str, arguments: argparse.Namespace) -> Iterable[str]:
    """What there is of a kind; the kind is what the option or argument is called."""
    if what == "topic":
        return _topics()
    if what == "script" and command == "run":
        return ()  # a file
    if what == "client" and command == "import":
        return CLIENTS  # or a file, where none begins so
    if what == "name" and command in {"remove", "enable", "disable"}:
        what = "server"
    read: dict[str, _Read] = {
        "server": _servers,
        "tool_id": _tool_ids,
        "tool": _tool_ids,
        "need": _tool_ids,
        "handle": _handles,
        "path": _categories,
        "within": _categories,
        "script": _scripts,
        "subset": lambda gateway: _names(gateway.settings.subsets),
        "view_as": lambda gateway: _names(gateway.settings.callers),
        "caller": lambda gateway: _names(gateway.settings.callers),
    }
    return _read(arguments, read[what]) if what in read else ()


def _read(arguments: argparse.Namespace, work: _Read) -> list[str]:
    try:
        settings = load_settings(arguments, require_servers=False)
        return run_with_gateway(settings, work, create=False, keep_outputs=True)
    except ToolfoldError:
        return []  # a shell that completes has no place for an error


async def _names(entries: Iterable[Any]) -> list[str]:
    return [entry.name for entry in entries]


async def _servers(gateway: Gateway) -> list[str]:
    return await _names(gateway.settings.servers)


async def _scripts(gateway: Gateway) -> list[str]:
    return [path.stem for path in sorted((gateway.settings.scripts_folder or Path()).glob("*.py"))]


async def _handles(gateway: Gateway) -> list[str]:
    return ["last", *(entry.handle for entry in await gateway.outputs())]


async def _categories(gateway: Gateway) -> list[str]:
    branches = [*(await gateway.tree()).branches]
    for branch in branches:  # grows meanwhile
        branches += branch.children
    return ["/".join(branch.node.path) for branch in branches]


async def _tool_ids(gateway: Gateway) -> list[str]:
    async with gateway.view().catalogue.snapshot() as snapshot:
        return await snapshot.tool_ids()


async def _argument_names(tool_id: str, current: str, gateway: Gateway) -> list[str]:
    """The arguments of a tool; behind `name=`, the values that its schema lists."""
    async with gateway.view().catalogue.snapshot() as snapshot:
        tools = await snapshot.tools(ids=[tool_id])
    if not tools:
        return []
    root = Document(msgspec.json.decode(tools[0].definition.input_schema)).root
    key, equals, _ = current.partition("=")
    if not equals:
        return [f"{name}=" for name in root.names]
    node = next((root.child(step) for step in root.steps if step == ("key", key)), None)
    return [f"{key}={value}" for value in (node and node.enum) or () if isinstance(value, str)]
