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
from typing import Any

import msgspec

from toolfold.errors import ToolfoldError
from toolfold.faces.cli.manual import topics
from toolfold.faces.cli.parser import build_parser
from toolfold.faces.cli.runner import load_settings, run_with_gateway
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway
from toolfold.schema_walk import Document

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
    as_bash = partial(_for_bash, "")
    if words[0] == "--line":
        typed = _split(words[1])
        words, as_bash = [*map(_unquoted, typed[1:])], partial(_for_bash, typed[-1])
    *before, current = words or [""]
    for option in ("config", "home"):
        if f"--{option}" in before[:-1]:
            setattr(arguments, option, before[before.index(f"--{option}") + 1])
    names = [name for name in _candidates(before, current, arguments) if name.startswith(current) and _fits(name)]
    for name in names[:_MAX_NAMES]:
        shown = as_bash(name) if arguments.shell == "bash" else name
        if shown is not None:
            output.out.write(f"{shown}\n")


def _fits(name: str) -> bool:
    return name.isprintable() and len(name) <= _MAX_CHARS


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
    at = next((number for number, word in enumerate(before) if word in commands), None)
    if at is None:
        return parser.options() if current.startswith("-") else commands
    command = commands[before[at]]
    if current.startswith("-"):
        return command.options()
    action = command.awaited(before[at + 1 :])
    if action is None:
        return ()
    if action.choices is not None:
        return map(str, action.choices)
    if action.dest == "args" and before[at] == "call":
        given = [word for word in before[at + 1 :] if not word.startswith("-")]
        names = _read(arguments, partial(_argument_names, given[0], current))
        return [name for name in names if not name.startswith("-")]  # which would be an option
    return _named(before[at], action.dest, arguments)


def _named(command: str, what: str, arguments: argparse.Namespace) -> Iterable[str]:
    """What there is of a kind; the kind is what the option or argument is called."""
    if what == "topic":
        return topics()
    if what == "name" and command in {"remove", "enable", "disable"}:
        what = "server"
    read: dict[str, _Read] = {
        "server": _servers,
        "tool_id": _tool_ids,
        "tool": _tool_ids,
        "need": _tool_ids,
        "handle": _handles,
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


async def _handles(gateway: Gateway) -> list[str]:
    return ["last", *(entry.handle for entry in await gateway.outputs())]


async def _tool_ids(gateway: Gateway) -> list[str]:
    async with gateway.view().catalogue.snapshot() as snapshot:
        return await snapshot.tool_ids()


async def _argument_names(tool_id: str, current: str, gateway: Gateway) -> list[str]:
    """The arguments of a tool; behind `name=`, the values that its schema lists."""
    async with gateway.view().catalogue.snapshot() as snapshot:
        tools = await snapshot.tools(ids=[tool_id])
    roots = [Document(msgspec.json.decode(tool.definition.input_schema)).root for tool in tools]
    key, equals, _ = current.partition("=")
    if not equals:
        return [f"{name}=" for root in roots for name in root.names]
    nodes = [root.child(step) for root in roots for step in root.steps if step == ("key", key)]
    values = [value for node in nodes if node is not None for value in node.enum or ()]
    return [f"{key}={value}" for value in values if isinstance(value, str)]
