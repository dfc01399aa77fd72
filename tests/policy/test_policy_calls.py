"""Policies on calls: what may be known of, what a person confirms, whose policy holds."""

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec import Raw

from toolfold import Gateway, Settings
from toolfold.config import CallerKey, Limits, MetadataRule, Policy
from toolfold.errors import ConfigError, ConfirmationNeeded, Declined, InvalidArguments, NotAuthorized, ToolNotFound
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import LOCAL, CallContext, Caller, ToolCall

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


FIND_ORDER: dict[str, Any] = {
    "name": "find_order",
    "description": "Finds an order.",
    "inputSchema": {"type": "object", "properties": {"order_id": {"type": "integer"}}, "required": ["order_id"]},
    "annotations": {"readOnlyHint": True},
}
DELETE_ORDER: dict[str, Any] = {
    "name": "delete_order",
    "description": "Deletes an order.",
    "inputSchema": {
        "type": "object",
        "properties": {"order_id": {"type": "integer"}, "api_token": {"type": "string"}},
        "required": ["order_id"],
    },
    "annotations": {"destructiveHint": True},
}
ALICE = Caller(name="alice", policy="readers")
CONFIRMING = Policy(name="default", confirm=("risk:destructive", "risk:unstated"))
CAN_ASK = Raw(b'{"elicitation":{}}')


def shop() -> MemoryUpstream:
    return MemoryUpstream("shop", [FIND_ORDER, DELETE_ORDER])


def answering(answer: Any) -> tuple[list[tuple[str, Any]], Any]:
    asked: list[tuple[str, Any]] = []

    async def on_input(method: str, params: Raw) -> Raw:
        asked.append((method, json.loads(bytes(params))))
        return Raw(json.dumps(answer).encode())

    return asked, on_input


YES = {"action": "accept", "content": {"confirm": True}}


@pytest.mark.requirement("D-07", "G-05")
def test_what_may_be_known_of_and_not_used_answers_not_authorized(tmp_path: Path) -> None:
    async def main() -> None:
        policy = Policy(name="readers", deny=("*.delete_*",), reveal=("shop.*",))
        server = shop()
        async with Gateway(Settings(home=tmp_path, policies=(policy,)), upstreams=[server]) as gateway:
            await gateway.build()
            for work in (
                lambda: gateway.expand_tool("shop.delete_order", caller=ALICE),
                lambda: gateway.inspect_tool_output("shop.delete_order", caller=ALICE),
                lambda: gateway.call_tool("shop.delete_order", {"order_id": 1}, caller=ALICE),
            ):
                with pytest.raises(NotAuthorized) as caught:
                    await work()
                assert caught.value.code == "NOT_AUTHORIZED"
                assert caught.value.next_action
            assert (await gateway.tree(caller=ALICE)).tools == 1
            assert (await gateway.tree()).tools == 2
            assert server.calls == []

    run(main())


@pytest.mark.requirement("G-05")
def test_a_request_that_was_built_by_hand_is_refused_all_the_same(tmp_path: Path) -> None:
    """Scripts and other programs may hold a tool from before: the stack itself looks."""

    async def main() -> None:
        server = shop()
        policy = Policy(name="readers", deny=("*.delete_*",))
        async with Gateway(Settings(home=tmp_path, policies=(policy,)), upstreams=[server]) as gateway:
            await gateway.build()
            tool = await gateway.catalogue.tool("shop.delete_order")
            call = ToolCall(tool=tool, arguments=Raw(b'{"order_id":1}'))
            with pytest.raises(ToolNotFound):
                await gateway.calls(call, CallContext(caller=ALICE))
            assert server.calls == []
            asked = {"tool_id": "shop.delete_order"}
            with pytest.raises(ToolNotFound):
                await gateway.call_tool("toolbox.inspect_tool_output", asked, caller=ALICE)
            assert not (await gateway.call_tool("toolbox.inspect_tool_output", asked)).is_error

    run(main())


@pytest.mark.requirement("G-05")
def test_a_call_that_needs_a_yes_is_made_after_it_and_not_before(tmp_path: Path) -> None:
    async def main() -> None:
        server = shop()
        async with Gateway(Settings(home=tmp_path, policies=(CONFIRMING,)), upstreams=[server]) as gateway:
            await gateway.build()
            asked, on_input = answering(YES)
            given = {"order_id": 7, "api_token": "very-secret-value"}
            await gateway.call_tool("shop.delete_order", given, on_input=on_input, capabilities=CAN_ASK)
            ((method, params),) = asked
            assert method == "elicitation/create"
            assert "shop.delete_order" in params["message"]
            assert '"order_id":7' in params["message"]
            assert "very-secret-value" not in params["message"]
            assert params["requestedSchema"]["properties"]["confirm"]["type"] == "boolean"
            assert len(server.calls) == 1
            await gateway.call_tool("shop.find_order", {"order_id": 7}, on_input=on_input, capabilities=CAN_ASK)
            assert (len(asked), len(server.calls)) == (1, 2)
            await gateway.call_tool("shop.delete_order", {"order_id": 7}, confirmed=True)
            assert (len(asked), len(server.calls)) == (1, 3)

    run(main())


@pytest.mark.requirement("G-05")
@pytest.mark.parametrize(
    "answer",
    [
        {"action": "decline"},
        {"action": "cancel"},
        {"action": "accept"},
        {"action": "accept", "content": {"confirm": False}},
        {"action": "accept", "content": {"confirm": "true"}},
        {"action": "decline", "content": {"confirm": True}},
        [],
        "yes",
    ],
)
def test_anything_but_a_yes_sends_nothing(tmp_path: Path, answer: Any) -> None:
    async def main() -> None:
        server = shop()
        async with Gateway(Settings(home=tmp_path, policies=(CONFIRMING,)), upstreams=[server]) as gateway:
            await gateway.build()
            _, on_input = answering(answer)
            with pytest.raises(Declined) as caught:
                await gateway.call_tool("shop.delete_order", {"order_id": 7}, on_input=on_input, capabilities=CAN_ASK)
            assert "ask the user" in caught.value.next_action
            assert server.calls == []

    run(main())


@pytest.mark.requirement("G-05")
@pytest.mark.parametrize("capabilities", [None, b"{}", b'{"sampling":{}}', b'{"elicitation":{"url":{}}}', b"nonsense"])
def test_a_client_that_cannot_ask_is_not_asked_and_told_what_to_do(tmp_path: Path, capabilities: bytes | None) -> None:
    async def main() -> None:
        server = shop()
        async with Gateway(Settings(home=tmp_path, policies=(CONFIRMING,)), upstreams=[server]) as gateway:
            await gateway.build()
            asked, on_input = answering(YES)
            declared = None if capabilities is None else Raw(capabilities)
            with pytest.raises(ConfirmationNeeded) as caught:
                await gateway.call_tool("shop.delete_order", {"order_id": 7}, on_input=on_input, capabilities=declared)
            assert caught.value.code == "CONFIRMATION_NEEDED"
            assert "`confirm`" in caught.value.next_action
            assert (asked, server.calls) == ([], [])

    run(main())


def test_arguments_are_checked_before_anybody_is_asked(tmp_path: Path) -> None:
    async def main() -> None:
        async with Gateway(Settings(home=tmp_path, policies=(CONFIRMING,)), upstreams=[shop()]) as gateway:
            await gateway.build()
            asked, on_input = answering(YES)
            with pytest.raises(InvalidArguments):
                await gateway.call_tool("shop.delete_order", {}, on_input=on_input, capabilities=CAN_ASK)
            assert asked == []

    run(main())


def test_the_time_a_person_takes_does_not_count_against_the_call(tmp_path: Path) -> None:
    async def main() -> None:
        limits = Limits(call_timeout_s=1.0)
        settings = Settings(home=tmp_path, policies=(CONFIRMING,), limits=limits)
        async with Gateway(settings, upstreams=[shop()]) as gateway:
            await gateway.build()

            async def slow(method: str, params: Raw) -> Raw:
                await asyncio.sleep(1.1)  # the time itself is what is tested
                return Raw(json.dumps(YES).encode())

            outcome = await gateway.call_tool("shop.delete_order", {"order_id": 7}, on_input=slow, capabilities=CAN_ASK)
            assert not outcome.is_error

    run(main())


@pytest.mark.requirement("G-05")
def test_groups_and_a_policy_may_be_given_to_whoever_runs_the_gateway(tmp_path: Path) -> None:
    async def main(callers: tuple[CallerKey, ...]) -> int:
        settings = Settings(home=tmp_path, callers=callers, rules=(MetadataRule("shop.delete_*", access=("admins",)),))
        async with Gateway(settings, upstreams=[shop()]) as gateway:
            await gateway.build()
            return (await gateway.tree(caller=LOCAL)).tools

    assert run(main(())) == 1
    assert run(main((CallerKey(name="local", groups=("admins",)),))) == 2


def test_a_policy_that_does_not_exist_lets_nobody_in(tmp_path: Path) -> None:
    async def main() -> None:
        async with Gateway(Settings(home=tmp_path), upstreams=[shop()]) as gateway:
            await gateway.build()
            with pytest.raises(ConfigError, match="no policy"):
                await gateway.list(caller=Caller(name="eve", policy="made-up"))

    run(main())
