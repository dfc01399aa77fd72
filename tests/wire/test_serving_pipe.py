"""Serving on a pipe: what each message of either era gets back."""

import asyncio
import json
from typing import Any

import pytest
from serving_helpers import META, EchoApp, hello, legacy, modern, on_pipe

from toolfold.wire.serving import ServeOptions, stdio
from toolfold.wire.serving.notifications import RESOURCE_UPDATED
from toolfold.wire.types import TOOLS_CHANGED

ABLE: dict[str, Any] = {"elicitation": {}}


@pytest.mark.requirement("G-02")
def test_one_pipe_serves_both_eras_at_once() -> None:
    async def main() -> None:
        async with on_pipe(EchoApp()) as pipe:
            discovered = (await pipe.ask(modern("server/discover", key="d")))["result"]
            assert discovered["resultType"] == "complete"
            assert "2026-07-28" in discovered["supportedVersions"]
            assert "2025-11-25" in discovered["supportedVersions"]
            assert discovered["ttlMs"] >= 0
            assert discovered["cacheScope"] in {"public", "private"}
            assert discovered["_meta"][META + "serverInfo"]["name"] == "echo"
            opened = (await pipe.ask(hello("2025-06-18")))["result"]
            assert opened["protocolVersion"] == "2025-06-18"
            assert opened["instructions"] == "Echo."
            assert (await pipe.ask(legacy("ping", key=7))) == {"jsonrpc": "2.0", "id": 7, "result": {}}
            assert (await pipe.ask(modern("echo", {"a": 1})))["result"]["given"]["a"] == 1
            assert "resultType" not in (await pipe.ask(legacy("echo", {"a": 1})))["result"]

    asyncio.run(main())


@pytest.mark.parametrize("version", ["2025-03-26", "2025-11-25"])
async def test_15_17_a_client_need_not_wait_for_the_answer_to_its_handshake(version: str) -> None:
    async with on_pipe(EchoApp()) as pipe:
        done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        call = legacy("tools/call", {"name": "steps"}, key=2)
        pipe.send(hello(version, key=1), done, call, legacy("echo", key=3))
        if version == "2025-03-26":
            pipe.send([legacy("ping", key=4)])
        opened = await pipe.read()
        assert (opened["id"], opened["result"]["protocolVersion"]) == (1, version)
        answers = {answer["id"]: answer for answer in (await pipe.read(), await pipe.read())}
        assert "content" in answers[2]["result"]
        assert "given" in answers[3]["result"]
        if version == "2025-03-26":
            assert await pipe.read() == [{"jsonrpc": "2.0", "id": 4, "result": {}}]


async def test_15_17_after_a_handshake_that_fails_the_next_one_is_answered() -> None:
    async with on_pipe(EchoApp()) as pipe:
        pipe.send(legacy("initialize", key=1), hello(key=2), legacy("echo", key=3))
        answers = [await pipe.read() for _ in range(3)]
        assert [answer["id"] for answer in answers] == [1, 2, 3]
        assert ["error" in answer for answer in answers] == [True, False, False]


@pytest.mark.parametrize("asked", ["2026-07-28", "2024-01-01", "nonsense"])
def test_a_handshake_for_an_unknown_version_gets_the_newest_of_its_era(asked: str) -> None:
    async def main() -> None:
        async with on_pipe(EchoApp()) as pipe:
            assert (await pipe.ask(hello(asked)))["result"]["protocolVersion"] == "2025-11-25"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("line", "code", "key"),
    [
        (b"{nonsense", -32700, None),
        (b'"a string"', -32700, None),
        (b'{"jsonrpc":"2.0","id":null,"method":"echo"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"echo"}', -32600, 1.5),
        (b'{"jsonrpc":"2.0","id":1,"method":"echo"}', -32602, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"echo","params":[1]}', -32602, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":5}}', -32602, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"echo","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}", -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"echo","params":{"a":"' + b"x" * 70_000 + b'"}}', -32600, None),
    ],
)
def test_what_is_no_proper_request_gets_an_error_and_the_pipe_lives_on(line: bytes, code: int, key: Any) -> None:
    async def main() -> None:
        limit = ServeOptions(max_body_bytes=1 << 20 if b"[[" in line else 1 << 16)
        async with on_pipe(EchoApp(), limit) as pipe:
            pipe.write(line)
            answer = await pipe.read()
            assert (answer["id"], answer["error"]["code"]) == (key, code), answer
            assert (await pipe.ask(modern("echo", key=2)))["id"] == 2

    asyncio.run(main())


def test_modern_requests_say_their_version_and_capabilities() -> None:
    async def main() -> None:
        async with on_pipe(EchoApp()) as pipe:
            later = modern("echo", {"_meta": {META + "protocolVersion": "2099-01-01"}})
            refused = (await pipe.ask(later))["error"]
            assert refused["code"] == -32022
            assert refused["data"]["requested"] == "2099-01-01"
            assert "2026-07-28" in refused["data"]["supported"]
            unable = modern("echo")
            del unable["params"]["_meta"][META + "clientCapabilities"]
            assert (await pipe.ask(unable))["error"]["code"] == -32602

    asyncio.run(main())


@pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "unheard/of"])
def test_methods_that_the_modern_era_does_not_have_are_unknown_in_it(method: str) -> None:
    async def main() -> None:
        async with on_pipe(EchoApp()) as pipe:
            assert (await pipe.ask(modern(method)))["error"]["code"] == -32601

    asyncio.run(main())


def test_errors_of_the_application_are_told_and_its_bugs_are_not() -> None:
    async def main() -> None:
        async with on_pipe(EchoApp()) as pipe:
            unkind = (await pipe.ask(modern("unkind")))["error"]
            assert unkind["code"] == -32603
            assert unkind["data"]["next_action"] == "ask for another"
            broken = (await pipe.ask(modern("broken")))["error"]
            assert broken["code"] == -32603
            assert "a bug" not in json.dumps(broken)

    asyncio.run(main())


@pytest.mark.requirement("G-04")
def test_progress_comes_under_the_clients_own_token_and_only_when_it_gave_one() -> None:
    async def main() -> None:
        async with on_pipe(EchoApp()) as pipe:
            pipe.send(modern("tools/call", {"name": "steps", "_meta": {"progressToken": "mine"}}))
            told = [await pipe.read() for _ in range(3)]
            assert [one["params"] for one in told] == [{"progressToken": "mine", "progress": step} for step in range(3)]
            assert (await pipe.read())["id"] == 1
            assert "result" in await pipe.ask(modern("tools/call", {"name": "steps"}))

    asyncio.run(main())


@pytest.mark.requirement("G-04")
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_cancelled_request_ends_without_an_answer_and_others_go_on(era: str) -> None:
    async def main() -> None:
        app = EchoApp()
        async with on_pipe(app) as pipe:
            await pipe.ask(hello())
            make = legacy if era == "legacy" else modern
            pipe.send(make("tools/call", {"name": "wait"}, key="w"))
            await app.started.wait()
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "w"}}
            pipe.send(cancel, make("echo", key="next"))
            assert (await pipe.read())["id"] == "next"
            assert app.log.count("cancelled") == 1

    asyncio.run(main())


def test_what_is_open_when_the_client_leaves_is_cancelled() -> None:
    async def main() -> None:
        app = EchoApp()
        async with on_pipe(app) as pipe:
            pipe.send(modern("tools/call", {"name": "wait"}))
            await app.started.wait()
        assert app.log == ["cancelled"]

    asyncio.run(main())


def test_nobody_is_waited_for_who_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "_SETTLE_S", 600.0)

    async def main() -> None:
        app = EchoApp()
        async with on_pipe(app) as pipe:
            pipe.send(modern("tools/call", {"name": "wait"}))
            await app.started.wait()
            pipe.hang_up()
        assert app.log == ["cancelled"]

    asyncio.run(main())


def test_a_request_that_is_sent_before_the_input_ends_is_still_answered() -> None:
    async def main() -> None:
        async with on_pipe(EchoApp()) as pipe:
            pipe.send(modern("echo", key="last"))
        assert (await pipe.read())["id"] == "last"

    asyncio.run(main())


@pytest.mark.requirement("G-04")
def test_a_legacy_client_is_asked_on_the_way() -> None:
    async def main() -> None:
        async with on_pipe(EchoApp()) as pipe:
            await pipe.ask(hello(able=ABLE))
            asked = await pipe.ask(legacy("tools/call", {"name": "ask"}, key="c"))
            assert asked["method"] == "elicitation/create"
            assert asked["params"]["message"] == "Who?"
            answer = await pipe.ask({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "decline"}})
            assert answer["id"] == "c"
            assert "decline" in answer["result"]["content"][0]["text"]
            asked = await pipe.ask(legacy("tools/call", {"name": "ask"}, key="e"))
            answer = await pipe.ask({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": "no"}})
            assert answer["error"]["message"] == "no"

    asyncio.run(main())


@pytest.mark.requirement("G-04")
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_nobody_is_asked_for_what_it_did_not_declare(era: str) -> None:
    async def main() -> None:
        app = EchoApp()
        async with on_pipe(app) as pipe:
            await pipe.ask(hello(able={"sampling": {}}))
            call = {"name": "ask"}
            request = legacy("tools/call", call) if era == "legacy" else modern("tools/call", call, able={"roots": {}})
            answer = await pipe.ask(request)
            assert "elicitation" in answer["error"]["message"]
            assert app.log == []

    asyncio.run(main())


@pytest.mark.requirement("G-04")
def test_a_legacy_client_is_told_of_lists_and_of_the_resources_it_watches() -> None:
    async def main() -> None:
        app = EchoApp()
        async with on_pipe(app) as pipe:
            await pipe.ask(hello())
            assert (await pipe.ask(legacy("resources/subscribe", {"uri": "a:1"})))["result"] == {}
            app.hub.publish(TOOLS_CHANGED)
            app.hub.publish(RESOURCE_UPDATED, b'{"uri":"b:2"}', uri="b:2")
            app.hub.publish(RESOURCE_UPDATED, b'{"uri":"a:1"}', uri="a:1")
            assert (await pipe.read())["method"] == TOOLS_CHANGED
            assert (await pipe.read())["params"] == {"uri": "a:1"}
            await pipe.ask(legacy("resources/unsubscribe", {"uri": "a:1"}))
            assert app.watched == []
            await pipe.ask(legacy("resources/subscribe", {"uri": "c:3"}))
            assert (await pipe.ask(legacy("logging/setLevel", {"level": "error"})))["result"] == {}
            app.hub.log("info", b'{"level":"info","data":1}')
            app.hub.log("error", b'{"level":"error","data":2}')
            assert (await pipe.read())["params"]["data"] == 2
        assert app.watched == []
        assert len(app.hub) == 0

    asyncio.run(main())


@pytest.mark.requirement("G-04")
def test_a_modern_subscription_is_acknowledged_first_and_marks_each_notice() -> None:
    async def main() -> None:
        app = EchoApp()
        async with on_pipe(app) as pipe:
            wanted = {"toolsListChanged": True, "promptsListChanged": True, "resourceSubscriptions": ["a:1"]}
            acknowledged = await pipe.ask(modern("subscriptions/listen", {"notifications": wanted}, key="s"))
            assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
            assert acknowledged["params"] == {
                "_meta": {META + "subscriptionId": "s"},
                "notifications": {"toolsListChanged": True, "resourceSubscriptions": ["a:1"]},
            }
            app.hub.publish("notifications/prompts/list_changed")
            app.hub.publish(TOOLS_CHANGED)
            told = await pipe.read()
            assert told["method"] == TOOLS_CHANGED
            assert told["params"]["_meta"] == {META + "subscriptionId": "s"}
            pipe.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "s"}})
            await pipe.ask(modern("echo"))
            assert app.watched == []
            assert len(app.hub) == 0
            await pipe.ask(modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, key="t"))
        ended = await pipe.read()
        assert ended["id"] == "t"
        assert ended["result"]["_meta"] == {META + "subscriptionId": "t"}

    asyncio.run(main())


@pytest.mark.parametrize(("version", "served"), [("2025-03-26", True), ("2025-06-18", False)])
def test_several_messages_in_one_are_served_in_the_one_version_that_knows_them(version: str, served: bool) -> None:
    async def main() -> None:
        async with on_pipe(EchoApp()) as pipe:
            await pipe.ask(hello(version))
            pipe.send([legacy("echo", key=1), {"jsonrpc": "2.0", "method": "notifications/x"}, legacy("nope", key=2)])
            answer = await pipe.read()
            if served:
                assert {one["id"]: "result" in one for one in answer} == {1: True, 2: False}
            else:
                assert answer["error"]["code"] == -32700

    asyncio.run(main())
