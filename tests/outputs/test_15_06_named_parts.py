"""Paths as the schema shows them, lines and patterns of the text inside a JSON result, and parts left unanswered."""

import json
from pathlib import Path

import pytest
from extract_kit import ask, stored
from output_scene import Scene, run

ORDERS = [{"id": number, "email": f"u{number}@example.org"} for number in range(1000)]
LOG = "".join(f"{number:03} {'ERROR disk full' if number % 100 == 7 else 'fine'}\n" for number in range(500))
FILE = json.dumps({"path": "a.log", "content": LOG, "note": "x\ny"})


@pytest.mark.parametrize("document", [json.dumps(ORDERS), json.dumps({"result": ORDERS}), json.dumps({"data": ORDERS})])
@pytest.mark.parametrize("path", ["result[3].email", "[3].email", "$[3].email", "$.result[3].email", "`[3].email`"])
def test_15_06_a_path_works_as_the_schema_shows_it_and_from_the_value(tmp_path: Path, document: str, path: str) -> None:
    if '"data"' in document and "result" in path:
        path = path.replace("result", "data")
    text = ask(stored(tmp_path, document), path).text
    assert "[3].email" in text
    assert '"u3@example.org"' in text
    assert "u4@" not in text


def test_15_06_a_key_that_is_there_is_never_taken_for_a_wrapper(tmp_path: Path) -> None:
    both = json.dumps({"result": [1, 2], "data": {"x": [7, 8]}})
    assert "result[1] [line 1" in ask(stored(tmp_path, both), "result[1]").text
    assert "data.x[1] [line 1" in ask(stored(tmp_path, both), "x[1]").text
    assert "There is nothing at [2000]" in ask(stored(tmp_path, json.dumps(ORDERS)), "[2000]").text


@pytest.mark.requirement("O-16")
def test_15_06_a_reference_takes_the_same_paths(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as scene:
            outcome = await scene.give({"content": [], "structuredContent": {"result": ORDERS}})
            assert outcome.stored is not None
            for path in ("result[3].email", "[3].email", "$[3].email"):
                await scene.gateway.call_tool("s.other", {"to": {"$output": outcome.stored.handle, "path": path}})
                assert json.loads(bytes(scene.upstream.calls[-1].arguments)) == {"to": "u3@example.org"}

    run(main())


@pytest.mark.parametrize(
    ("request_", "shown", "hidden"),
    [
        ("lines 7-9", ["[content, lines 7-9 of 500]", "006 fine\n007 ERROR disk full\n008 fine"], "009"),
        ("line 8", ["lines 8-8 of 500", "007 ERROR disk full"], "008 fine"),
        ("the last 2 lines", ["lines 499-500 of 500", "498 fine\n499 fine"], "497"),
        ("content lines 1-1", ["[content, lines 1-1 of 500]", "000 fine"], "001"),
        ("lines 2-2 of note", ["[note, lines 2-2 of 2]", "\ny"], "fine"),
        ("`note` lines 1-1", ["[note, lines 1-1 of 2]"], "Not answered"),
        ("lines 1-1 and the disk", ["[content, lines 1-1 of 500]", "Not answered: “and the disk”"], "001"),
        ("lines 900-901", ["the text at content has lines 1-500"], "fine"),
    ],
)
def test_15_06_lines_are_those_of_the_text_inside_a_json_result(
    tmp_path: Path, request_: str, shown: list[str], hidden: str
) -> None:
    text = ask(stored(tmp_path, FILE), request_).text
    for part in shown:
        assert part in text
    assert hidden not in text


@pytest.mark.requirement("O-15")
def test_15_06_a_pattern_finds_every_hit_in_a_result_of_one_line(tmp_path: Path) -> None:
    text = ask(stored(tmp_path, FILE), "/ERROR/").text
    assert "5 lines fit /ERROR/" in text
    for number in (7, 107, 207, 307, 407):
        assert f"content, line {number + 1}: {number:03} ERROR disk full" in text
    records = ask(stored(tmp_path, json.dumps(ORDERS)), r"/^u99\d@/").text
    assert "10 lines fit" in records
    assert "[995].email: u995@example.org" in records
    about_json = ask(stored(tmp_path, json.dumps(ORDERS)), r'/"id": 99\d, "email"/').text
    assert "10 lines fit" in about_json
    words = "word " * 300
    plain = ask(stored(tmp_path, f"{words}hit one {words}hit two {words}"), "/hit/").text
    assert "2 lines fit" in plain
    assert "hit one" in plain
    assert "hit two" in plain


@pytest.mark.parametrize(
    ("request_", "answered", "unanswered"),
    [
        ("orders[3].email, orders[9999].email", "u3@example.org", "orders[9999].email"),
        ("orders[3].email and orders[4].email", "u4@example.org", ""),
        ("bytes 0-9 and the largest invoice", '{"orders":', "largest invoice"),
        ("who is orders[3].email and where is orders[9999].town", "u3@example.org", "orders[9999].town"),
    ],
)
def test_15_06_parts_of_a_request_that_were_not_answered_are_named(
    tmp_path: Path, request_: str, answered: str, unanswered: str
) -> None:
    text = ask(stored(tmp_path, json.dumps({"orders": ORDERS})), request_).text
    assert answered in text
    assert ("Not answered: " in text) == bool(unanswered)
    assert unanswered in text.rpartition("Not answered: ")[2]


def test_15_06_two_ranges_are_both_quoted(tmp_path: Path) -> None:
    text = ask(stored(tmp_path, LOG), "lines 2-3 and lines 108-108").text
    assert "001 fine\n002 fine" in text
    assert "107 ERROR disk full" in text
    assert "Not answered" not in text


def test_15_06_a_word_and_a_wrong_path_stay_what_they_are(tmp_path: Path) -> None:
    document = stored(tmp_path, json.dumps({"orders": ORDERS}))
    assert "orders.email" not in ask(document, "email").text
    assert "There is nothing at customers.name" in ask(document, "customers.name").text


def test_15_06_a_path_to_every_item_works_from_either_root_and_claims_no_count_it_has_not(tmp_path: Path) -> None:
    few, many = ({"result": ORDERS[:count]} for count in (3, 1000))
    assert "result[].email leads to 3 values." in ask(stored(tmp_path, json.dumps(few)), "[].email").text
    assert "leads to 200 values or more." in ask(stored(tmp_path, json.dumps(many)), "result[].email").text
