"""Streamable HTTP, as a server: headers, statuses, streams, sessions, and what is kept out."""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from typing import Any

import pytest
from serving_helpers import META, EchoApp, Port, events, hello, legacy, modern, on_http

from toolfold.errors import NotAuthorized
from toolfold.types import Caller
from toolfold.wire.headers import encode_header
from toolfold.wire.serving import ServeOptions
from toolfold.wire.serving.http_guard import HttpGuard
from toolfold.wire.types import TOOLS_CHANGED


def by_key(headers: Mapping[str, str]) -> Caller:
    if "authorization" not in headers:
        raise NotAuthorized("a key is needed")
    return Caller(name=headers["authorization"].removeprefix("Bearer "))


# --- modern


@pytest.mark.requirement("G-02")
def test_a_modern_request_is_answered_with_plain_json_and_with_a_stream_only_where_something_comes_before() -> None:
    async def main() -> None:
        async with on_http(EchoApp()) as port:
            plain = await port.post(modern("tools/list"))
            assert plain.status_code == 200
            assert plain.headers["content-type"] == "application/json"
            assert plain.json()["result"] == {
                "resultType": "complete",
                "ttlMs": 0,
                "cacheScope": "private",
                "tools": [],
            }
            steps = modern("tools/call", {"name": "steps", "_meta": {"progressToken": 7}}, key="s")
            streamed = await port.post(steps)
            assert streamed.headers["content-type"] == "text/event-stream"
            assert streamed.headers["x-accel-buffering"] == "no"
            told = events(streamed.text)
            assert [one.get("method") for one in told] == ["notifications/progress"] * 3 + [None]
            assert told[-1]["id"] == "s"
            silent = await port.post(steps, Accept="application/json")
            assert silent.headers["content-type"] == "application/json"
            assert silent.json()["id"] == "s"

    asyncio.run(main())


@pytest.mark.parametrize(
    "changed",
    [
        {"MCP_Protocol_Version": ""},
        {"MCP_Protocol_Version": "2025-11-25"},
        {"Mcp_Method": ""},
        {"Mcp_Method": "tools/list"},
        {"Mcp_Name": ""},
        {"Mcp_Name": "other"},
        {"Mcp_Name": "=?base64?c3RlcHM?="},
        {"Mcp_Name": "=?base64?!!!?="},
    ],
)
def test_headers_must_say_what_the_body_says(changed: dict[str, str]) -> None:
    async def main() -> None:
        async with on_http(EchoApp()) as port:
            answer = await port.post(modern("tools/call", {"name": "steps"}, key="h"), **changed)
            assert answer.status_code == 400
            assert (answer.json()["id"], answer.json()["error"]["code"]) == ("h", -32020)

    asyncio.run(main())


@pytest.mark.parametrize("name", ["Grüße", " blank ", "=?base64?abc?=", "日本"])
def test_names_that_no_header_can_carry_come_in_base64(name: str) -> None:
    async def main() -> None:
        async with on_http(EchoApp()) as port:
            request = modern("tools/call", {"name": name})
            answer = await port.post(request, Mcp_Name=encode_header(name))
            assert answer.status_code == 200, answer.text

    asyncio.run(main())


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (modern("unheard/of"), 404, -32601),
        (modern("ping"), 404, -32601),
        (modern("initialize"), 404, -32601),
        (modern("echo", {"_meta": {META + "clientCapabilities": 5}}), 400, -32602),
        (modern("unkind"), 200, -32603),
        (modern("broken"), 200, -32603),
    ],
)
def test_errors_have_the_status_that_belongs_to_them(request_: dict[str, Any], status: int, code: int) -> None:
    async def main() -> None:
        async with on_http(EchoApp()) as port:
            answer = await port.post(request_)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)

    asyncio.run(main())


@pytest.mark.requirement("G-04")
def test_closing_the_connection_cancels_a_modern_request() -> None:
    async def main() -> None:
        app = EchoApp()
        async with on_http(app) as port:
            waiting = asyncio.create_task(port.post(modern("tools/call", {"name": "wait"})))
            await app.started.wait()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            async with asyncio.timeout(10):
                while not app.log:  # noqa: ASYNC110 - the server notices in its own time
                    await asyncio.sleep(0.01)
            assert app.log == ["cancelled"]

    asyncio.run(main())


@pytest.mark.requirement("G-04")
def test_a_modern_subscription_streams_until_the_server_ends_it() -> None:
    async def main() -> None:
        app = EchoApp()
        async with on_http(app, ServeOptions(keep_alive_s=0.05)) as port:
            listen = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, key="l")
            headers = port.headers(listen)
            async with port.client.stream("POST", port.url, json=listen, headers=headers) as answer:
                lines = answer.aiter_lines()
                assert json.loads((await data(lines))[6:])["method"].endswith("acknowledged")
                assert await anext(lines) == ""
                assert (await anext(lines)).startswith(":")
                app.hub.publish(TOOLS_CHANGED)
                assert json.loads((await data(lines))[6:])["method"] == TOOLS_CHANGED
                await port.mcp.aclose()
                assert json.loads((await data(lines))[6:])["result"]["resultType"] == "complete"

    asyncio.run(main())


async def data(lines: Any) -> str:
    while not (line := await anext(lines)).startswith("data: {"):
        pass
    return str(line)


# --- legacy


@pytest.mark.requirement("G-02")
def test_a_legacy_session_lives_from_initialize_to_delete() -> None:
    async def main() -> None:
        app = EchoApp()
        async with on_http(app) as port:
            name = await port.session("2025-06-18")
            answer = await port.post(legacy("echo", {"a": 1}), Mcp_Session_Id=name, MCP_Protocol_Version="2025-06-18")
            assert answer.json()["result"]["given"] == {"a": 1}
            assert (await port.post(legacy("nope"), Mcp_Session_Id=name)).json()["error"]["code"] == -32601
            assert (await port.client.delete(port.url, headers={"Mcp-Session-Id": name})).status_code == 200
            assert (await port.post(legacy("echo"), Mcp_Session_Id=name)).status_code == 404
            assert (await port.post(legacy("echo"))).status_code == 400
            assert (await port.client.get(port.url)).status_code == 405
            assert len(app.hub) == 0

    asyncio.run(main())


@pytest.mark.requirement("G-04")
def test_a_legacy_client_is_asked_on_the_stream_of_its_request() -> None:
    async def main() -> None:
        async with on_http(EchoApp()) as port:
            name = await port.session(able={"elicitation": {}})
            request = legacy("tools/call", {"name": "ask"}, key="c")
            headers = port.headers(request, Mcp_Session_Id=name)
            async with port.client.stream("POST", port.url, json=request, headers=headers) as answer:
                lines = answer.aiter_lines()
                asked = json.loads((await data(lines))[6:])
                reply = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "cancel"}}
                assert (await port.post(reply, Mcp_Session_Id=name)).status_code == 202
                assert "cancel" in (await data(lines))

    asyncio.run(main())


@pytest.mark.requirement("G-04")
def test_a_legacy_stream_that_was_cut_off_is_taken_up_where_it_ended() -> None:
    async def main() -> None:
        app = EchoApp()
        async with on_http(app) as port:
            name = await port.session(able={"elicitation": {}})
            request = legacy("tools/call", {"name": "ask"}, key="c")
            headers = port.headers(request, Mcp_Session_Id=name)
            async with port.client.stream("POST", port.url, json=request, headers=headers) as answer:
                lines = answer.aiter_lines()
                first = [await anext(lines) for _ in range(4)]
                assert first[0].startswith("id: ")
                assert first[1].startswith("retry: ")
                assert first[2] == "data: "
                asked = json.loads((await data(lines))[6:])
            reply = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept"}}
            assert (await port.post(reply, Mcp_Session_Id=name)).status_code == 202
            last = first[0].removeprefix("id: ")
            headers = {"Accept": "text/event-stream", "Mcp-Session-Id": name, "Last-Event-ID": last}
            replayed = events((await port.client.get(port.url, headers=headers)).text)
            assert [one.get("method") for one in replayed] == ["elicitation/create", None]
            assert replayed[1]["id"] == "c"
            assert "accept" in json.dumps(replayed[1]["result"])
            unknown = {**headers, "Last-Event-ID": "99_1"}
            assert (await port.client.get(port.url, headers=unknown)).status_code == 404

    asyncio.run(main())


@pytest.mark.requirement("G-04")
def test_what_belongs_to_no_request_comes_on_the_listening_stream() -> None:
    async def main() -> None:
        app = EchoApp()
        async with on_http(app) as port:
            name = await port.session()
            app.hub.publish(TOOLS_CHANGED)
            headers = {"Accept": "text/event-stream", "Mcp-Session-Id": name}
            async with port.client.stream("GET", port.url, headers=headers) as answer:
                lines = answer.aiter_lines()
                assert json.loads((await data(lines))[6:])["method"] == TOOLS_CHANGED
                assert (await port.client.get(port.url, headers=headers)).status_code == 409
            assert (await port.post(hello())).status_code == 200

    asyncio.run(main())


def test_several_messages_in_one_post_are_served_in_the_one_version_that_knows_them() -> None:
    async def main() -> None:
        async with on_http(EchoApp()) as port:
            both = [legacy("echo", key=1), legacy("nope", key=2)]
            old = await port.session("2025-03-26")
            answer = await port.post(both, Mcp_Session_Id=old)
            assert {one["id"]: "result" in one for one in events(answer.text)} == {1: True, 2: False}
            new = await port.session("2025-06-18")
            assert (await port.post(both, Mcp_Session_Id=new)).status_code == 400

    asyncio.run(main())


def test_sessions_are_bounded_in_number_and_idle_ones_end_first() -> None:
    async def main() -> None:
        async with on_http(EchoApp(), ServeOptions(max_sessions=2)) as port:
            first, second, third = [await port.session() for _ in range(3)]
            assert (await port.post(legacy("echo"), Mcp_Session_Id=first)).status_code == 404
            for name in (second, third):
                assert (await port.post(legacy("echo"), Mcp_Session_Id=name)).status_code == 200

    asyncio.run(main())


def test_a_session_that_nobody_uses_ends() -> None:
    async def main() -> None:
        async with on_http(EchoApp(), ServeOptions(session_idle_s=0.05)) as port:
            idle = await port.session()
            async with asyncio.timeout(10):
                while len(port.mcp.legacy.sessions):  # noqa: ASYNC110 - the time itself is what is tested
                    await asyncio.sleep(0.01)
            assert (await port.post(legacy("echo"), Mcp_Session_Id=idle)).status_code == 404

    asyncio.run(main())


# --- who is let in


def test_a_client_cannot_use_the_session_of_another_caller() -> None:
    async def main() -> None:
        async with on_http(EchoApp(), guard=HttpGuard(identify=by_key)) as port:
            name = await port.session(Authorization="Bearer ann")
            foreign = {"Mcp_Session_Id": name, "Authorization": "Bearer bob"}
            assert (await port.post(legacy("echo"), **foreign)).status_code == 404
            headers = {"Accept": "text/event-stream", "Mcp-Session-Id": name, "Authorization": "Bearer bob"}
            assert (await port.client.get(port.url, headers=headers)).status_code == 404
            assert (await port.client.delete(port.url, headers=headers)).status_code == 404
            own = await port.post(legacy("echo"), Mcp_Session_Id=name, Authorization="Bearer ann")
            assert own.json()["result"]["caller"] == "ann"

    asyncio.run(main())


def test_without_a_key_nothing_is_answered_where_keys_are_asked_for() -> None:
    async def main() -> None:
        async with on_http(EchoApp(), guard=HttpGuard(any_host=True, identify=by_key)) as port:
            for request in (modern("echo"), hello(), {"nonsense": 1}):
                answer = await port.post(request)
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"].startswith("Bearer")

    asyncio.run(main())


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://localhost.evil.example", "file://", "http://["]
)
def test_a_page_of_another_origin_is_refused(origin: str) -> None:
    async def main() -> None:
        async with on_http(EchoApp()) as port:
            assert (await port.post(modern("echo"), Origin=origin)).status_code == 403

    asyncio.run(main())


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1", "https://[::1]:8443"])
def test_a_page_of_this_machine_may_call(origin: str) -> None:
    async def main() -> None:
        async with on_http(EchoApp()) as port:
            assert (await port.post(modern("echo"), Origin=origin)).status_code == 200

    asyncio.run(main())


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "["])
def test_a_name_that_is_not_this_machines_is_refused(host: str) -> None:
    async def main() -> None:
        async with on_http(EchoApp()) as port:
            raw = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
            head = f"POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(raw)}"
            reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
            writer.write(head.encode() + b"\r\nConnection: close\r\n\r\n" + raw)
            status = await reader.readline()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            assert status.split()[1] in {b"403", b"400"}

    asyncio.run(main())


# --- what is no proper request


def test_what_cannot_be_read_or_is_too_large_is_refused() -> None:
    async def main() -> None:
        async with on_http(EchoApp(), ServeOptions(max_body_bytes=200_000)) as port:
            assert await status(port, b"{nonsense") == 400
            assert await status(port, b"[" * 50_000 + b"]" * 50_000) == 400
            assert await status(port, b'{"a":' * 20_000 + b"1" + b"}" * 20_000) == 400
            assert await status(port, b'{"jsonrpc":"2.0","id":1,"method":"\xff"}') == 400
            assert await status(port, b'{"x":"' + b"y" * 300_000 + b'"}') == 413
            assert await status(port, b"{}", "text/plain") == 415
            assert (await port.post(modern("echo"), Accept="text/html")).status_code == 406
            assert (await port.client.put(port.url, json={})).status_code == 405
            assert (await port.client.get(port.url.replace("/mcp", "/elsewhere"))).status_code == 404
            assert (await port.post(modern("echo"))).status_code == 200

    async def status(port: Port, body: bytes, kind: str = "application/json") -> int:
        answer = await port.client.post(port.url, content=body, headers={"Content-Type": kind})
        return answer.status_code

    asyncio.run(main())


def test_many_clients_at_once_each_get_their_own_answer() -> None:
    async def main() -> None:
        async with on_http(EchoApp(), guard=HttpGuard(identify=by_key)) as port:

            async def one(number: int) -> None:
                request = modern("echo", {"n": number}, key=number)
                answer = (await port.post(request, Authorization=f"Bearer c{number % 7}")).json()
                assert answer["id"] == answer["result"]["given"]["n"] == number
                assert answer["result"]["caller"] == f"c{number % 7}"

            await asyncio.gather(*(one(number) for number in range(100)))

    asyncio.run(main())
