"""Summaries: one plain line from what the server wrote, never empty, never long."""

import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from toolfold.catalogue.build import MAX_LENGTH, _summarise
from toolfold.types import ToolDefinition


def summary(description: str, *, title: str = "", name: str = "getUserByID") -> str:
    return _summarise(ToolDefinition(name=name, raw=Raw(b"{}"), title=title, description=description))


def assert_plain(line: str) -> None:
    assert line
    assert len(line) <= MAX_LENGTH
    assert line == " ".join(line.split())
    assert not any(unicodedata.category(one)[0] == "C" for one in line)


@settings(deadline=None)
@given(st.text(), st.text(), st.text())
def test_every_text_gives_one_plain_line(description: str, title: str, name: str) -> None:
    assert_plain(summary(description, title=title, name=name))


@pytest.mark.parametrize(
    ("description", "line"),
    [
        ("Uploads an object to a bucket. Needs a key.", "Uploads an object to a bucket."),
        ("Shows <rev>:<path> of a repository", "Shows <rev>:<path> of a repository"),
        ("<usecase>Finds <b>all</b> files<br/>here</usecase>", "Finds all files here"),
        ("Get commits, e.g. the last. More follows here.", "Get commits, e.g. the last."),
        ("Lists v1.2 files of node.js projects\nin one go", "Lists v1.2 files of node.js projects in one go"),
        ("\n\n  ## Search\n\nFinds things.", "Search"),
        ("**Search** the `web` with [Exa](https://exa.example/?q=1).", "Search the web with Exa."),
        ("<b>Bold</b> claim about snake_case_names", "Bold claim about snake_case_names"),
        ("```json\n{}\n```\nShows a chart", "Shows a chart"),
        ("- first of several\n- second", "first of several second"),
        ("Short. Then it says what it is really for.", "Short. Then it says what it is really for."),
        ("Hid\u200bden\u202e and \x1b[31mred\x00\U000e0041", "Hidden and [31mred"),
        ("", "Get user by id"),
        ("---\n***", "Get user by id"),
        ("Löscht Dateien, für immer!", "Löscht Dateien, für immer!"),
        ("搜索网络。返回结果。", "搜索网络。返回结果。"),
    ],
)
def test_the_first_sentence_without_markup(description: str, line: str) -> None:
    assert summary(description) == line


def test_the_title_stands_in_for_a_missing_description() -> None:
    assert summary("", title="Get a user") == "Get a user"


def test_a_tool_that_says_nothing_at_all_still_has_a_summary() -> None:
    assert summary("", name="---") == "A tool without a name or description"


def test_a_long_sentence_is_cut_at_a_word_and_says_so() -> None:
    line = summary("Retrieves " + "very " * 40 + "much")
    assert line == "Retrieves " + "very " * 17 + "very…"
    assert_plain(line)


def test_one_endless_word_is_cut_too() -> None:
    assert summary("x" * 500) == "x" * 99 + "…"


def test_every_recorded_tool_has_a_summary_in_plain_words(shared_data: Path) -> None:
    for file in sorted((shared_data / "servers").glob("*.json")):
        for tool in json.loads(file.read_text())["tools"]:
            line = summary(tool["description"], title=tool.get("title", ""), name=tool["name"])
            assert_plain(line)
            assert "```" not in line
            assert "**" not in line
