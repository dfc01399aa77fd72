"""The state that a modern client carries between two rounds: held handlers go on with it, and nobody can misuse it."""

import asyncio
import base64
import json
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from msgspec import Raw
from serving_helpers import EchoApp, Port, modern, on_http, on_pipe, raw

from toolfold.types import Caller
from toolfold.wire.serving import Exchange, RpcError, ServeOptions
from toolfold.wire.serving.http_guard import HttpGuard
from toolfold.wire.serving.input_requests import StateSeal, request_digest
from toolfold.wire.serving.peers import Peers

ABLE: dict[str, Any] = {"elicitation": {}}
YES = {"action": "accept", "content": {}}


def call(key: Any = 1, **arguments: Any) -> dict[str, Any]:
    return modern("tools/call", {"name": "ask", "arguments": arguments}, key=key, able=ABLE)


def again(first: Any, answer: Any = YES, *, key: Any = 2, keys: list[str] | None = None, **arguments: Any) -> Any:
    """The same request with answers to what the first answer asks for."""
    repeated = call(key, **arguments)
    wanted = first["result"]["inputRequests"] if keys is None else keys
    repeated["params"] |= {
        "inputResponses": dict.fromkeys(wanted, answer),
        "requestState": first["result"]["requestState"],
    }
    return repeated


@pytest.mark.requirement("G-04")
def test_a_held_handler_goes_on_when_the_client_comes_back_with_answers() -> None:
    async def main() -> None:
        app = EchoApp()
        async with on_pipe(app) as pipe:
            first = await pipe.ask(call(times=2))
            assert first["result"]["resultType"] == "input_required"
            wanted = first["result"]["inputRequests"]
            assert len(wanted) == 2
            assert all(one["method"] == "elicitation/create" for one in wanted.values())
            done = await pipe.ask(again(first, key="b", times=2))
            assert done["id"] == "b"
            assert done["result"]["resultType"] == "complete"
            assert json.loads(done["result"]["content"][0]["text"]) == [YES, YES]
            assert app.log == ["answered"]

    asyncio.run(main())


def test_what_was_not_answered_is_asked_for_again_and_what_nobody_asked_is_ignored() -> None:
    async def main() -> None:
        async with on_pipe(EchoApp()) as pipe:
            first = await pipe.ask(call(times=2))
            one, other = first["result"]["inputRequests"]
            second = await pipe.ask(again(first, keys=[one, "unheard-of"], times=2))
            assert list(second["result"]["inputRequests"]) == [other]
            assert second["result"]["requestState"] != first["result"]["requestState"]
            done = await pipe.ask(again(second, times=2))
            assert done["result"]["resultType"] == "complete"

    asyncio.run(main())


def tampered(state: str) -> list[Any]:
    sealed = bytearray(base64.urlsafe_b64decode(state + "=" * (-len(state) % 4)))
    flipped = []
    for place in (0, 8, 20, 40, -1):  # the key's name, the nonce, the value, its tag
        sealed[place] ^= 1
        flipped.append(base64.urlsafe_b64encode(sealed).decode().rstrip("="))
        sealed[place] ^= 1
    return [*flipped, state + "x", state[:-4], state + "=", "", ".", "ü", 5, {}, ["a"], "a" * 100_000, "a" * 2_000_000]


def test_a_changed_or_invented_state_is_refused_and_the_true_one_still_works() -> None:
    async def main() -> None:
        app = EchoApp()
        async with on_pipe(app) as pipe:
            first = await pipe.ask(call())
            for state in tampered(first["result"]["requestState"]):
                wrong = again(first)
                wrong["params"]["requestState"] = state
                assert (await pipe.ask(wrong))["error"]["code"] == -32602, state
            assert app.log == []
            assert (await pipe.ask(again(first)))["result"]["resultType"] == "complete"

    asyncio.run(main())


def test_a_state_works_once() -> None:
    async def main() -> None:
        app = EchoApp()
        async with on_pipe(app) as pipe:
            first = await pipe.ask(call())
            assert (await pipe.ask(again(first)))["result"]["resultType"] == "complete"
            assert (await pipe.ask(again(first)))["error"]["code"] == -32602
            assert app.log == ["answered"]

    asyncio.run(main())


def test_a_state_belongs_to_the_arguments_it_was_given_for() -> None:
    async def main() -> None:
        async with on_pipe(EchoApp()) as pipe:
            first = await pipe.ask(call(amount=1))
            assert (await pipe.ask(again(first, amount=1000)))["error"]["code"] == -32602
            other = again(first, amount=1)
            other["params"]["name"] = "steps"
            assert (await pipe.ask(other))["error"]["code"] == -32602

    asyncio.run(main())


def test_a_state_ends_with_its_time() -> None:
    async def main() -> None:
        app = EchoApp()
        async with on_pipe(app, ServeOptions(held_s=0.05)) as pipe:
            first = await pipe.ask(call())
            await asyncio.sleep(0.1)  # the time itself is what is tested
            assert (await pipe.ask(again(first)))["error"]["code"] == -32602
            assert app.log == []

    asyncio.run(main())


@pytest.mark.parametrize("answers", [5, "text", None, {"input-1": 5}, ["a"]])
def test_answers_of_the_wrong_kind_are_refused_and_may_be_put_right(answers: Any) -> None:
    async def main() -> None:
        async with on_pipe(EchoApp()) as pipe:
            first = await pipe.ask(call())
            wrong = again(first)
            wrong["params"]["inputResponses"] = answers
            assert (await pipe.ask(wrong))["error"]["code"] == -32602
            assert (await pipe.ask(again(first)))["result"]["resultType"] == "complete"

    asyncio.run(main())


def by_key(headers: Mapping[str, str]) -> Caller:
    return Caller(name=headers.get("authorization", "nobody"))


def test_a_state_belongs_to_its_caller() -> None:
    async def main() -> None:
        app = EchoApp()
        async with on_http(app, guard=HttpGuard(identify=by_key)) as port:
            first = (await port.post(call(), Authorization="ann")).json()
            stolen = await port.post(again(first), Authorization="bob")
            assert stolen.json()["error"]["code"] == -32602
            assert app.log == []
            assert (await port.post(again(first), Authorization="ann")).json()["result"]["resultType"] == "complete"

    asyncio.run(main())


class RelayApp(EchoApp):
    """Passes on what a server below would say: a wish with a state of its own, and then what came back with it."""

    wish: ClassVar[dict[str, Any]] = {
        "resultType": "input_required",
        "inputRequests": {"name": {"method": "elicitation/create", "params": {"message": "?"}}},
        "requestState": "below",
    }

    async def handle(self, exchange: Exchange) -> Raw:
        assert exchange.inputs is not None
        given = json.loads(bytes(exchange.inputs))
        return raw({"content": [], "given": given} if given else self.wish)


def test_the_state_of_a_server_below_goes_out_sealed_and_comes_back_as_it_was() -> None:
    async def main() -> None:
        async with on_pipe(RelayApp()) as pipe:
            first = await pipe.ask(call(a=1))
            assert first["result"]["requestState"] != "below"
            assert list(first["result"]["inputRequests"]) == ["name"]
            given = (await pipe.ask(again(first, a=1)))["result"]["given"]
            assert given == {"requestState": "below", "inputResponses": {"name": YES}}
            assert (await pipe.ask(again(first, a=2)))["error"]["code"] == -32602
            bare = again(first, a=1)
            bare["params"]["requestState"] = "below"
            assert (await pipe.ask(bare))["error"]["code"] == -32602

    asyncio.run(main())


def test_a_server_below_cannot_ask_for_what_the_client_did_not_declare() -> None:
    async def main() -> None:
        async with on_http(RelayApp()) as port:
            answer = await refused_for(port, {"sampling": {}})
            assert answer["data"] == {"requiredCapabilities": {"elicitation": {}}}

    async def refused_for(port: Port, able: Any) -> Any:
        answer = await port.post(modern("tools/call", {"name": "x"}, able=able))
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == -32021
        return answer.json()["error"]

    asyncio.run(main())


def test_a_state_does_not_depend_on_how_the_request_is_written() -> None:
    one = request_digest("tools/call", Raw(b'{"name":"a","arguments":{"x":1,"y":[2]},"_meta":{"z":1}}'))
    other = request_digest("tools/call", Raw(b'{ "arguments": {"y":[2], "x":1}, "name":"a", "requestState":"s"}'))
    assert one == other != request_digest("tools/call", Raw(b'{"name":"a","arguments":{"x":1,"y":[3]}}'))


def test_a_state_of_another_process_is_refused() -> None:
    state = Raw(json.dumps(StateSeal(Peers(), 10).seal("held", "h", "me", "d")).encode())
    with pytest.raises(RpcError):
        StateSeal(Peers(), 10).open(state, "me", "d")
