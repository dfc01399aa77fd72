"""Extraction without a model over kinds of text that carry their structure in lines, marks and names."""

import json
import re
from pathlib import Path

import pytest
from extract_kit import ask, stored

from toolfold import tokens

ROWS = [{"id": n, "name": f"item-{n}", "owner": "O'Neil" if n % 9 == 0 else "Ada", "size": n * 7} for n in range(300)]
PRINTED = repr(ROWS)
TUPLES = repr([(n, f"name {n}", None) for n in range(300)])
TREE = json.dumps(
    [
        {
            "name": f"folder{a}",
            "type": "directory",
            "children": [
                {
                    "name": f"part{a}{b}",
                    "type": "directory",
                    "children": [{"name": f"f{a}{b}{c}.md"} for c in range(60)],
                }
                for b in range(5)
            ],
        }
        for a in range(6)
    ]
)
NESTED = json.dumps(
    {
        "schemas": {
            f"Thing{n}": {
                "properties": {
                    f"field_{n}": {
                        "description": f"what the field {n} is for " + "x" * 400,
                        "default": f"standard-{n}",
                    },
                    "other": {"description": "y" * 3000},
                }
            }
            for n in range(40)
        }
    }
)
YAML = "tools:\n" + "".join(
    f"- annotations:\n    safe: true\n  description: 'Turns the valve number {n}.\n\n\n"
    f"    It takes {n + 40} seconds and cannot be undone.'\n  input:\n    level:\n      type: integer\n"
    f"      default: {n + 700}\n  name: turn_valve_{n}\n"
    for n in range(60)
)
XML = "<?xml version='1.0'?>\n<parts>\n" + "".join(
    f'  <part code="P{n:03}">\n    <label>Part of kind {n}</label>\n    <weight unit="g">{n * 11}</weight>\n  </part>\n'
    for n in range(120)
)
XML += "</parts>\n"
INI = "".join(
    f"[svc.{name}]\nhost = {name}.test\nport = {4000 + n}\n\n" for n, name in enumerate(f"s{n}" for n in range(200))
)
MARKDOWN = "# Manual\n\n" + "".join(
    f"#### Step {n}: grinding lens {n}\n\nThe lens is held for {n + 3} minutes against the wheel.\n\nFiller.\n\n"
    for n in range(200)
)
PAGE = "<!DOCTYPE html><html><body>\n" + "".join(
    f'<h3 class="t" id="s{n}">Valve {n}</h3>\n<p>The <code>valve{n}</code> opens at '
    f'<a href="https://valve.test/{n}"><b>{n + 9} bar</b></a> of pressure.</p>\n'
    for n in range(200)
)
CODE = "import os\n\n" + "".join(
    f"class Reader{n}:\n    def parse_row_{n}(self, row: str, limit: int = {n + 5}) -> int:\n"
    f'        """Reads one row of sheet {n}."""\n        if not row:\n            raise ValueError("no row {n}")\n'
    f"        return self.parse_row_{n}(row[1:])\n\n"
    for n in range(120)
)
EVENTS = "".join(
    f"2026-02-01 10:{n // 60:02}:{n % 60:02} {'ERROR' if n % 60 == 7 else 'INFO'} job {n:04} "
    + (
        f"failed\nTraceback (most recent call last):\n  File 'a.py', line {n}, in run\n    step()\n"
        f"  File 'b.py', line 9, in step\n    raise\nKeyError: 'part-{n}'\n"
        if n % 60 == 7
        else f"slow query took {n + 100} ms\n"
    )
    for n in range(600)
)
COLUMNS = "NAME        STATE     POOL_SIZE  AGE\n" + "".join(
    f"unit-{n:<6} {'Running' if n % 3 else 'Failed':<9} {(n * 37) % 1009:<10} {n}d\n" for n in range(200)
)
LISTING = "".join(
    f"/srv/d{a}:\ntotal 9\n"
    + "".join(f"-rw-r--r-- 1 root root {a * 100 + b} Jan 1 10:00 note{a}x{b}.txt\n" for b in range(9))
    + "\n"
    for a in range(40)
)
RANGE = re.compile(r"\[lines? (\d+)(?:-(\d+))?, bytes (\d+)-(\d+)\]")


@pytest.mark.requirement("O-13")
@pytest.mark.parametrize(
    ("content", "request_text", "wanted"),
    [
        (PRINTED, "what is the size of item-123", '"size":861'),
        (PRINTED, "how many items have owner O'Neil", "34"),
        (PRINTED, "[7].name", '"item-7"'),
        (PRINTED, "name of the 12th item", '"item-11"'),
        (TUPLES, "[5][1]", '"name 5"'),
        (json.dumps({"orders": ROWS}), "what is the name of the third order?", '"item-2"'),
        (json.dumps({"orders": ROWS}), "the last order in the list", '"item-299"'),
        ("".join(json.dumps(row) + "\n" for row in ROWS), "the 40th entry", '"item-39"'),
        ("name,size\n" + "".join(f"{row['name']},{row['size']}\n" for row in ROWS), "the second row", "item-1,7"),
        (TREE, "in which folder is f342.md?", "(inside folder3)"),
        (NESTED, "default of field 17", "standard-17"),
        (YAML, "how long does turn-valve-33 take?", "It takes 73 seconds"),
        (YAML, "default level of turnValve12", "default: 712"),
        (YAML, "how many tools are there?", "Count of items of tools: 60."),
        (XML, "weight of the part P077", ">847<"),
        (XML, "how many parts are there?", "Count of <part> elements: 120."),
        (INI, "which port does s143 listen on?", "port = 4143"),
        (MARKDOWN, "the section about grinding lens 150", "held for 153 minutes"),
        (PAGE, "at which pressure does valve 88 open?", "The valve88 opens at 97 bar of pressure."),
        (PAGE, "at which pressure does valve 88 open?", "https://valve.test/88"),
        (CODE, "where is ParseRow60 defined?", "def parse_row_60(self, row: str, limit: int = 65)"),
        (CODE, "which error does parse_row_60 raise?", 'raise ValueError("no row 60")'),
        (CODE, "which class has parse_row_60?", "class Reader60:"),
        (EVENTS, "why did job 0307 fail?", "KeyError: 'part-307'"),
        (
            EVENTS,
            "how many slow queries are there?",
            'Count of events where the text has "slow queries" or "slow query" as a whole word: 590',
        ),
        (EVENTS, "what was the slowest query?", "699 ms"),
        (COLUMNS, "which unit has the largest pool size?", "Greatest POOL_SIZE of 200 rows: 1006"),
        (COLUMNS, "how many units are Failed?", 'Count of rows where STATE = "Failed": 67 (of 200 rows'),
        (LISTING, "which directory holds note23x4.txt?", "/srv/d23:"),
    ],
)
def test_the_answer_is_found_in_its_structure(tmp_path: Path, content: str, request_text: str, wanted: str) -> None:
    found = ask(stored(tmp_path, content), request_text)
    assert wanted in found.text
    assert tokens.count(found.text) <= 2100


@pytest.mark.requirement("O-15")
@pytest.mark.parametrize("content", [YAML, XML, INI, MARKDOWN, CODE, EVENTS, COLUMNS, LISTING])
@pytest.mark.parametrize(
    "asked", ["valve 33", "P077", "s143", "lens 150", "parse_row_60", "job 0307", "unit-150", "d23"]
)
def test_what_is_quoted_stands_at_the_lines_and_bytes_it_names(tmp_path: Path, content: str, asked: str) -> None:
    document = stored(tmp_path, content)
    raw = document.path.read_bytes()
    parts = RANGE.split(ask(document, asked).text)
    for at in range(1, len(parts), 5):
        first, last, start, end, body = parts[at : at + 5]
        begin, finish = int(start), int(end) + 1
        assert raw[:begin].count(b"\n") + 1 == int(first)
        assert raw[: finish - 1].count(b"\n") + 1 == int(last or first)
        quoted = [line for line in body.strip("\n").split("\n") if not line.startswith("(under")]
        assert raw[begin:finish].decode().split("\n")[0] == quoted[0]


@pytest.mark.parametrize("asked", ["$", "zzzz qqqq"])
def test_the_shape_of_printed_tuples_is_described(tmp_path: Path, asked: str) -> None:
    assert "[][]: union<string|integer>?" in ask(stored(tmp_path, TUPLES), asked, answer_tokens=200).text


def test_field_names_keep_their_order_in_every_process(tmp_path: Path) -> None:
    text = ask(stored(tmp_path, json.dumps(ROWS)), "distribution of size, owner and name").text
    fields = re.findall(r"^Values of (\w+)", text, re.MULTILINE)
    assert fields == ["size", "owner", "name"]


def test_printed_values_that_are_no_literals_are_quoted_as_they_are(tmp_path: Path) -> None:
    rows = "[" + ", ".join(f"{{'id': {n}, 'made': datetime.date(2024, 1, {n % 28 + 1})}}" for n in range(200)) + "]"
    assert "datetime.date(2024, 1, 5)" in ask(stored(tmp_path, rows), "when was the one with id 144 made?").text


def test_a_meaning_in_other_words_is_found(tmp_path: Path) -> None:
    about = {
        "Beekeeping": "How to look after hives so that the colony survives the cold months.",
        "Sourdough": "Flour and water ferment for days before the loaf goes into the oven.",
        "Taxes": "Which forms a household sends to the revenue office each spring.",
        "Sailing": "Setting the jib and the mainsail when the wind turns.",
    }
    texts = [f"{name}. {text}\n\n" for name, text in about.items()]
    filler = [
        f"Chapter {n}. The people in town number {n} met to talk about forms of things each week.\n\n"
        for n in range(150)
    ]
    document = stored(tmp_path, "".join([*filler[:70], *texts, *filler[70:]]))
    assert "revenue office" in ask(document, "what must people file with the tax authority, and in which forms?").text


def test_the_same_question_gets_the_same_answer(tmp_path: Path) -> None:
    document = stored(tmp_path, MARKDOWN)
    assert ask(document, "how are optics polished?").text == ask(document, "how are optics polished?").text
