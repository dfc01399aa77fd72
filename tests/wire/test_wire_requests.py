"""Progress, cancellation, deadlines and elicitation, in both eras, against a real process."""

import asyncio
import json

import pytest
from misbehaving_stdio import misbehaving
from msgspec import Raw
from wire_helpers import FORMS, QUICK, opened, raw, text_of, until, value

from toolfold.errors import InputUnavailable, ProtocolViolation, RemoteError, ServerClosed, ServerTimeout
from toolfold.wire import Handlers, WireOptions, connect

ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


async def jane(method: str, params: Raw) -> Raw:
    assert method == "elicitation/create"
    assert value(params)["message"] == "Your name?"
    return raw({"action": "accept", "content": {"name": "Jane"}})


@ERAS
def test_progress_reaches_the_request_it_belongs_to(era: str) -> None:
    async def main() -> None:
        async with opened(misbehaving("--era", era)) as connection:
            first: list[Raw] = []
            second: list[Raw] = []
            await asyncio.gather(
                connection.call_tool("progress", raw({"steps": 3}), on_progress=first.append),
                connection.call_tool("progress", raw({"steps": 5}), on_progress=second.append),
            )
            assert [value(params)["progress"] for params in first] == [1, 2, 3]
            assert [value(params)["total"] for params in second] == [5] * 5

    asyncio.run(main())


@ERAS
def test_a_cancelled_call_is_cancelled_at_the_server(era: str) -> None:
    async def main() -> None:
        async with opened(misbehaving("--era", era)) as connection:
            call = asyncio.ensure_future(connection.call_tool("sleep", raw({"seconds": 60})))
            await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert len(json.loads(text_of(await connection.call_tool("cancelled", raw({}))))) == 1

    asyncio.run(main())


@ERAS
def test_a_call_over_its_deadline_is_cancelled_at_the_server(era: str) -> None:
    async def main() -> None:
        noise: list[str] = []
        async with opened(misbehaving("--era", era), handlers=Handlers(on_noise=noise.append)) as connection:
            with pytest.raises(ServerTimeout, match="tools/call"):
                await connection.call_tool("sleep", raw({"seconds": 60}), timeout_s=0.05)
            assert len(json.loads(text_of(await connection.call_tool("cancelled", raw({}))))) == 1
        assert not [text for text in noise if "nobody" in text]

    asyncio.run(main())


@ERAS
def test_a_server_that_asks_during_a_call_is_answered(era: str) -> None:
    async def main() -> str:
        async with opened(misbehaving("--era", era), FORMS) as connection:
            return text_of(await connection.call_tool("ask", raw({}), on_input=jane))

    assert json.loads(asyncio.run(main()).removeprefix("hello ")) == {"action": "accept", "content": {"name": "Jane"}}


@ERAS
def test_the_handlers_answer_where_the_call_has_nobody(era: str) -> None:
    async def main() -> str:
        async with opened(misbehaving("--era", era), FORMS, Handlers(on_request=jane)) as connection:
            return text_of(await connection.call_tool("ask", raw({})))

    assert "Jane" in asyncio.run(main())


def test_what_was_not_declared_is_not_answered_in_legacy() -> None:
    async def main() -> str:
        async with opened(misbehaving("--era", "legacy"), QUICK, Handlers(on_request=jane)) as connection:
            return text_of(await connection.call_tool("ask", raw({}), on_input=jane))

    assert asyncio.run(main()) == "hello null"


@pytest.mark.parametrize("options", [QUICK, FORMS], ids=["not declared", "nobody there"])
def test_input_that_nobody_can_give_fails_the_modern_call(options: WireOptions) -> None:
    async def main() -> None:
        async with opened(misbehaving("--era", "modern"), options) as connection:
            on_input = jane if options is QUICK else None
            with pytest.raises(InputUnavailable, match="elicitation/create"):
                await connection.call_tool("ask", raw({}), on_input=on_input)

    asyncio.run(main())


def test_a_modern_server_may_ask_several_times_but_not_for_ever() -> None:
    async def main() -> None:
        async with opened(misbehaving("--era", "modern"), FORMS) as connection:
            assert "Jane" in text_of(await connection.call_tool("ask", raw({"times": 5}), on_input=jane))
            with pytest.raises(ProtocolViolation, match="16 times"):
                await connection.call_tool("ask", raw({"times": 1000}), on_input=jane)

    asyncio.run(main())


def test_two_calls_with_different_people_are_never_mixed_up() -> None:
    """A legacy server on a pipe does not say for which call it asks, so nobody is asked."""

    async def bob(method: str, params: Raw) -> Raw:
        raise AssertionError("the wrong person was asked")

    async def main() -> None:
        async with opened(misbehaving("--era", "legacy"), FORMS) as connection:
            other = asyncio.ensure_future(connection.call_tool("sleep", raw({"seconds": 1}), on_input=bob))
            await asyncio.sleep(0)
            assert text_of(await connection.call_tool("ask", raw({}), on_input=jane)) == "hello null"
            assert text_of(await other) == "awake"

    asyncio.run(main())


def test_a_handler_that_fails_answers_with_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(method: str, params: Raw) -> Raw:
        raise KeyError("a bug")

    async def main() -> str:
        async with opened(misbehaving("--era", "legacy"), FORMS) as connection:
            return text_of(await connection.call_tool("ask", raw({}), on_input=broken))

    assert asyncio.run(main()) == "hello null"
    assert "answering a server's request failed" in caplog.text


@ERAS
def test_a_changed_list_of_tools_is_told(era: str) -> None:
    async def main() -> None:
        told: list[str] = []

        def listen(method: str, params: Raw) -> None:
            told.append(method)

        async with opened(misbehaving("--era", era), handlers=Handlers(on_notification=listen)) as connection:
            connection.watch_tools()
            if era == "modern":
                await until(lambda: "notifications/subscriptions/acknowledged" in told)
            await connection.call_tool("change", raw({}))
            assert "notifications/tools/list_changed" in told

    asyncio.run(main())


def test_a_listener_that_fails_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(method: str, params: Raw) -> None:
        raise KeyError("a bug")

    async def main() -> None:
        async with opened(misbehaving(), handlers=Handlers(on_notification=broken)) as connection:
            assert text_of(await connection.call_tool("change", raw({}))) == "told"
            assert text_of(await connection.call_tool("big", raw({"bytes": 1}))) == "x"

    asyncio.run(main())
    assert "a listener of a connection failed" in caplog.text


def test_a_caller_cannot_pretend_in_meta() -> None:
    """What a caller puts into `_meta` is passed on, but for what is true of this client only."""
    meta = {
        "traceparent": "00-abc",
        "progressToken": 99,
        "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
        "io.modelcontextprotocol/protocolVersion": "1.0",
    }

    async def main() -> None:
        async with opened(misbehaving("--era", "modern")) as connection:
            seen: list[bytes] = []
            start = connection._transport.start

            def spy(pending: object, message: bytes, head: object) -> None:
                seen.append(message)
                start(pending, message, head)  # type: ignore[arg-type]  # handed through as it came

            connection._transport.start = spy  # type: ignore[method-assign]  # only to look at what is sent
            await connection.call_tool("echo", raw({}), meta=raw(meta))
            await connection.request("tools/call", raw({"_meta": meta, "name": "echo", "arguments": {}}))
            for message in seen:
                sent = json.loads(message)["params"]["_meta"]
                assert sent["traceparent"] == "00-abc"
                assert "progressToken" not in sent
                assert sent["io.modelcontextprotocol/clientCapabilities"] == {}
                assert sent["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"

    asyncio.run(main())


def test_errors_keep_the_servers_code_and_data() -> None:
    async def main() -> None:
        async with opened(misbehaving()) as connection:
            with pytest.raises(RemoteError, match="it failed as asked") as caught:
                await connection.call_tool("fail", raw({}))
            assert (caught.value.rpc_code, caught.value.data) == (-32050, {"detail": 1})
            with pytest.raises(RemoteError) as unknown:
                await connection.request("no/such/method")
            assert unknown.value.rpc_code == -32601

    asyncio.run(main())


def test_one_task_opens_and_another_closes() -> None:
    async def main() -> None:
        connection = await asyncio.create_task(connect(misbehaving(), options=QUICK))
        results = await asyncio.gather(*(connection.call_tool("echo", raw({"n": n})) for n in range(50)))
        assert [value(result)["structuredContent"]["n"] for result in results] == list(range(50))
        waiting = asyncio.create_task(connection.call_tool("sleep", raw({"seconds": 60})))
        await asyncio.sleep(0)
        await asyncio.create_task(connection.aclose())
        with pytest.raises(ServerClosed, match="closed"):
            await waiting
        await connection.aclose()

    asyncio.run(main())
