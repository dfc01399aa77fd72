"""What the program tells of itself: `toolfold help` and `toolfold completion`.

Help is a command's options, or a page of the documentation, which the package brings along. Of completion there is a
script that a shell loads and the answers that this script asks for: it knows nothing itself, passes the words on
(`toolfold completion bash -- WORDS…`) and shows what comes back. Names of servers and tools come from the
configuration and the catalogue as it was built: nothing is started, and where neither can be read there is nothing to
complete.
"""

import argparse
from collections.abc import Awaitable, Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path

import msgspec

from toolfold.errors import ConfigError, ToolfoldError
from toolfold.faces.cli.parser import build_parser
from toolfold.faces.cli.runner import load_settings, run_with_gateway
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway
from toolfold.schema_walk import Document

_PACKAGE = Path(__file__).resolve().parents[2]
# In the wheel the pages lie in the package; in a checkout, beside `src`.
_FOLDERS = (_PACKAGE / "docs", _PACKAGE.parents[1] / "docs")

_BASH = """\
# toolfold: put this into ~/.bashrc:  source <(toolfold completion bash)
_toolfold() {
    local IFS=$'\\n'
    COMPREPLY=($(toolfold completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    if [[ ${COMPREPLY[0]} == *= ]]; then compopt -o nospace; fi
}
complete -o default -F _toolfold toolfold
"""
_ZSH = """\
#compdef toolfold
# toolfold: put this into ~/.zshrc, after compinit:  source <(toolfold completion zsh)
_toolfold() {
    local -a found
    found=(${(f)"$(toolfold completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then compadd -- $found; else _files; fi
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
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

# The commands that take tools, and how many.
_OF_TOOLS = {"expand": 1, "call": 1, "inspect-output": 1, "trust": 1_000, "stubs": 1_000}
_MAX_NAMES = 2_000


def show_help(arguments: argparse.Namespace, output: Output) -> None:
    parser = build_parser()
    commands, pages = parser.commands(), _pages()
    topic = arguments.topic.casefold().removesuffix(".md")
    if not topic:
        output.out.write(parser.format_help())
        output.line(f"pages: toolfold help {' | '.join(pages)}")
        return
    if topic not in commands and topic not in pages:
        near = get_close_matches(topic, _topics(), n=1)
        guess = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"there is no help on {topic!r}{guess}", next_action="see what there is: toolfold help")
    if topic in commands:
        output.out.write(commands[topic].format_help())
    if topic in pages:
        _print_page(pages[topic].read_text(encoding="utf-8"), output)


def _topics() -> list[str]:
    """What there is help on."""
    return [*build_parser().commands(), *_pages()]


def _pages() -> dict[str, Path]:
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), None)
    return {} if folder is None else {file.stem: file for file in sorted(folder.glob("*.md"))}


def _print_page(text: str, output: Output) -> None:
    """Set out on a terminal; elsewhere as it is written."""
    if not output.out.isatty():
        output.out.write(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(file=output.out, width=min(output.width, 100), no_color=not output.wants_colour(output.out))
    with console.pager(styles=output.wants_colour(output.out)):
        console.print(Markdown(text))


def completion(arguments: argparse.Namespace, output: Output) -> None:
    words = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    if not words:
        output.out.write(_SCRIPTS[arguments.shell])
        return
    *before, current = words
    for option in ("config", "home"):
        if f"--{option}" in before[:-1]:
            setattr(arguments, option, before[before.index(f"--{option}") + 1])
    for name in [name for name in _candidates(before, current, arguments) if name.startswith(current)][:_MAX_NAMES]:
        output.line(name)


def _candidates(before: Sequence[str], current: str, arguments: argparse.Namespace) -> Iterable[str]:
    parser = build_parser()
    commands = parser.commands()
    at = next((number for number, word in enumerate(before) if word in commands), None)
    if at is None:
        return parser.options() if current.startswith("-") else commands
    if current.startswith("-"):
        return commands[before[at]].options()
    if before[-1] == "--server":
        return _read(arguments, _servers)
    given = [word for word in before[at + 1 :] if not word.startswith("-")]
    return _words_of(before[at], given, arguments)


def _words_of(command: str, given: Sequence[str], arguments: argparse.Namespace) -> Iterable[str]:
    """What may stand after a command and the words given already."""
    if command in _OF_TOOLS and len(given) < _OF_TOOLS[command]:
        return _read(arguments, _tool_ids)
    if command == "call":
        return _read(arguments, partial(_argument_names, given[0]))
    words: dict[str, Iterable[str]] = {"completion": _SCRIPTS, "help": _topics()}
    return words.get(command, ())


def _read(arguments: argparse.Namespace, work: Callable[[Gateway], Awaitable[list[str]]]) -> list[str]:
    try:
        return run_with_gateway(load_settings(arguments, require_servers=False), work, create=False)
    except ToolfoldError:
        return []  # a shell that completes has no place for an error


async def _servers(gateway: Gateway) -> list[str]:
    return [spec.name for spec in gateway.upstreams.specs()]


async def _tool_ids(gateway: Gateway) -> list[str]:
    async with gateway.view().catalogue.snapshot() as snapshot:
        return await snapshot.tool_ids()


async def _argument_names(tool_id: str, gateway: Gateway) -> list[str]:
    async with gateway.view().catalogue.snapshot() as snapshot:
        tools = await snapshot.tools(ids=[tool_id])
    roots = [Document(msgspec.json.decode(tool.definition.input_schema)).root for tool in tools]
    return [f"{name}=" for root in roots for name in root.names]
