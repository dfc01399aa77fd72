"""Random schemas: budget, marks, order and bounds hold for all of them."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schema_marks import check_listing, mark_of
from schema_oracle import leaves

from toolfold.disclosure.fold import _tier, flatten_schema_fields, summarize_schema_for_llm
from toolfold.disclosure.inspector import inspect_schema
from toolfold.errors import UnknownField

KEYS = st.one_of(
    st.sampled_from(
        ["id", "name", "a", "b", "data", "error", "items", "a.b", "x[]", "it's", "*", "", "user_id", "createdAt"]
    ),
    st.text(max_size=6),
)
PLAIN = st.sampled_from(
    [
        {"type": "string"},
        {"type": ["integer", "null"]},
        {"const": 1},
        {"enum": ["a", None]},
        {},
        True,
        False,
        {"type": "object"},
    ]
)
REFERENCE = st.sampled_from(
    ["#", "#/$defs/one", "#/$defs/two", "#/$defs/none", "https://example.org/x", "#anchor"]
).map(lambda target: {"$ref": target})


def wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    properties = st.dictionaries(KEYS, inner, max_size=8).map(lambda value: {"type": "object", "properties": value})
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        properties,
        inner.map(lambda value: {"type": "array", "items": value}),
        inner.map(lambda value: {"additionalProperties": value}),
        inner.map(lambda value: {"patternProperties": {"^x": value}}),
        several.map(lambda value: {"anyOf": value}),
        several.map(lambda value: {"oneOf": [*value, {"type": "null"}]}),
        several.map(lambda value: {"allOf": value}),
        several.map(lambda value: {"prefixItems": value}),
        st.tuples(properties, several).map(lambda pair: {**pair[0], "anyOf": pair[1]}),
        st.tuples(properties, inner).map(lambda pair: {**pair[0], "additionalProperties": pair[1]}),
    )


BODIES = st.recursive(st.one_of(PLAIN, REFERENCE), wider, max_leaves=25)
SCHEMAS = st.builds(
    lambda body, one, two: {**(body if isinstance(body, dict) else {}), "$defs": {"one": one, "two": two}},
    BODIES,
    BODIES,
    BODIES,
)
CALM = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@pytest.mark.requirement("S-03", "S-04", "S-05")
@CALM
@given(SCHEMAS, st.integers(0, 5), st.integers(0, 40))
def test_a_summary_keeps_its_budget_and_marks_what_it_hides(schema: Any, depth: int, limit: int) -> None:
    lines, hidden = summarize_schema_for_llm(schema, max_depth=depth, max_fields=limit)
    check_listing(schema, lines, hidden, limit)


@pytest.mark.requirement("S-04")
@CALM
@given(
    st.dictionaries(
        KEYS.filter(lambda key: key not in {"data", "error"}), st.sampled_from([{"type": "string"}]), min_size=1
    )
)
def test_root_keys_are_all_listed_or_counted_and_tier_1_first(properties: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": properties}
    lines, _ = summarize_schema_for_llm(schema, max_fields=8)
    if len(properties) <= 8:
        assert len(lines) == len(properties)
        return
    last = mark_of(lines[-1])
    assert last is not None
    assert last.number + len(lines) - 1 == len(properties)
    important = sum(_tier(key) < 2 for key in properties)
    shown = sum(_tier(line.partition(": ")[0]) < 2 for line in lines[:-1])
    assert shown >= min(important, 7)


@pytest.mark.requirement("S-07")
@CALM
@given(SCHEMAS, st.integers(1, 5), st.integers(1, 40))
def test_an_inspection_is_bounded_and_truncated_exactly_when_something_is_missing(
    schema: Any, depth: int, limit: int
) -> None:
    answer = inspect_schema(schema, max_depth=depth, max_fields=limit)
    lines, children = answer["flattened_fields"], answer["children"]
    assert len(children) <= limit
    check_listing(schema, lines, hidden=any(mark_of(line) for line in lines), limit=limit)
    alternatives = inspect_schema(schema, max_depth=depth, max_fields=100).get("alternatives", [])
    assert answer.get("alternatives", []) == alternatives[:limit]
    missing = len(children) < answer["total_child_fields"] or any(mark_of(line) for line in lines)
    assert answer["truncated"] == (missing or len(alternatives) > limit)


@pytest.mark.requirement("S-07", "S-08")
@CALM
@given(SCHEMAS, st.text(max_size=30))
def test_any_text_as_a_path_answers_or_names_real_paths(schema: Any, path: str) -> None:
    try:
        inspect_schema(schema, path)
    except UnknownField as error:
        for hint in error.hints:
            assert inspect_schema(schema, hint)["field_path"] == hint


@pytest.mark.requirement("S-12")
@CALM
@given(SCHEMAS, st.integers(0, 5), st.integers(0, 40))
def test_the_flat_form_is_bounded(schema: Any, depth: int, limit: int) -> None:
    assert len(flatten_schema_fields(schema, max_depth=depth, max_fields=limit)) <= limit


def sound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Schemas without contradictions, for which a second, plain reader finds the same leaves."""
    keys = KEYS.filter(lambda key: key != "data")
    properties = st.dictionaries(keys, inner, max_size=6).map(lambda value: {"type": "object", "properties": value})
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        properties,
        inner.map(lambda value: {"type": "array", "items": value}),
        inner.map(lambda value: {**value, "description": "x"} if "$ref" not in value else value),
        several.map(lambda value: {"anyOf": value}),
        several.map(lambda value: {"prefixItems": value}),
        st.lists(properties, min_size=1, max_size=3).map(lambda value: {"allOf": without_clashes(value)}),
    )


def without_clashes(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Parts of an `allOf` that speak of different keys: of one key, two of them could say what cannot both be."""
    seen: set[str] = set()
    kept = []
    for part in parts:
        kept.append({**part, "properties": {k: v for k, v in part["properties"].items() if k not in seen}})
        seen |= part["properties"].keys()
    return kept


SOUND_LEAVES: st.SearchStrategy[Any] = st.sampled_from(
    [{"type": "string"}, {"type": ["integer", "null"]}, {"const": 1}, {}, {"type": "array"}, {"$ref": "#/$defs/one"}]
)
SOUND = st.recursive(SOUND_LEAVES, sound, max_leaves=12)


@pytest.mark.requirement("S-05")
@CALM
@given(SOUND, SOUND)
def test_where_nothing_is_hidden_every_leaf_is_listed(body: Any, one: Any) -> None:
    schema = {**body, "$defs": {"one": one}}
    lines, hidden = summarize_schema_for_llm(schema, max_depth=9, max_fields=300)
    if not hidden:
        assert leaves(schema, 9) <= {line.rpartition(": ")[0] for line in lines}
