"""The judge of the questions that were written without sight of the program, and that each of them has a truth."""

from collections import Counter

import pytest

from benchmarks.outputs.asked import questions_by_document
from benchmarks.outputs.asked.found import FOUND, Truth
from benchmarks.outputs.asked.judge import answered, holds, judge
from benchmarks.outputs.asked.made import MADE

TABLE = "order,status,total\n4321,open,10.50\n43210,failed,4321.99\n77,failed,3\n"


@pytest.mark.parametrize(
    ("text", "truth", "right"),
    [
        ("43210,failed,4321.99", ["4321"], False),
        ("entry 4321, open", ["4321"], True),
        ("count: 1,234 rows", [1234], True),
        ("count: 234 rows", [1234], False),
        ("mean of total: 12.35", [12.3456], True),
        ("mean of total: 12.4", [12.3], False),
        ("a,b,26277", [26277], True),
        ("--to-stdout", [("\\-\\-to\\-stdout", "--to-stdout")], True),
    ],
)
def test_truths_stand_as_whole_tokens_in_one_of_their_spellings(text: str, truth: Truth, right: bool) -> None:
    assert holds(text, truth) is right


def test_a_computed_number_has_to_be_stated_and_not_only_to_stand_in_a_passage() -> None:
    passage = "[lines 4-4, bytes 40-52]\n77,failed,3"
    assert not answered(passage, TABLE, "count", [3])
    assert answered(f"Exact count: 3 rows.\n\n{passage}", TABLE, "count", [3])


@pytest.mark.parametrize(
    ("line", "kind", "truth", "misleads"),
    [
        ('count of rows where status != "failed": 2', "negation", [1], True),
        ('count of rows where status != "failed": 1', "negation", [1], False),
        ("Exact count: 2 lines hold 'failed'.", "negation", [1], False),
        ("Not in the document: 4321.", "lookup", ["open"], True),
        ("Not in the document: carrier.", "lookup", ["open"], False),
        ("No match was found.", "lookup", ["open"], True),
        ("No match was found.", "unanswerable", None, False),
        ("Greatest total: 4321.99 of 3 values.", "extreme", ["43210"], False),
        ("Greatest total: 99.00 of 3 values.", "extreme", ["43210"], True),
        ("sum of total: 4335.49", "extreme", ["43210"], False),
        ("sum of total: 4335.49", "unanswerable", None, True),
        ("77,failed,3", "unanswerable", None, False),
        ('Nothing was computed: "carrier" has no place in a query here.', "sum", [5], False),
        ("Fields of the 3 rows: order, status, total.", "unanswerable", None, False),
        ("Its shape: an object with the key total: number", "unanswerable", None, False),
        (
            "Greatest total: 99\nIf the sums of each status are meant, greatest sum: 98",
            "extreme",
            ["x"],
            True,
        ),
        (
            "Greatest total: 99\nIf the sums of each status are meant, greatest sum: x",
            "extreme",
            ["x"],
            False,
        ),
    ],
)
def test_a_line_misleads_where_it_claims_what_is_not_true(
    line: str, kind: str, truth: Truth | None, misleads: bool
) -> None:
    assert bool(judge(line, TABLE, kind, truth).misleading) is misleads


def test_each_question_has_a_truth_unless_the_document_does_not_say() -> None:
    questions = questions_by_document()
    assert set(questions) == {*FOUND, *MADE}
    kinds = Counter(kind for asked in questions.values() for kind, _ in asked.values())
    assert (kinds.total(), kinds["unanswerable"]) == (200, 40)
    for name, make in MADE.items():
        answerable = {question for question, (kind, _) in questions[name].items() if kind != "unanswerable"}
        assert answerable == set(make().truth)
