"""What a program reads of an outcome and of every answer: text, data, JSON that prints, types with the exact keys."""

import asyncio
import contextlib
import io
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
import pytest
from msgspec import Raw

from toolfold import Gateway, Outcome, Settings
from toolfold.testing.memory_upstream import MemoryUpstream


def outcome(**result: Any) -> Outcome:
    return Outcome(raw=Raw(msgspec.json.encode(result)))


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


@pytest.mark.parametrize(
    ("result", "shown", "data"),
    [
        ({"content": [text("two"), text("lines")]}, "two\nlines", None),
        ({"content": [text('{"a": 1}')]}, '{"a": 1}', {"a": 1}),
        ({"content": [text("[1, 2]")]}, "[1, 2]", [1, 2]),
        ({"content": [text("see data")], "structuredContent": {"a": 1}}, "see data", {"a": 1}),
        ({"structuredContent": {"a": 1}}, '{"a":1}', {"a": 1}),
        ({"structuredContent": {"result": []}, "content": []}, "[]", []),
        ({"structuredContent": {"result": 3.5}, "content": [text("3.5")]}, "3.5", 3.5),
        ({"structuredContent": {"result": True}, "content": [text("true")]}, "true", True),
        ({"structuredContent": {"result": "3.5"}, "content": [text("3.5")]}, "3.5", "3.5"),
        ({"structuredContent": {"result": 1}, "content": [text("true")]}, "true", {"result": 1}),
        ({"structuredContent": {"result": 1}, "content": [text('{"result": 1}')]}, '{"result": 1}', {"result": 1}),
        ({"content": [{"type": "image", "mimeType": "image/png", "data": "AAAA"}]}, "[image image/png]", None),
        ({"content": "no list", "isError": True}, "", None),
        ({"content": [{"type": "text"}, 7]}, "", None),
        ({}, "", None),
    ],
)
def test_17_a_result_is_read_as_text_and_as_data(result: dict[str, Any], shown: str, data: Any) -> None:
    came = outcome(**result)
    assert (came.text, came.data, came.json()) == (shown, data, result)


def test_17_a_result_prints_as_the_json_it_is() -> None:
    came = outcome(content=[text("äh")])
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        print(came.result)  # noqa: T201 - what a program does first
    assert said.getvalue() == '{"content":[{"type":"text","text":"äh"}]}\n'
    assert bytes(came.result) == bytes(came.raw)
    assert msgspec.json.decode(came.result) == came.json()


def find_orders(customer: str) -> list[dict[str, Any]]:
    """Finds the orders of a customer."""
    return [{"customer": customer, "total": 3.5}]


def test_17_every_answer_has_the_keys_of_its_type(tmp_path: Path) -> None:
    async def main() -> dict[str, Any]:
        shop, twin = MemoryUpstream("shop", [find_orders]), MemoryUpstream("store", [find_orders])
        async with Gateway(Settings(home=tmp_path), upstreams=[shop, twin]) as gateway:
            await gateway.build()
            return {
                "list": await gateway.list(),
                "listed": await gateway.list(query="find orders"),
                "search_tool_by_category": await gateway.search_tool_by_category("find orders"),
                "search_nodes": await gateway.search_nodes("find orders"),
                "expand_tool": await gateway.expand_tool("shop.find_orders"),
                "inspect_tool_output": await gateway.inspect_tool_output("shop.find_orders"),
                "descriptor": await gateway.descriptor("shop.find_orders"),
                "available_tools": await gateway.available_tools("find orders"),
            }

    answers = asyncio.run(main())
    for name, answer in answers.items():
        declared = (Gateway.list if name == "listed" else getattr(Gateway, name)).__annotations__["return"]
        assert is_typeddict(declared) or is_typeddict(get_args(declared)[0]), name
        check(answer, declared, name)


def check(value: Any, declared: Any, at: str) -> None:
    """That a value has exactly the keys that its TypedDict declares, all the way down."""
    if is_typeddict(declared):
        hints = get_type_hints(declared, include_extras=False)
        assert declared.__required_keys__ <= set(value) <= set(hints), at
        for key, inner in value.items():
            check(inner, hints[key], f"{at}.{key}")
    elif get_origin(declared) in {list, Sequence}:
        for item in value:
            check(item, get_args(declared)[0], f"{at}[]")
    elif get_origin(declared) is types.UnionType:
        kinds = [kind for kind in get_args(declared) if not is_typeddict(kind)]
        assert not kinds or isinstance(value, tuple(kinds)), at
    elif isinstance(declared, type) and declared is not Any:
        assert isinstance(value, declared), at


def test_17_the_types_of_the_answers_are_exported() -> None:
    import toolfold.answers

    assert set(toolfold.answers.__all__) <= set(toolfold.__all__)
