"""A stored output as an argument of another call: the host puts the value in, checked like any other argument."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from storing_scene import TOOLS, Scene, large_spec, read, run, settings, text_result

from toolfold import Gateway
from toolfold.config import Outputs
from toolfold.errors import InvalidArguments, ToolfoldError, UnknownField, UnknownHandle
from toolfold.outputs.paths import at_path, near_paths, read_path
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
    assert read_path(path) == steps


def test_near_paths_can_be_used_as_they_are() -> None:
    for path in near_paths(ORDERS, "odd.key"):
        steps = read_path(path)
        assert steps is not None
        at_path(ORDERS, steps)
