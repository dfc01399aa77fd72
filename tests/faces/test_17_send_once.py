"""`outputs.send_once`, for every combination of content and structured content: whatever came gets through."""

import json
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from toolfold.faces.surface.results import sent_once
from toolfold.types import Outcome

NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=8) | st.sampled_from(["1", "null", "true", "[]", ""])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
STRUCTURED = st.one_of(
    VALUES, st.builds(lambda value: {"result": value}, VALUES), st.dictionaries(st.text(max_size=4), VALUES, max_size=2)
)
OTHER = st.sampled_from(
    [
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "x://1", "text": "1"}},
        {"type": "resource_link", "uri": "x://1", "name": "one", "text": "1"},
        {"type": "text"},
        {"type": "text", "text": 1},
    ]
)


@st.composite
def results(draw: st.DrawFn) -> dict[str, Any]:
    """A result whose text says what its data says, nearly so, or something else."""
    data = draw(STRUCTURED)
    near = [data, *(data.values() if isinstance(data, dict) else ())]
    text = draw(st.sampled_from(near) | VALUES)
    spelt = text if isinstance(text, str) and draw(st.booleans()) else json.dumps(text)
    texts = draw(st.lists(st.just({"type": "text", "text": spelt}), max_size=2))
    content = draw(st.permutations([*texts, *draw(st.lists(OTHER, max_size=1))]))
    result: dict[str, Any] = {"content": content, "structuredContent": data}
    if draw(st.booleans()):
        result["isError"] = True
    if draw(st.booleans()):
        result["_meta"] = {"x": 1}
    for key in draw(st.sets(st.sampled_from(["content", "structuredContent"]), max_size=1)):
        del result[key]
    return result


def text(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


@given(results())
@example({"content": [], "structuredContent": {"result": None}})
@example({"content": text("a") + text("b"), "structuredContent": {"result": None}})
@example({"content": text("true"), "structuredContent": {"result": 1}})
@example({"content": text("1"), "structuredContent": {"result": True}})
@example({"content": text("1.0"), "structuredContent": {"result": 1}})
@example({"content": text("null"), "structuredContent": {"result": None}})
@example({"content": [{"type": "resource_link", "text": "1"}], "structuredContent": {"result": 1}})
@settings(max_examples=600, deadline=None)
def test_17_nothing_is_lost_where_a_result_is_sent_once(result: dict[str, Any]) -> None:
    raw = Raw(msgspec.json.encode(result))
    once = json.loads(bytes(sent_once(raw)))
    if "structuredContent" not in once:
        before = result.get("structuredContent")
        assert {key: value for key, value in result.items() if key != "structuredContent"} == once
        if before is not None:
            (block,) = once["content"]
            inner = before.get("result") if isinstance(before, dict) and list(before) == ["result"] else before
            told = [block["text"]]
            try:
                told.append(json.loads(block["text"]))
            except ValueError:
                assert isinstance(inner, str)
            assert any(json.dumps(value) == json.dumps(said) for value in (before, inner) for said in told)
    else:
        assert once == result


def test_17_what_is_said_twice_is_sent_once() -> None:
    for words, data in (
        ('{"b": 1, "a": [true]}', {"a": [True], "b": 1}),
        ("[1, 2]", {"result": [1, 2]}),
        ("hello", {"result": "hello"}),
        ('"hello"', {"result": "hello"}),
        ("7", {"result": 7}),
    ):
        result = {"content": text(words), "structuredContent": data, "isError": True}
        assert json.loads(bytes(sent_once(Raw(msgspec.json.encode(result))))) == {
            "content": text(words),
            "isError": True,
        }


def test_17_a_list_is_a_list_however_it_was_sent() -> None:
    def data(result: dict[str, Any]) -> Any:
        return Outcome(raw=Raw(msgspec.json.encode(result))).data

    assert data({"content": text("[1,2]")}) == [1, 2]
    assert data({"content": text("[1,2]"), "structuredContent": {"result": [1, 2]}}) == [1, 2]
    assert data({"structuredContent": {"result": []}}) == []
    # What an object of the tool's own looks like stays one.
    assert data({"structuredContent": {"result": "ok"}}) == {"result": "ok"}
    assert data({"structuredContent": {"result": [1], "next": 2}}) == {"result": [1], "next": 2}
