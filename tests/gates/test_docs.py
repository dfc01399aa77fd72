"""The documents say what the program does: the command reference is generated, links lead somewhere."""

import re
import sys
from pathlib import Path

import pytest

from benchmarks import BENCHES
from benchmarks.all import LONG, QUICK
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


FIGURES = ROOT / "docs" / "figures.md"
# What the parser writes, what may be set, and what is wanted: none of it was measured.
NO_FIGURES = {"cli.md", "configuration.md", "requirements.md"}


def _shares_and_tokens(text: str) -> set[str]:
    """What stands there as a percentage or as a count of tokens; examples of code aside."""
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    return {re.sub(r"\s+", " ", one) for one in re.findall(r"(?<![\w.,])\d[\d,.]*(?: ?%|\s+tokens\b)", prose)}


def test_20_every_share_and_count_of_tokens_is_listed_with_what_prints_it() -> None:
    listed: dict[str, set[str]] = {}
    for row in re.findall(r"^\| (?:\[|this page).*\|$", FIGURES.read_text(encoding="utf-8"), flags=re.MULTILINE):
        page, quoted, _, printed = [cell.strip() for cell in row.strip("|").split("|")]
        for target in re.findall(r"\]\(([^)]+)\)", page) or [FIGURES.name]:
            listed.setdefault(Path(target).name, set()).update(filter(None, quoted.split("; ")))
        assert "toolfold " in printed, f"what prints the figures of {page}?"
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        if page == FIGURES:  # the list itself quotes all
            text = text.partition("## Every figure")[0] + text.partition("## How to print them")[2]
        if page.name not in NO_FIGURES:
            assert _shares_and_tokens(text) == listed.get(page.name, set()), page.name


def test_20_every_bench_that_a_page_names_is_there() -> None:
    texts = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
    named = {name for text in texts.values() for name in re.findall(r"toolfold bench ([a-z]+)", text)}
    assert named <= {*BENCHES, "list"}
    run_by_all = {*QUICK, *LONG}
    assert run_by_all == BENCHES.keys() - {"all"}


def test_22_the_comparison_quotes_figures_of_other_pages_alone() -> None:
    quoted = re.findall(r"(?<![\w.,])\.?\d[\d,.]*\d|(?<![\w.,])\d(?![\w.,])", _tables("comparison"))
    measured = " ".join(
        (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("search", "bfcl", "mcp")
    )
    known = set(re.findall(r"\.?\d[\d,.]*\d|\d", measured))
    assert len(quoted) > 40
    assert not set(quoted) - known


def _tables(page: str) -> str:
    """The rows of figures of a page: those whose first cell alone is words."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return "\n".join(line.partition("|")[2].partition("|")[2] for line in text.splitlines() if line.startswith("|"))


def test_22_every_page_is_in_the_navigation_of_the_site() -> None:
    named = set(re.findall(r'"([\w-]+\.md)"', (ROOT / "zensical.toml").read_text(encoding="utf-8")))
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert named == pages
