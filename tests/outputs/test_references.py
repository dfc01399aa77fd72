"""A stored output as an argument of another call: the host puts the value in, checked like any other argument."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from output_scene import TOOLS, Scene, large_spec, read, run, settings, text_result

from toolfold import Gateway, extract
from toolfold.config import Outputs
from toolfold.errors import InvalidArguments, ToolfoldError, UnknownField, UnknownHandle
from toolfold.outputs.json_path import Step, format_path, parse_path, resolve_path, similar_paths
from toolfold.outputs.references import MAX_REFERENCES
from toolfold.types import Caller, Outcome

ANNA = Caller(name="anna", session="one")
ORDERS = {"orders": [{"id": number, "email": f"c{number}@shop.example"} for number in range(2000)], "odd.key": {"": 1}}

CHECKED = {
    "name": "checked",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}, "number": {"type": "integer"}, "deep": {"type": "array"}},
        "additionalProperties": False,
    },
}


class Referring(Scene):
    """With a tool whose arguments are checked, and the orders stored."""

    async def __aenter__(self) -> "Referring":
        self.upstream.set_tools([*TOOLS, CHECKED])
        await super().__aenter__()
        outcome = await self.give(text_result(json.dumps(ORDERS)), ANNA)
        assert outcome.stored is not None
        self.handle = outcome.stored.handle
        return self

    async def refer(self, arguments: dict[str, Any], caller: Caller = ANNA) -> Any:
        """What reached the tool."""
        await self.gateway.call_tool("s.checked", arguments, caller=caller)
        return json.loads(bytes(self.upstream.calls[-1].arguments))


@pytest.mark.requirement("O-16")
def test_a_reference_stands_for_the_text_or_for_the_value_at_its_path(tmp_path: Path) -> None:
    async def main() -> None:
        async with Referring(tmp_path) as scene:
            handle = scene.handle
            assert await scene.refer({"text": {"$output": handle}}) == {"text": json.dumps(ORDERS)}
            assert await scene.refer({"number": {"$output": handle, "path": "orders[3].id"}}) == {"number": 3}
            assert await scene.refer({"text": {"$output": handle, "path": "orders[-1].email"}}) == {
                "text": "c1999@shop.example"
            }
            deep = {
                "deep": [1, {"a": {"$output": handle, "path": 'orders[0]["id"]'}}, {"$output": handle, "path": "$"}]
            }
            assert await scene.refer(deep) == {"deep": [1, {"a": 0}, ORDERS]}
            every = await scene.refer({"deep": {"$output": handle, "path": "orders[].id"}})
            assert every == {"deep": list(range(2000))}

    run(main())


@pytest.mark.requirement("O-16")
def test_the_value_is_checked_against_the_schema_and_nothing_is_sent_if_it_does_not_fit(tmp_path: Path) -> None:
    async def main() -> None:
        async with Referring(tmp_path) as scene:
            sent = len(scene.upstream.calls)
            with pytest.raises(InvalidArguments, match="number"):
                await scene.refer({"number": {"$output": scene.handle, "path": "orders[3].email"}})
            assert len(scene.upstream.calls) == sent

    run(main())


@pytest.mark.requirement("O-16")
def test_a_handle_of_somebody_else_cannot_be_referred_to(tmp_path: Path) -> None:
    async def main() -> None:
        async with Referring(tmp_path) as scene:
            for caller in (Caller(), Caller(name="anna", session="two"), Caller(name="bob", session="one")):
                with pytest.raises(UnknownHandle):
                    await scene.refer({"text": {"$output": scene.handle}}, caller)

    run(main())


@pytest.mark.requirement("O-16")
@pytest.mark.parametrize(
    ("reference", "error", "hint"),
    [
        ({"path": "orders[3].emial"}, UnknownField, "orders[0].email"),
        ({"path": "order"}, UnknownField, "orders"),
        ({"path": "orders[99999]"}, UnknownField, "orders"),
        ({"path": "orders.id"}, UnknownField, "orders[0].id"),
        ({"path": "orders[x]"}, InvalidArguments, ""),
        ({"path": 7}, InvalidArguments, ""),
    ],
)
def test_a_wrong_path_is_answered_with_those_that_are_there(
    tmp_path: Path, reference: dict[str, Any], error: type[ToolfoldError], hint: str
) -> None:
    async def main() -> None:
        async with Referring(tmp_path) as scene:
            with pytest.raises(error) as caught:
                await scene.refer({"text": {"$output": scene.handle, **reference}})
            assert caught.value.next_action
            assert not hint or hint in caught.value.hints

    run(main())


def test_a_path_into_what_is_no_json_and_a_handle_that_is_none_are_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with Referring(tmp_path) as scene:
            plain = await scene.give(text_result("word " * 5000), ANNA)
            assert plain.stored is not None
            with pytest.raises(InvalidArguments, match="no JSON"):
                await scene.refer({"text": {"$output": plain.stored.handle, "path": "a"}})
            for handle in ("nothing", "../x", 7, None, ["a"]):
                with pytest.raises((UnknownHandle, InvalidArguments)) as caught:
                    await scene.refer({"text": {"$output": handle}})
                assert caught.value.next_action

    run(main())


@pytest.mark.requirement("O-16")
def test_references_are_bounded_in_size_together(tmp_path: Path) -> None:
    async def main() -> None:
        given = settings(tmp_path)
        size = len(json.dumps(ORDERS))
        outputs = Outputs(directory=str(tmp_path / "base"), reference_max_bytes=size + 10)
        async with Referring(tmp_path, msgspec.structs.replace(given, outputs=outputs)) as scene:
            reference = {"$output": scene.handle}
            assert await scene.refer({"deep": [reference]})
            with pytest.raises(InvalidArguments, match="are left in this call") as caught:
                await scene.refer({"deep": [reference, reference]})
            assert "reference_max_bytes" in caught.value.next_action

    run(main())


def test_what_only_looks_like_a_reference_is_left_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with Referring(tmp_path) as scene:
            for value in ({"$output": "x", "more": 1}, "$output", {"a": "$output"}):
                assert await scene.refer({"deep": [value]}) == {"deep": [value]}

    run(main())


@pytest.mark.requirement("O-16")
def test_a_large_result_moves_between_real_servers_without_passing_through_the_model(tmp_path: Path) -> None:
    async def main() -> None:
        given = msgspec.structs.replace(settings(tmp_path), servers=(large_spec(),))
        async with Gateway(given) as gateway:
            await gateway.build()
            large: Outcome = await gateway.call_tool("large.large", {"megabytes": 6})
            assert large.stored is not None
            said = await gateway.call_tool("large.length", {"text": {"$output": large.stored.handle}})
            found = json.loads(read(said)["content"][0]["text"])
            assert found["kind"] == "str"
            assert found["length"] > 4_000_000

    run(main())


@pytest.mark.requirement("O-16")
def test_many_references_to_one_output_read_it_once_and_are_bounded_in_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with Referring(tmp_path) as scene:
            one = {"$output": scene.handle, "path": "orders[3].id"}
            reads: list[str] = []
            own = Path.read_bytes

            def read_bytes(path: Path) -> bytes:
                reads.append(path.name)
                return own(path)

            monkeypatch.setattr(Path, "read_bytes", read_bytes)
            assert await scene.refer({"deep": [one] * MAX_REFERENCES}) == {"deep": [3] * MAX_REFERENCES}
            assert reads == [scene.handle]
            with pytest.raises(InvalidArguments, match=str(MAX_REFERENCES)) as caught:
                await scene.refer({"deep": [one] * (MAX_REFERENCES + 1)})
            assert caught.value.next_action

    run(main())


@pytest.mark.requirement("O-16")
def test_each_reference_is_told_with_a_path_or_without(tmp_path: Path) -> None:
    async def main() -> None:
        async with Referring(tmp_path) as scene:
            whole, part = {"$output": scene.handle}, {"$output": scene.handle, "path": "orders[3].id"}
            await scene.refer({"deep": [whole, part]})
            told = [event.data for event in scene.told if event.name == "output.referenced"]
            assert [(data["handle"], data["path"], data["bytes"]) for data in told] == [
                (scene.handle, None, len(json.dumps(ORDERS))),
                (scene.handle, "orders[3].id", 1),
            ]

    run(main())


ODD = {
    "orders": [{"id": 1, "e-mail": "a@x"}, {"id": 2, "e-mail": "b@x"}],
    "odd key": {'q"x': 1, "it's": 2, "": 3, "a.b": 4, "[0]": 5, "\\": 6},
    "1st": {"x": 7},
    "$": 8,
    "$ref": 9,
    "*": 10,
    "0": 11,
    "ünï": {"漢": 12},
}


@pytest.mark.requirement("O-16")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("orders[*].id", [1, 2]),
        ("orders[].id", [1, 2]),
        ("orders.*.id", [1, 2]),
        ("orders[-1].id", 2),
        ("orders.0.id", 1),
        ("orders.1.e-mail", "b@x"),
        ('[\'odd key\']["q\\"x"]', 1),
        ("['odd key']['it\\'s']", 2),
        ("['odd key']['']", 3),
        ("1st.x", 7),
        ("$ref", 9),
        ("$.$ref", 9),
        ("['*']", 10),
        ("$[0]", 11),
        ("ünï.漢", 12),
    ],
)
def test_every_form_of_a_path_means_the_same_to_tool_output_and_to_a_reference(
    tmp_path: Path, path: str, value: Any
) -> None:
    steps = parse_path(path)
    assert steps is not None
    assert resolve_path(ODD, steps) == value
    document = tmp_path / "odd.json"
    document.write_text(json.dumps(ODD, ensure_ascii=False))
    text = extract(document, path)
    for one in value if isinstance(value, list) else [value]:
        assert f"]\n{json.dumps(one)}" in text


def leaves(value: Any, at: tuple[Step, ...] = ()) -> Iterator[tuple[tuple[Step, ...], Any]]:
    if isinstance(value, dict | list):
        for step, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*at, step))
    else:
        yield at, value


@pytest.mark.requirement("O-16")
def test_whatever_path_tool_output_prints_works_in_a_reference(tmp_path: Path) -> None:
    document = tmp_path / "odd.json"
    document.write_text(json.dumps(ODD))
    for steps, value in leaves(ODD):
        printed = re.search(
            r"^(\S.*) \[line \d+, bytes \d+-\d+\]$", extract(document, format_path(steps)), re.MULTILINE
        )
        assert printed, steps
        read_back = parse_path(printed[1])
        assert read_back == list(steps)
        assert resolve_path(ODD, read_back) == value


@given(st.lists(st.text(max_size=12) | st.integers(-99, 99) | st.none(), max_size=6))
def test_a_written_path_is_read_back_as_it_was(steps: list[Step]) -> None:
    assert parse_path(format_path(steps)) == steps


def test_words_that_only_look_like_a_path_are_searched_for(tmp_path: Path) -> None:
    document = tmp_path / "files.json"
    document.write_text(json.dumps([{"file": "src/main.py", "host": "10.0.0.1"}] * 3))
    for asked in ("src/main.py", "10.0.0.1"):
        assert "There is nothing at" not in extract(document, asked)


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("a.b[0]", ["a", "b", 0]),
        ("$", []),
        ("", []),
        ("$.a", ["a"]),
        ("[0][1]", [0, 1]),
        ("a[].b", ["a", None, "b"]),
        ('["a.b"]["\\"q"]', ["a.b", '"q']),
        ("a..b", None),
        ("a[", None),
        ("a]", None),
        ("a[1.5]", None),
    ],
)
def test_the_grammar_of_paths(path: str, steps: list[Any] | None) -> None:
    assert parse_path(path) == steps


def test_near_paths_can_be_used_as_they_are() -> None:
    for path in similar_paths(ORDERS, "odd.key"):
        steps = parse_path(path)
        assert steps is not None
        resolve_path(ORDERS, steps)
