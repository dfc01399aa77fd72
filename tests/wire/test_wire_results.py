"""The last members of a result are read without the rest, and never from anywhere but its top."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolfold.wire.results import trailing_members

plain = st.none() | st.booleans() | st.integers(-(2**31), 2**31) | st.sampled_from(["complete", "input_required", ""])
tricky = st.sampled_from(['"isError":true}', ',"isError":true', '\\"isError\\":true}', "{", "}", '","isError":true'])
values = st.recursive(
    plain | st.text(max_size=20) | tricky,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["isError", "a", "é"]), inner),
    max_leaves=8,
)
names = st.sampled_from(["isError", "resultType", "content", "_meta", "x y"])


@given(st.dictionaries(names, values, max_size=5), st.sampled_from([None, 1]), st.booleans())
def test_what_is_found_is_what_the_whole_says_at_its_top(
    value: dict[str, object], indent: int | None, raw: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=raw).encode()
    for name, written in trailing_members(text, least=0).items():
        assert json.loads(written) == value[name.decode()]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b'{"content":[],"isError":true,"resultType":"complete"}', {b"isError": b"true", b"resultType": b'"complete"'}),
        (b'{"structuredContent":{"isError":true}}', {}),
        (b'{"content":[{"text":"\\",\\"isError\\":true}"}]}', {}),
        (b"{}", {}),
        (b"[]", {}),
    ],
)
def test_members_at_the_end_are_found_and_those_further_in_are_not(text: bytes, found: dict[bytes, bytes]) -> None:
    assert trailing_members(text, least=0) == found
