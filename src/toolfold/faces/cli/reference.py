"""The reference of the command line, written from the parser itself: `python -m toolfold.faces.cli.reference` writes
the page in `docs/`, with `man` the one for `man toolfold`.

A test compares both with what is in the repository, so that they cannot drift apart.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterator

from toolfold.faces.cli.parser import EXAMPLES, EXIT_CODES, _Parser, build_parser


def _reference_page() -> str:
    """The whole page. Help texts are wrapped to a fixed width, whatever the terminal."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"
    try:
        return "\n".join(_sections())
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before


def _sections() -> Iterator[str]:
    parser = build_parser()
    yield "# Command line\n"
    yield "Written by `python -m toolfold.faces.cli.reference > docs/cli.md`; a test keeps it true.\n"
    yield f"```text\n{parser.format_help()}```\n"
    for name, command in parser.commands().items():
        yield f"## toolfold {name}\n\n```text\n{command.format_help()}```\n"


def _man_page() -> str:
    """The page for `man`. It names no version and no date: it changes with the parser alone."""
    parser = build_parser()
    shared = {action.dest for action in parser._actions}  # noqa: SLF001 - argparse offers no public way to them
    lines = ['.TH TOOLFOLD 1 "" toolfold "User Commands"', ".nh", ".ad l", ".SH NAME"]
    lines += [f"toolfold \\- {_roff(parser.description or '')}", ".SH SYNOPSIS", ".B toolfold", "[options] COMMAND ..."]
    lines += [".SH OPTIONS", *_entries(parser, {"command"}), ".SH COMMANDS"]
    for name, command in parser.commands().items():
        lines += [f".SS toolfold {_roff(name)}", _roff(command.description or ""), *_entries(command, shared)]
        lines += [".PP", "Examples:", ".PP", ".RS 4", ".nf"]
        lines += [*(_roff(f"toolfold {line}") for line in EXAMPLES[name]), ".fi", ".RE"]
    lines.append(".SH EXIT STATUS")
    for code, meaning in re.findall(r"^  (\d+)  (.*)", EXIT_CODES, re.MULTILINE):
        lines += [".TP", f".B {code}", _roff(meaning)]
    lines += [".SH SEE ALSO", "The pages of the documentation:", ".B toolfold help"]
    return "\n".join(lines) + "\n"


def _entries(parser: _Parser, without: set[str]) -> Iterator[str]:
    """What the parser takes, but for what it shares with all others."""
    for action in parser._actions:  # noqa: SLF001 - as above
        if action.dest in without or action.help == argparse.SUPPRESS:
            continue
        value = "" if action.nargs == 0 else str(action.metavar or "{" + ",".join(action.choices or ()) + "}")
        yield f".TP\n.B {_roff(' '.join(filter(None, (', '.join(action.option_strings), value))))}"
        yield _roff((action.help or "").replace("%(default)s", str(action.default)))


def _roff(text: str) -> str:
    """A line of text for `man`: what has a meaning there is escaped."""
    return re.sub(r"^(?=[.'])", r"\\&", text.replace("\\", r"\e").replace("-", r"\-"))


if __name__ == "__main__":
    sys.stdout.write(_man_page() if sys.argv[1:] == ["man"] else _reference_page())
