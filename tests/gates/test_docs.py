"""The documents say what the program does: the command reference is generated, links lead somewhere."""

import re
import sys
from pathlib import Path

import pytest

from toolfold.faces.cli.reference import _man_page, _reference_page

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="argparse words its help otherwise from Python 3.13 on")
def test_the_command_reference_is_what_the_parser_says() -> None:
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == _reference_page()


def test_the_manual_page_is_what_the_parser_says() -> None:
    assert (ROOT / "docs" / "toolfold.1").read_text(encoding="utf-8") == _man_page()


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_links_between_pages_lead_somewhere(file: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", file.read_text(encoding="utf-8"))
    assert not [target for target in targets if not (file.parent / target).exists()]
