"""A request that ends while its question is with a modern client: the client learns how it ended when it returns."""

import asyncio
import gc
from typing import Any

import pytest
from msgspec import Raw
from serving_helpers import EchoApp, modern, on_http, on_pipe, raw

from toolfold.errors import ServerTimeout
from toolfold.wire.serving import Exchange, ServeOptions

YES = {"action": "accept", "content": {}}
FORM = raw({"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}})


class HastyApp(EchoApp):
    """Asks, and gives up before the answer is there once it is told to. `ended`: it is done."""

    def __init__(self) -> None:
        super().__init__()
        self.give_up = asyncio.Event()
        self.ended = asyncio.Event()

    async def _call(self, exchange: Exchange) -> Raw:
        asking = asyncio.ensure_future(exchange.ask("elicitation/create", FORM))
        waiting = asyncio.ensure_future(self.give_up.wait())
        try:
            await asyncio.wait({asking, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            raise ServerTimeout("it took too long")
        finally:
            for task in (asking, waiting):
                task.cancel()
            self.ended.set()


def call(key: Any = 1, **more: Any) -> dict[str, Any]:
    return modern("tools/call", {"name": "hasty", **more}, key=key, able={"elicitation": {}})


def again(first: Any, key: Any = 2) -> dict[str, Any]:
    state = first["result"]["requestState"]
    return call(key, inputResponses=dict.fromkeys(first["result"]["inputRequests"], YES), requestState=state)


async def ended(app: HastyApp) -> None:
    app.give_up.set()
    async with asyncio.timeout(10):
        await app.ended.wait()


@pytest.mark.requirement("G-04")
def test_a_client_that_comes_back_too_late_hears_how_the_request_ended() -> None:
    async def main() -> None:
        app = HastyApp()
        async with on_pipe(app) as pipe:
            first = await pipe.ask(call())
            await ended(app)
            late = await pipe.ask(again(first, "late"))
            assert (late["id"], late["error"]["message"]) == ("late", "it took too long")
            once_more = await pipe.ask(again(first))
            assert "effect" in once_more["error"]["message"]

    asyncio.run(main())


def test_it_hears_so_over_http_too_and_the_ending_waits_for_it_as_long_as_the_question_did() -> None:
    async def main() -> None:
        app = HastyApp()
        async with on_http(app) as port:
            first = (await port.post(call())).json()
            await ended(app)
            assert (await port.post(again(first))).json()["error"]["message"] == "it took too long"

    asyncio.run(main())


def test_a_request_that_was_cancelled_while_its_client_was_away_is_answered_all_the_same() -> None:
    async def main() -> None:
        app = HastyApp()
        async with on_pipe(app) as pipe:
            first = await pipe.ask(call())
            pipe.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
            async with asyncio.timeout(10):
                await app.ended.wait()
            assert "cancelled" in (await pipe.ask(again(first)))["error"]["message"]

    asyncio.run(main())


def test_an_ending_that_nobody_fetches_is_forgotten_and_no_room_stays_taken() -> None:
    async def main() -> None:
        app = HastyApp()
        async with on_pipe(app, ServeOptions(held_s=0.05, max_held=1)) as pipe:
            app.give_up.set()
            first = await pipe.ask(call())
            async with asyncio.timeout(10):
                while "error" in (second := await pipe.ask(call())):
                    assert second["error"]["message"] == "too many requests wait for input"
            assert "effect" in (await pipe.ask(again(first)))["error"]["message"]

    asyncio.run(main())


def test_nothing_is_kept_of_a_request_that_came_back_under_another_id() -> None:
    async def main() -> None:
        app = EchoApp()
        async with on_pipe(app) as pipe:
            for number in range(5):
                asked = modern("tools/call", {"name": "ask"}, key=f"a{number}", able={"elicitation": {}})
                first = (await pipe.ask(asked))["result"]
                members = {"requestState": first["requestState"], "inputResponses": {"input-1": YES}}
                back = modern("tools/call", {"name": "ask", **members}, key=f"b{number}", able={"elicitation": {}})
                assert "result" in await pipe.ask(back)
            await pipe.ask(modern("echo"))
            gc.collect()
            kept = [one for one in gc.get_objects() if type(one) is Exchange and one.method == "tools/call"]
            assert kept == []

    asyncio.run(main())
