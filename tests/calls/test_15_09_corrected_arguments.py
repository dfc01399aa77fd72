"""The arguments that an error proposes satisfy the schema, and keep what was right in those given."""

import json
from pathlib import Path
from typing import Any

import pytest

from toolfold.calls.argument_check import Verdict
from toolfold.calls.example_arguments import example_for
from toolfold.schema_walk.compile_schema import compile_schema

PROPOSAL = "call it again with arguments like "


def proposed(schema: Any, given: Any) -> Any:
    """The arguments in the advice; fails where there are none, or where they do not fit."""
    validator = compile_schema(schema)
    verdict = Verdict.explain(validator, schema, given)
    assert verdict.problems
    assert verdict.advice.startswith(PROPOSAL), verdict.advice
    corrected, _ = json.JSONDecoder().raw_decode(verdict.advice.removeprefix(PROPOSAL))
    assert validator.is_valid(corrected)
    return corrected


def object_of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


ORDER = object_of(
    cake=object_of(
        persons={"type": "integer"},
        layers={"type": "array", "minItems": 1, "items": object_of(dough={"enum": ["nut"]})},
    ),
    deliver_to=object_of(name={"type": "string"}, street={"type": "string"}, express={"type": "boolean"}),
    day={"type": "string", "pattern": "^\\d{4}-\\d\\d-\\d\\d$"},
    payment=object_of(method={"enum": ["card", "cash"]}),
)
REST = "deliver_to.street, deliver_to.express, day, payment"


@pytest.mark.parametrize(
    ("given", "made_up"),
    [
        (None, "cake, deliver_to, day, payment"),
        (
            {"cake": {"persons": 3}, "deliver_to": {"name": "Ann"}, "day": "tomorrow"},
            f"cake.layers, {REST}",
        ),
        (
            {
                "cake": {"persons": "12", "layers": [{"dough": "plum"}]},
                "deliver_to": {"name": 5, "street": "Lane 1", "express": "maybe"},
                "day": "2026-01-31",
                "payment": {"method": "CASH"},
            },
            "cake.layers[0].dough, deliver_to.express",
        ),
        (
            {"Cake": {"persons": 3, "layers": [{"dough": "nut"}, {}]}, "deliverTo": {"name": "Ann"}},
            f"cake.layers[1], {REST}",
        ),
    ],
)
def test_17_every_value_that_was_not_given_is_named(given: Any, made_up: str) -> None:
    advice = Verdict.explain(compile_schema(ORDER), ORDER, given or {}).advice
    assert advice.rpartition("; made up, so put in your own: ")[2] == made_up, advice


@pytest.mark.parametrize(
    ("schema", "given", "corrected"),
    [
        ({"type": "integer", "minimum": 10, "maximum": 50}, 3, 10),
        ({"type": "integer", "minimum": 10, "maximum": 50}, 300, 50),
        ({"type": "integer", "exclusiveMinimum": 0}, -4, 1),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 4, 0.5),
        ({"type": "integer", "multipleOf": 5, "minimum": 12}, 13, 10 + 5),
        ({"type": "string", "minLength": 8}, "abc", "abcabcab"),
        ({"type": "string", "maxLength": 3}, "abcdef", "abc"),
        ({"enum": ["open", "closed"]}, "Closed", "closed"),
        ({"enum": ["open", "closed"]}, "close", "closed"),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, ["7"], [7, 1]),
        ({"type": "array", "maxItems": 1}, [1, 2], [1]),
        (
            {"type": "array", "items": {"type": "string"}, "minItems": 3, "uniqueItems": True},
            ["a"],
            ["a", "text", "text3"],
        ),
        ({"type": "boolean"}, "false", False),
        ({"type": "integer"}, 2.5, 2),
        ({"type": "string", "pattern": "^[A-Z]{2}-\\d+$"}, "x", "AA-1"),
        ({"type": "string", "pattern": "^(get|set):[^:]+$", "examples": ["get:it"]}, "x", "get:it"),
        ({"type": "string", "pattern": "^[^a]\\w{3}(x|y)$"}, "-", "xaaax"),
        ({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}, ["1"], [1]),
        ({"oneOf": [{"type": "null"}, {"type": "string", "minLength": 1}]}, 5, "5"),
        ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, 1, 3),
    ],
)
def test_15_09_each_keyword_is_kept(schema: Any, given: Any, corrected: Any) -> None:
    assert proposed(object_of(x=schema), {"x": given}) == {"x": corrected}


def test_15_09_a_mistyped_key_keeps_its_value() -> None:
    schema = object_of(repository={"type": "string"}, max_count={"type": "integer"})
    assert proposed(schema, {"respository": "core", "maxCount": 4}) == {"repository": "core", "max_count": 4}


def test_15_09_a_mistyped_key_of_an_open_object_stands_in_for_the_required_one_alone() -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}, "mode": {}}, "required": ["path"]}
    assert proposed(schema, {"paht": "a.txt", "modes": 1}) == {"path": "a.txt", "modes": 1}


def test_15_09_null_for_an_optional_parameter_is_left_out() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": ["string", "null"]}}}
    assert proposed(schema, {"a": None, "b": None}) == {"b": None}


def test_15_09_the_alternative_that_was_meant_is_completed() -> None:
    user = object_of(kind={"const": "user"}, login={"type": "string"})
    group = object_of(kind={"const": "group"}, members={"type": "array", "items": {"type": "string"}})
    schema = object_of(who={"oneOf": [user, group]})
    assert proposed(schema, {"who": {"kind": "group"}}) == {"who": {"kind": "group", "members": []}}


def test_15_09_where_nothing_was_found_that_fits_nothing_is_proposed() -> None:
    schema = object_of(x={"type": "string", "pattern": "^(?!text)(?=.*\\d)[a-z0-9]{9}$", "not": {"type": "string"}})
    verdict = Verdict.explain(compile_schema(schema), schema, {})
    assert PROPOSAL not in verdict.advice
    assert "expand_tool" in verdict.advice


def test_15_14_an_example_of_a_schema_that_requires_itself_many_times_is_bounded() -> None:
    names = [f"n{number}" for number in range(20)]
    schema = {"type": "object", "properties": {name: {"$ref": "#"} for name in names}, "required": names}
    assert len(json.dumps(example_for(schema))) < 20_000


def wrong(schema: Any) -> list[dict[str, Any]]:
    """Arguments as models get them wrong: none, all of another type, keys in another style, out of every range."""
    names = list(schema.get("properties") or {})
    return [
        {},
        {name: {"wrong": True} for name in names},
        dict.fromkeys(names, -1000000),
        dict.fromkeys(names),
        dict.fromkeys(names, ""),
        {name.title().replace("_", ""): "value" for name in names},
    ]


def test_15_09_on_every_recorded_tool_the_proposed_arguments_fit(shared_data: Path) -> None:
    poor, asked = [], 0
    for file in sorted((shared_data / "servers").glob("*.json")):
        for tool in json.loads(file.read_text(encoding="utf-8"))["tools"] or ():
            schema = tool["inputSchema"]
            validator = compile_schema(schema)
            for given in wrong(schema):
                if validator is None or validator.is_valid(given):
                    continue
                asked += 1
                corrected = example_for(schema, given)
                if not validator.is_valid(corrected):
                    poor.append((file.stem, tool["name"], given))
    assert asked > 5_000
    assert poor == []
