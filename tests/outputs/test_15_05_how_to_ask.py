"""A request whose words have no place is answered with one that can be computed, which names what it leaves out."""

import json
from pathlib import Path

import pytest
from extract_kit import ask, stored
from hypothesis import given
from hypothesis import strategies as st

STOCK = "item;shelf_code;cooling;amount\n" + "".join(
    f"thing {number};R{number % 4};{'dry' if number % 3 else 'cold'};{number}\n" for number in range(1, 41)
)
WAY = "Without “"
SAID = "how many sum of amount total rack things not cold dry without R2 except highest average or R3 and megabytes"


def way(text: str) -> str:
    """The request that an answer proposes; empty where it proposes none."""
    lines = [line for line in text.splitlines() if line.startswith("Nothing was computed") and WAY in line]
    assert len(lines) <= 1
    return lines[0].partition("”, ask for: ")[2] if lines else ""


@pytest.mark.parametrize(
    ("request_", "proposed", "answer"),
    [
        (
            "total amount on rack R2",
            'sum of amount where shelf_code = "R2"',
            'Sum of amount over 10 rows where shelf_code = "R2": 200',
        ),
        (
            "How many crates of stuff are not cold?",
            'how many where cooling != "cold"',
            'Count of rows where cooling != "cold": 27',
        ),
        ("largest amount kept here", "highest amount", "Greatest amount of 40 rows: 40"),
    ],
)
def test_15_05_the_way_to_ask_gives_the_answer(tmp_path: Path, request_: str, proposed: str, answer: str) -> None:
    document = stored(tmp_path, STOCK)
    refused = ask(document, request_).text
    assert "Nothing was computed" in refused
    assert way(refused) == proposed
    assert answer in ask(document, proposed).text


@pytest.mark.parametrize("request_", ["total amount of items nor cold", "how many crates, but cold ones never"])
def test_15_05_a_word_that_turns_a_request_around_is_never_left_out(tmp_path: Path, request_: str) -> None:
    assert way(ask(stored(tmp_path, STOCK), request_).text) == ""


def test_15_05_what_the_records_do_not_say_is_not_proposed(tmp_path: Path) -> None:
    orders = json.dumps([{"id": number, "state": "open" if number % 2 else "paid"} for number in range(50)])
    assert way(ask(stored(tmp_path, orders), "what is the average weight of a parcel?").text) == ""


@given(st.lists(st.sampled_from(SAID.split()), min_size=2, max_size=9))
def test_15_05_what_is_proposed_is_computed_when_it_is_asked(words: list[str]) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        document = stored(Path(folder), STOCK)
        request = " ".join(words)
        text = ask(document, request).text
        proposed = way(text)
        if not proposed:
            return
        left_out = text.partition(WAY)[2].partition("”")[0].split(", ")
        assert set(left_out) <= set(words) - {"not", "without", "except", "or"}
        assert "Nothing was computed" not in ask(document, proposed).text
