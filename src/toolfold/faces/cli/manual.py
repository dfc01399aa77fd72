"""`toolfold help`: a command's options, or a page of the documentation, which the package brings along."""

import argparse
from difflib import get_close_matches
from pathlib import Path

from toolfold.errors import ConfigError
from toolfold.faces.cli.parser import build_parser
from toolfold.faces.cli.terminal import Output

_PACKAGE = Path(__file__).resolve().parents[2]
# In the wheel the pages lie in the package; in a checkout, beside `src`.
_FOLDERS = (_PACKAGE / "docs", _PACKAGE.parents[1] / "docs")


def show_help(arguments: argparse.Namespace, output: Output) -> None:
    parser = build_parser()
    commands, pages = parser.commands(), _pages()
    named = arguments.topic.casefold()
    topic = named.removesuffix(".md")
    if not topic:
        output.out.write(parser.format_help())
        output.prose(f"\npages: toolfold help {' | '.join(pages)}")
        return
    if topic == "man":
        from toolfold.faces.cli.reference import _man_page

        output.out.write(_man_page())
        return
    if topic not in pages and named not in commands:
        near = get_close_matches(topic, _topics(), n=1)
        guess = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"there is no help on {topic!r}{guess}", next_action="see what there is: toolfold help")
    if topic in commands and topic == named:
        output.out.write(commands[topic].format_help())
        if topic in pages:
            output.prose(f"\nthe page: toolfold help {topic}.md")
    elif topic in pages:
        _print_page(pages[topic].read_text(encoding="utf-8"), output)


def _topics() -> list[str]:
    """What there is help on."""
    return [*build_parser().commands(), *_pages(), "man"]


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
