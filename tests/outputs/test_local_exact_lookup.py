"""Requests that name their answer: by path, lines, bytes, pattern, key or place in a list."""

import json
from pathlib import Path
from typing import Any

import pytest
from extract_kit import ask, stored

LINES = "".join(f"row {n} holds {n * 3}\n" for n in range(1, 2001))
ORDERS = {
    "page": {"size": 20, "next": None},
    "orders": [{"id": n, "customer": f"c{n}", "items": [{"sku": f"s{n}-{k}"} for k in range(3)]} for n in range(300)],
    "wide": {f"key{n}": n for n in range(50)},
}


def answer(folder: Path, content: Any, request: str, **options: Any) -> str:
    text = content if isinstance(content, str) else json.dumps(content)
    return ask(stored(folder, text), request, **options).text


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("lines 5-6", "row 5 holds 15\nrow 6 holds 18"),
        ("line 2000", "row 2000 holds 6000"),
        ("lines 5000-5001", "There are no such lines: the document has lines 1-2000."),
        ("lines 9-3", "There are no such lines: the document has lines 1-2000."),
        ("lines 1999-99999999999999999999", "row 1999 holds 5997\nrow 2000 holds 6000"),
        ("bytes 0-4", "row 1"),
        ("bytes 99999999-99999999", "There are no such bytes: the document has bytes 0-"),
        ("first 2 lines", "row 1 holds 3\nrow 2 holds 6"),
        ("the last 2 lines", "row 1999 holds 5997\nrow 2000 holds 6000"),
        ("/holds 5997$/", "1 lines fit /holds 5997$/."),
        ("/HOLDS 5997$/", "No line fits /HOLDS 5997$/."),
        ("/HOLDS 5997$/i", "1 lines fit /HOLDS 5997$/i."),
        ("/(open/", "is no regular expression that can be used"),
        ("/row/", "further lines are not shown)"),
    ],
)
def test_lines_bytes_ends_and_patterns_are_taken_at_their_word(tmp_path: Path, request_: str, said: str) -> None:
    assert said in answer(tmp_path, LINES, request_)


def test_a_number_beyond_the_last_line_is_read_whole(tmp_path: Path) -> None:
    assert "Not answered" not in answer(tmp_path, LINES, "lines 1999-99999999999999999999")


def test_a_stop_word_is_never_reported_as_missing(tmp_path: Path) -> None:
    mails = [{"from": "ann", "subject": "bob"}, {"from": "cy", "subject": "hi"}]
    said = answer(tmp_path, mails, "mails about bob")
    assert "No match was found" not in said
    assert '"subject":"bob"' in said


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("page.size", "20"),
        ("orders[7].customer", '"c7"'),
        ("orders[-1].customer", '"c299"'),
        ("orders[2].items[].sku", "orders[2].items[].sku leads to 3 values."),
        ("orders[].id", "orders[].id leads to 200 values or more."),
        ("orders[].id", "further values are not shown)"),
        ("page.size.unit", "There is nothing at page.size.unit. page.size is there and holds: the value 20"),
        ("orders[900].id", "There is nothing at orders[900].id. orders is there and holds: 300 elements"),
        ("orders[-900].id", "There is nothing at orders[-900].id. orders is there and holds: 300 elements"),
        ("page.none", "There is nothing at page.none. page is there and holds: size, next"),
        ("wide.none", "key39 and 10 more"),
        ("orders.name.x", "There is nothing at orders.name.x. orders is there and holds: 300 elements"),
        ("what are `page.size` and `orders[3].customer` here?", '"c3"'),
    ],
)
def test_a_path_leads_to_its_value_or_says_how_far_it_leads(tmp_path: Path, request_: str, said: str) -> None:
    assert said in answer(tmp_path, ORDERS, request_)


def test_a_value_too_large_to_show_is_described_by_its_shape(tmp_path: Path) -> None:
    rows = [{"id": n, "note": "long text " * 30, "tags": {"colour": "red"}} for n in range(2000)]
    found = answer(tmp_path, {"rows": rows, "total": 2000}, "$.rows")
    assert "(2000 elements; " in found
    assert "too large to show; its shape)" in found
    assert "colour" in found


def test_a_long_text_is_shown_with_its_middle_cut_out(tmp_path: Path) -> None:
    body = "begin " + "filler words here " * 9000 + " finish"
    found = answer(tmp_path, {"letter": {"body": body}, "n": 1}, "letter.body")
    assert "begin filler" in found
    assert "finish" in found
    assert len(found) < len(body) / 2


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("the third order", "By its place in the list, 3 of 300: orders[2]"),
        ("order number 7", "By its place in the list, 7 of 300: orders[6]"),
        ("the last order", "By its place in the list, 300 of 300: orders[299]"),
        ("the penultimate order", "By its place in the list, 299 of 300: orders[298]"),
        ("the second to last order", "By its place in the list, 299 of 300: orders[298]"),
        ("the 21st entry", "By its place in the list, 21 of 300: orders[20]"),
    ],
)
def test_an_element_is_found_by_its_place_in_the_list(tmp_path: Path, request_: str, said: str) -> None:
    assert said in answer(tmp_path, ORDERS, request_)


@pytest.mark.parametrize("request_", ["the 900th order", "the 0th order"])
def test_a_place_that_the_list_does_not_have_is_not_made_up(tmp_path: Path, request_: str) -> None:
    assert "By its place" not in answer(tmp_path, ORDERS, request_)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("the third row", "By its place in the list, 3 of 500: "),
        ("the last row", "By its place in the list, 500 of 500: "),
        ("row number 44", "c44@test"),
    ],
)
def test_a_row_of_a_table_is_found_by_its_place_below_the_header(tmp_path: Path, request_: str, said: str) -> None:
    table = "id,mail,amount\n" + "".join(f"{n},c{n}@test,{n * 5}\n" for n in range(1, 501))
    assert said in answer(tmp_path, table, request_)


@pytest.mark.parametrize("request_", ["the last customer refund", "row number 9000"])
def test_the_last_of_some_kind_is_no_row_by_its_place(tmp_path: Path, request_: str) -> None:
    table = "id,mail,amount\n" + "".join(f"{n},c{n}@test,{n * 5}\n" for n in range(1, 501))
    assert "By its place" not in answer(tmp_path, table, request_)


def test_the_value_of_a_named_key_is_quoted_with_its_path(tmp_path: Path) -> None:
    tools = {
        f"tool{n}": {"page_size": {"default": n + 1000, "maximum": 9}, "text": "filler text " * 40} for n in range(40)
    }
    found = answer(tmp_path, {"tools": tools}, "the default of page_size")
    assert "By the names of keys:" in found
    assert "tools.tool0.page_size.default" in found
    assert "further places of these keys are not shown)" in found
