"""The reference page of the command line, written from the parser itself: `python -m toolfold.faces.cli.reference`.

A test compares the page in `docs/` with this, so the two cannot drift apart.
"""

import os
import sys
from collections.abc import Iterator

from toolfold.faces.cli.parser import build_parser


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


if __name__ == "__main__":
    sys.stdout.write(_reference_page())
