"""The example in an error message: near to what was given, and always of the schema."""

from typing import Any

import pytest

from toolfold.calls.example_arguments import example_for


def test_what_fits_stays_and_what_is_missing_gets_the_plainest_value() -> None:
    kinds = ("string", "integer", "number", "boolean", "array", "object", "null")
    schema = {"properties": {kind: {"type": kind} for kind in kinds}, "required": [*kinds, "free", 7]}
    assert example_for(schema, {"integer": 5, "more": [1]}) == {
        "string": "text",
        "integer": 5,
        "number": 1.0,
        "boolean": True,
        "array": [],
        "object": {},
        "null": None,
        "free": None,
        "more": [1],
    }


@pytest.mark.parametrize(
    ("kind", "given", "example"),
    [
        ("integer", "5", 5),
        ("number", "2.5", 2.5),
        ("integer", "many", 1),
        ("number", "many", 1.0),
        ("integer", True, 1),
        ("string", 5, "5"),
        ("string", True, "text"),
        ("array", "one", ["one"]),
        ("boolean", "yes", True),
        ("object", "text", {}),
        ("unknown", "text", None),
    ],
)
def test_a_value_of_another_type_is_converted_where_it_can_only_mean_one_thing(
    kind: str, given: Any, example: Any
) -> None:
    found = example_for({"type": kind}, given)
    assert found == example
    assert type(found) is type(example)


@pytest.mark.parametrize(
    ("schema", "given", "example"),
    [
        ({"const": "fixed"}, "other", "fixed"),
        ({"type": "integer", "default": 20}, None, 20),
        ({"type": "integer", "default": 20}, 3, 3),
        ({"enum": ["asc", "desc"]}, "desc", "desc"),
        ({"enum": ["asc", "desc"]}, "up", "asc"),
        ({"enum": [], "type": "string"}, 4, "4"),
        ({"type": ["integer", "null", 3]}, None, 1),
        ({"type": ["string", "integer"]}, 9, 9),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "a", "a"),
        ({"oneOf": [True, {"type": "boolean"}]}, 3, True),
        ({"allOf": "no list"}, 3, 3),
        ({}, {"kept": 1}, {"kept": 1}),
        (True, 3, 3),
    ],
)
def test_a_schema_s_own_values_come_before_its_type(schema: Any, given: Any, example: Any) -> None:
    assert example_for(schema, given) == example


def test_a_closed_object_loses_what_it_does_not_know() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    assert example_for(schema, {"a": "3", "b": 1}) == {"a": 3}


def test_properties_that_are_no_object_are_passed_over() -> None:
    assert example_for({"type": "object", "properties": [], "required": ["a"]}, {}) == {"a": None}


def test_references_are_followed_with_their_escapes_also_inside_of_alternatives() -> None:
    schema = {
        "$defs": {"a/b~c": {"type": "integer"}, "alias": {"$ref": "#/$defs/a~1b~0c"}},
        "properties": {"x": {"$ref": "#/$defs/alias"}, "y": {"anyOf": [{"$ref": "#/$defs/alias"}]}},
    }
    assert example_for(schema, {"x": "4", "y": "5"}) == {"x": 4, "y": 5}


@pytest.mark.parametrize("reference", ["#/$defs/loop", "#/$defs/none"])
def test_a_reference_in_a_circle_or_to_nowhere_leaves_the_value_as_it_is(reference: str) -> None:
    schema = {"$defs": {"loop": {"$ref": "#/$defs/loop"}}, "properties": {"x": {"$ref": reference}}}
    assert example_for(schema, {"x": "as given"}) == {"x": "as given"}


def test_an_object_that_requires_itself_ends_at_some_depth() -> None:
    schema = {"type": "object", "properties": {"child": {"$ref": "#"}}, "required": ["child"]}
    depth, node = 0, example_for(schema)
    while node is not None:
        depth, node = depth + 1, node["child"]
    assert depth == 9
