"""Observed shapes: what is kept, what is not, how they merge, and what they say about a declared schema."""

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolfold.disclosure import observed as limits
from toolfold.disclosure.fold import summarize_schema_for_llm
from toolfold.disclosure.observed import (
    Observed,
    _Contradiction,
    _find_contradictions,
    _is_due,
    _looks_like_data,
    _observe_result,
    _Shape,
    is_uninformative,
    merge,
    observe,
    observed_calls,
    result_schema,
    to_schema,
)

STRING = {"type": "string"}
JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.floats(allow_nan=False), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(["a", "b", "c", "2024-01-01", "17", "user_id"]), inner, max_size=4),
    ),
    max_leaves=20,
)


def result(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def text_result(text: str) -> bytes:
    return result(content=[{"type": "text", "text": text}])


def test_types_and_what_is_always_there_are_kept_and_no_value_is() -> None:
    one = observe({"id": 1, "name": "secret-a", "tags": ["secret-b"], "note": None})
    two = observe({"id": 2.5, "name": "secret-c", "owner": {"login": "secret-d"}})
    both = merge(one, two)
    assert to_schema(both) == {
        "type": "object",
        "properties": {
            "id": {"type": "number"},
            "name": STRING,
            "tags": {"type": "array", "items": STRING},
            "note": {"type": "null"},
            "owner": {"type": "object", "properties": {"login": STRING}, "required": ["login"]},
        },
        "required": ["id", "name"],
        "x-observed": {"calls": 2},
    }
    assert b"secret" not in msgspec.json.encode(both)


def test_what_is_kept_can_be_stored_and_read_back() -> None:
    shape = observe({"rows": [{"id": 1}, {"id": 2, "x": None}], "2024-01-01": {"n": 1}})
    assert msgspec.json.decode(msgspec.json.encode(shape), type=Observed) == shape


@settings(max_examples=150, deadline=None)
@given(JSON_VALUES, JSON_VALUES, JSON_VALUES)
def test_merging_gives_the_same_in_any_order_and_grouping(one: Any, two: Any, three: Any) -> None:
    a, b, c = observe(one), observe(two), observe(three)
    assert merge(merge(a, b), c) == merge(a, merge(b, c))
    assert merge(a, b) == merge(b, a)
    again, once = to_schema(merge(a, a)), to_schema(a)
    assert again.pop("x-observed") == {"calls": 2}
    assert once.pop("x-observed") == {"calls": 1}
    assert again == once


def test_too_many_keys_fold_into_a_map_in_any_order_and_grouping() -> None:
    parts = [observe({f"key_{chr(97 + n % 26)}_{part}_{'x' * (n // 26)}": n for n in range(90)}) for part in "pqr"]
    a, b, c = parts
    assert merge(merge(a, b), c) == merge(a, merge(b, c)) == merge(merge(c, a), b)
    schema = to_schema(merge(merge(a, b), c))
    assert schema["additionalProperties"] == {"type": "integer"}
    assert "properties" not in schema


@pytest.mark.parametrize(
    "key",
    [
        "17",
        "-3.5",
        "2024-01-31",
        "2024-01-31T10:00:00Z",
        "123e4567-e89b-12d3-a456-426614174000",
        "da39a3ee5e6b4b0d3255",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "cus_NffrFeUfNV2Hib",
        "PROJ-12",
        "ada@example.org",
        "https://example.org/x",
        "src/main.py",
        "",
        "k" * 300,
    ],
)
def test_keys_that_are_data_fold_into_a_map(key: str) -> None:
    assert _looks_like_data(key)
    assert to_schema(observe({"by": {key: {"n": 1}, "total": 2}}))["properties"]["by"] == {
        "type": "object",
        "properties": {"total": {"type": "integer"}},
        "required": ["total"],
        "additionalProperties": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    }


@pytest.mark.parametrize(
    "key",
    [
        "id",
        "line1",
        "sha256",
        "md5",
        "ipv4",
        "created_at",
        "x509",
        "node_id",
        "user_name",
        "$ref",
        "Größe",
        "24h_volume",
        "deadbeef",
    ],
)
def test_keys_that_are_names_stay_names(key: str) -> None:
    assert not _looks_like_data(key)


def test_a_shape_is_bounded_whatever_comes_in() -> None:
    deep: Any = 1
    for _ in range(500):
        deep = {"a": [deep]}
    wide = {
        f"a{chr(97 + n % 26)}{chr(97 + n // 26)}": {f"b{chr(97 + m % 26)}{chr(97 + m // 26)}": 1 for m in range(190)}
        for n in range(190)
    }
    long = [{"id": n, "at": "x"} for n in range(100_000)]
    together = merge(merge(observe(deep), observe(wide)), observe(long))
    assert nodes(together.shape) <= limits.MAX_NODES
    assert together.calls == 3
    assert summarize_schema_for_llm(to_schema(together))[1]


def nodes(shape: _Shape) -> int:
    parts = [*shape.fields.values(), *(part for part in (shape.items, shape.values) if part is not None)]
    return 1 + sum(map(nodes, parts))


def test_long_arrays_are_sampled_from_start_to_end() -> None:
    rows: list[Any] = [{"id": n} for n in range(10_000)]
    rows[-1] = {"id": "last", "extra": True}
    shape = observe(rows).shape
    assert shape.items is not None
    assert shape.items.count == limits.SAMPLED_ITEMS
    assert shape.items.fields["id"].types == {"integer": limits.SAMPLED_ITEMS - 1, "string": 1}


def test_structured_content_counts_and_so_does_text_that_is_json() -> None:
    value = {"rows": [{"id": n, "text": "x" * 50} for n in range(1_000)]}
    expected = to_schema(observe(value))
    for raw in (
        result(content=[{"type": "text", "text": "see there"}], structuredContent=value),
        text_result(json.dumps(value)),
        text_result("\n  " + json.dumps(value, indent=2)),
    ):
        found = _observe_result(raw)
        assert found is not None
        assert to_schema(found) == expected


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        result(content=[]),
        result(content="odd"),
        text_result("plain words"),
        text_result("[not json"),
        text_result("17"),
        text_result('{"a": 1} and more'),
        result(content=[{"type": "image", "data": "", "mimeType": "image/png"}]),
        result(content=[{"type": "text", "text": "{}"}, {"type": "text", "text": "{}"}]),
        result(structuredContent={"error": "no"}, isError=True),
        result(structuredContent=None),
        b'{"structuredContent": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
        b'{"structuredContent": {"a": "' + b"x" * (5 << 20) + b'"}}',
    ],
)
def test_anything_else_is_not_observed(raw: bytes) -> None:
    assert _observe_result(raw) is None


def test_real_results_are_observed_within_bounds(shared_data: Path) -> None:
    seen = 0
    for file in sorted((shared_data / "results").glob("*.json.gz")):
        record = json.loads(gzip.decompress(file.read_bytes()))
        found = _observe_result(json.dumps(record["response"]["result"]).encode())
        if found is not None:
            assert nodes(found.shape) <= limits.MAX_NODES
            assert summarize_schema_for_llm(to_schema(found))[0]
            seen += 1
    assert seen >= 3


@settings(max_examples=100, deadline=None)
@given(st.lists(JSON_VALUES, min_size=1, max_size=3))
def test_what_was_observed_never_contradicts_its_own_schema(values: list[Any]) -> None:
    together = observe(values[0])
    for value in values[1:]:
        together = merge(together, observe(value))
    for value in values:
        assert _find_contradictions(observe(value), to_schema(together)) == []


def test_results_that_contradict_a_declaration_are_reported() -> None:
    declared = {
        "type": "object",
        "properties": {
            "id": STRING,
            "count": {"type": "number"},
            "rows": {
                "type": "array",
                "items": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]},
            },
            "maybe": {"type": ["string", "null"]},
            "any": {},
        },
        "required": ["id", "count"],
        "additionalProperties": False,
    }
    good = {"id": "a", "count": 1, "rows": [{"ok": True}], "maybe": None, "any": [1]}
    assert _find_contradictions(observe(good), declared) == []
    bad = {"id": 7, "rows": [{"ok": True}, {"ok": None}, {}], "maybe": 1, "new.field": 1}
    assert _find_contradictions(merge(observe(bad), observe(good)), declared) == [
        _Contradiction("count", "required", "missing", 1),
        _Contradiction("['new.field']", "no such field", "present", 1),
        _Contradiction("id", "string", "integer", 1),
        _Contradiction("rows[].ok", "required", "missing", 1),
        _Contradiction("rows[].ok", "boolean", "null", 1),
        _Contradiction("maybe", "string?", "integer", 1),
    ]


@pytest.mark.parametrize(
    ("schema", "nothing"),
    [
        (None, True),
        ({}, True),
        ({"type": "object"}, True),
        ({"type": "object", "additionalProperties": True}, True),
        ({"type": "object", "properties": {"result": {}}, "x-fastmcp-wrap-result": True}, True),
        ({"type": "object", "properties": {"result": {"type": "array", "items": {"type": "object"}}}}, True),
        ({"type": "object", "properties": {"result": STRING}}, False),
        ({"type": "object", "properties": {"id": {}}}, False),
        ({"type": "object", "additionalProperties": STRING}, False),
        ({"type": "string"}, False),
    ],
)
def test_a_declaration_gives_way_only_where_it_says_nothing(schema: Any, nothing: bool) -> None:
    seen = observe({"id": 1})
    assert is_uninformative(schema) is nothing
    assert observed_calls(result_schema(schema, seen)) == (1 if nothing else None)
    assert result_schema(schema, None) == schema


def test_the_first_results_are_looked_at_and_later_ones_more_rarely() -> None:
    small = [calls for calls in range(1_000) if _is_due(calls, 1_000)]
    large = [calls for calls in range(1_000) if _is_due(calls, 100_000)]
    assert small == [*range(16), 16, 32, 64, 128, 256, 512]
    assert large == [0, 1, 2, 128, 256, 512]
    assert [calls for calls in range(1_025, 5_000) if _is_due(calls, 1_000)] == [2048, 3072, 4096]
