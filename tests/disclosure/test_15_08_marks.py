"""4,000 random schemas of all keywords: what is hidden is said, marked and counted exactly where it is."""

import json
from typing import Any

import pytest
from random_schemas import SchemaMaker
from schema_marks import check_listing, mark_of
from schema_oracle import below_of, dotted, leaves

from toolfold.disclosure.fold import NOT_DECLARED, Entry, root_of, summarize_schema_for_llm
from toolfold.disclosure.inspector import MAX_INSPECT_BYTES, inspect_schema, locate

DEPTH = 4
EACH = 500


def place_of(line: str) -> str:
    mark = mark_of(line)
    return line.rpartition(": ")[0] if mark is None else mark.path


def unlisted(schema: Any, lines: list[str]) -> set[str]:
    """The leaves, down to some depth, that have no line, by the second opinion."""
    return leaves(schema, DEPTH) - {place_of(line) for line in lines if mark_of(line) is None}


def children_of(schema: Any, path: str) -> set[str]:
    """The places directly below one; those of the items where it is an array."""
    return {child.path for child in Entry(locate(root_of(schema), path).node, path).children}


def is_endless(line: str) -> bool:
    """Marks of what no list could hold: keys that are data or unknown, references to nowhere or back to the same."""
    mark = mark_of(line)
    return mark is not None and (mark.kind == "open" or ", recursive: " in line)


@pytest.mark.requirement("S-05")
@pytest.mark.parametrize("seed", range(8))
def test_15_08_hidden_truncated_and_marks_are_true_exactly_when_they_should_be(seed: int) -> None:
    maker = SchemaMaker(seed)
    for number in range(EACH):
        schema = maker.schema()
        lines, hidden = summarize_schema_for_llm(schema)
        if number % 10 == 0:  # it asks the inspector of every mark
            check_listing(schema, lines, hidden, 30)
        assert hidden == bool(unlisted(schema, lines) or any(map(is_endless, lines))), (schema, lines)
        listed = {place_of(line) for line in lines if "* (+" not in line}
        for line in lines:
            mark = mark_of(line)
            if mark is not None and mark.kind == "fold" and not is_endless(line):
                assert not children_of(schema, mark.path) <= listed, (schema, lines, line)
        answer = inspect_schema(schema, max_fields=40, max_depth=3)
        shown = answer["flattened_fields"]
        missing = unlisted(schema, shown) - {""}
        assert answer["truncated"] == bool(missing or any(map(is_endless, shown))), (schema, shown)


TEXT = {"type": "string"}


def object_of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "lines"),
    [
        (
            {**object_of(a=object_of(x=TEXT)), "anyOf": [object_of(a=object_of(y=TEXT)), object_of(b=TEXT)]},
            ["a: object", "b: string", "a.x: string", "a.y: string"],
        ),
        (
            {"prefixItems": [object_of(a=TEXT)], "anyOf": [{"prefixItems": [object_of(b=TEXT)]}, {"type": "array"}]},
            ["[0]: object", "[]: union<object|any>", "[0].a: string", "[0].b: string", "[].b: string"],
        ),
        (
            {"type": "array", "prefixItems": [TEXT], "unevaluatedItems": object_of(b=TEXT)},
            ["[0]: string", "[]: object", "[].b: string"],
        ),
        ({"type": "array", "items": {}, "contains": object_of(b=TEXT)}, ["[].b: string"]),
    ],
)
def test_15_08_fields_that_several_parts_of_a_schema_declare_are_all_listed(schema: Any, lines: list[str]) -> None:
    assert summarize_schema_for_llm(schema) == (lines, False)


def test_15_08_a_container_whose_children_are_all_listed_has_no_mark_of_its_own() -> None:
    lines, hidden = summarize_schema_for_llm(object_of(next=object_of(data={"type": "object"}), id=TEXT))
    assert lines[:2] == ["next: object", "id: string"]
    assert hidden


@pytest.mark.parametrize("schema", [None, {}, True, {"title": "Result"}])
def test_15_08_what_is_not_declared_says_so(schema: Any) -> None:
    assert summarize_schema_for_llm(schema) == ([NOT_DECLARED], False)


def test_15_08_the_inspector_shows_what_the_items_of_an_array_are() -> None:
    answer = inspect_schema({"type": "array", "items": TEXT})
    assert (answer["node_type"], answer["flattened_fields"], answer["truncated"]) == ("array", ["[]: string"], False)


@pytest.mark.parametrize("fields", [-1, 0, 1, 120, 10**9])
def test_15_08_an_inspection_is_bounded_whatever_is_asked_for(fields: int) -> None:
    wide = object_of(**{f"{'k' * 150}{number}": object_of(**{"n" * 150: TEXT}) for number in range(2_000)})
    answer = inspect_schema(wide, max_fields=fields, max_depth=10**9)
    assert len(json.dumps(answer)) <= MAX_INSPECT_BYTES * 1.2
    assert answer["truncated"]
    assert answer["total_child_fields"] == 2_000


def test_15_08_alternatives_that_are_left_out_count_as_truncated() -> None:
    parts = [
        {"type": "object", "title": f"T{number}", "properties": {"a": TEXT, f"b{number}": TEXT}} for number in range(9)
    ]
    assert inspect_schema({"anyOf": parts}, max_fields=4)["truncated"]
    assert len(inspect_schema({"anyOf": parts}, max_fields=4)["alternatives"]) == 4


def test_15_08_the_second_opinion_reads_conditions_and_patterns() -> None:
    schema = {
        "then": object_of(a=TEXT),
        "dependentSchemas": {"x": object_of(b=TEXT)},
        "patternProperties": {"^c": TEXT},
    }
    assert leaves(schema, DEPTH) == {"a", "b", "*"}
    assert set(below_of(schema, [schema]).fields) == {"a", "b"}
    assert dotted("a", "b") == "a.b"
    assert root_of(schema).envelope is None
