"""The canonical form of JSON, and fingerprints over it."""

import json
import random
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from toolfold.catalogue.changes import _changed_fields
from toolfold.fingerprint import canonical, fingerprint

TOOL = {
    "name": "find",
    "description": "Finds.",
    "inputSchema": {"type": "object", "properties": {"limit": {"type": "integer", "default": 10, "maximum": 1e3}}},
    "annotations": {"readOnlyHint": True},
    "_meta": {"vendor": [1, 2.5, None, True]},
}

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def shuffled(value: Any, random: random.Random) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        random.shuffle(keys)
        return {key: shuffled(value[key], random) for key in keys}
    return [shuffled(one, random) for one in value] if isinstance(value, list) else value


@settings(deadline=None)
@given(values, st.randoms(use_true_random=False), st.sampled_from([None, 1, "\t"]), st.booleans())
def test_key_order_white_space_and_escapes_do_not_matter(
    value: Any, order: random.Random, indent: Any, ascii_only: bool
) -> None:
    plain = json.dumps(value).encode()
    other = json.dumps(shuffled(value, order), indent=indent, ensure_ascii=ascii_only).encode()
    assert canonical(plain) == canonical(other)
    assert fingerprint(plain) == fingerprint(Raw(other))


@settings(deadline=None)
@given(values, values)
def test_two_values_share_a_canonical_form_exactly_when_they_are_equal(one: Any, other: Any) -> None:
    texts = json.dumps(one).encode(), json.dumps(other).encode()
    assert (canonical(texts[0]) == canonical(texts[1])) is (exact(texts[0]) == exact(texts[1]))


def exact(text: bytes) -> Any:
    return tagged(json.loads(text, parse_float=Decimal, parse_int=Decimal))


def tagged(value: Any) -> Any:
    """The value with its kinds told apart, since Python holds `True == 1`."""
    if isinstance(value, dict):
        return {key: tagged(one) for key, one in value.items()}
    return [tagged(one) for one in value] if isinstance(value, list) else (type(value).__name__, value)


@settings(deadline=None)
@given(values)
def test_the_canonical_form_is_json_of_the_same_value_and_its_own_canonical_form(value: Any) -> None:
    text = canonical(json.dumps(value).encode())
    assert exact(text) == exact(json.dumps(value).encode())
    assert canonical(text) == text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "1.0"),
        ("100", "1e2"),
        ("-0", "0"),
        ("0.0", "0"),
        ("1.50", "15e-1"),
        ("-2E+3", "-2000"),
        ("1e400", "10e399"),
    ],
)
def test_a_number_counts_by_its_value(one: str, other: str) -> None:
    assert canonical(one.encode()) == canonical(other.encode())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0.1", "0.10000000000000000001"),
        ("9007199254740992", "9007199254740993"),
        ("123456789012345678901234567890", "123456789012345678901234567891"),
        ("1e400", "1e401"),
        ("1", "-1"),
        ("1", '"1"'),
        ("0", "false"),
        ("[]", "{}"),
        ('"é"', '"e\\u0301"'),
    ],
)
def test_numbers_and_texts_that_differ_stay_different(one: str, other: str) -> None:
    assert canonical(one.encode()) != canonical(other.encode())


@pytest.mark.parametrize("text", [b"{", b"", b"[1,]", b"9" * 5000, b'"\\ud800"', b"[" * 50_000 + b"]" * 50_000])
def test_what_has_no_canonical_form_still_has_a_fingerprint(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - which kind of ValueError is not promised
        canonical(text)
    assert len(fingerprint(text)) == 16
    assert fingerprint(text) != fingerprint(text + b" ")


@pytest.mark.requirement("D-13")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("description", "Finds!"),
        ("title", "Find"),
        ("annotations", {"readOnlyHint": False}),
        ("_meta", {"vendor": [1, 2.5, None, 1]}),
        ("inputSchema", {"type": "object"}),
        ("outputSchema", {"type": "object"}),
    ],
)
def test_a_change_anywhere_in_the_tool_object_changes_its_fingerprint(field: str, value: Any) -> None:
    before, after = json.dumps(TOOL).encode(), json.dumps({**TOOL, field: value}).encode()
    assert fingerprint(before) != fingerprint(after)
    assert _changed_fields(Raw(before), Raw(after)) == (field,)


def test_a_fingerprint_never_changes_over_releases() -> None:
    assert fingerprint(json.dumps(TOOL).encode()) == "65c8cdfbcf3dc49d"


def test_only_fields_that_differ_in_value_count_as_changed() -> None:
    after = {**TOOL, "_meta": {"vendor": [1, 2.50, None, True]}, "icons": None}
    del after["annotations"]
    spaced = Raw(json.dumps(after, indent=2).encode())
    assert _changed_fields(Raw(json.dumps(TOOL).encode()), spaced) == ("annotations", "icons")
    assert _changed_fields(Raw(b"[]"), spaced) == ()
