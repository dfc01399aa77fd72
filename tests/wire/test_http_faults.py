"""Streamable HTTP in both eras and its faults, against a small real server on loopback."""

import asyncio
import logging

import pytest
from misbehaving_http import MisbehavingHttp
from msgspec import Raw
from wire_helpers import FORMS, QUICK, names, opened, raw, text_of, until, value

from toolfold.errors import (
    FrameTooLarge,
    ProtocolViolation,
    RemoteError,
    ServerClosed,
    ServerTimeout,
    ServerUnavailable,
    UpstreamError,
)
from toolfold.wire import Handlers, HttpTarget, WireOptions, connect

ERAS = pytest.mark.parametrize("era", ["legacy", "modern", "dual"])


@ERAS
@pytest.mark.requirement("G-01")
@pytest.mark.parametrize("events", [False, True], ids=["json", "events"])
@pytest.mark.parametrize("session", [False, True], ids=["stateless", "session"])
def test_both_eras_are_spoken_with_json_and_events(era: str, events: bool, session: bool) -> None:
    async def main() -> None:
        async with MisbehavingHttp(era=era, events=events, session=session, strict_headers=True) as server:
            async with opened(server.target) as connection:
                assert connection.info.era == ("legacy" if era == "legacy" else "modern")
                assert connection.pid is None
                assert "echo" in await names(connection)
                result = await connection.call_tool("echo", raw({"a": "ü"}))
                assert value(result)["structuredContent"] == {"a": "ü"}
                with pytest.raises(RemoteError) as caught:
                    await connection.request("no/such/method")
                assert caught.value.rpc_code == -32601
            ended = [request for request in server.seen if request.verb == "DELETE"]
            assert len(ended) == (1 if session and era == "legacy" else 0)

    asyncio.run(main())


@pytest.mark.parametrize("remembered", ["legacy", "modern"])
@ERAS
def test_a_wrong_memory_of_the_era_heals(era: str, remembered: str) -> None:
    async def main() -> str | None:
        async with MisbehavingHttp(era=era) as server:
            known = "legacy" if remembered == "legacy" else "modern"
            async with opened(server.target, era=known) as connection:  # type: ignore[arg-type]  # one of the two
                assert "echo" in await names(connection)
                return connection.info.era

    assert asyncio.run(main()) == (remembered if era == "dual" else era)


def test_a_proxy_of_the_environment_is_not_asked_for_servers_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)

    async def main() -> None:
        async with MisbehavingHttp() as server, opened(server.target) as connection:
            assert "echo" in await names(connection)

    asyncio.run(main())


def test_a_legacy_server_that_is_remembered_is_not_probed() -> None:
    async def main() -> list[str]:
        async with MisbehavingHttp(era="legacy") as server:
            async with opened(server.target, era="legacy"):
                pass
            return [request.method for request in server.seen if request.verb == "POST"]

    assert asyncio.run(main()) == ["initialize", "notifications/initialized"]


@pytest.mark.parametrize("status", [400, 404, 405, 406, 415, 500])
def test_any_refusal_of_the_probe_leads_to_the_handshake(status: int) -> None:
    async def main() -> str | None:
        async with (
            MisbehavingHttp(era="legacy", refuse={"server/discover": status}) as server,
            opened(server.target) as connection,
        ):
            return connection.info.era

    assert asyncio.run(main()) == "legacy"


def test_a_probe_that_hangs_does_not_hold_up_a_legacy_server() -> None:
    async def main() -> str | None:
        options = WireOptions(probe_timeout_s=0.1)
        async with (
            MisbehavingHttp(era="legacy", hang="server/discover") as server,
            opened(server.target, options) as connection,
        ):
            return connection.info.era

    assert asyncio.run(main()) == "legacy"


@pytest.mark.requirement("G-01")
def test_the_oldest_transport_is_the_last_resort() -> None:
    async def main() -> None:
        async with (
            MisbehavingHttp(era="legacy", oldest=True) as server,
            opened(server.target) as connection,
        ):
            assert "echo" in await names(connection)
            assert text_of(await connection.call_tool("big", raw({"bytes": 4}))) == "xxxx"
            got: list[Raw] = []
            await connection.call_tool("progress", raw({"steps": 2}), on_progress=got.append)
            assert len(got) == 2

    asyncio.run(main())


@pytest.mark.parametrize("status", [404, 400])
def test_an_expired_session_is_renewed_once_and_the_call_made_again(status: int) -> None:
    async def main() -> None:
        async with (
            MisbehavingHttp(era="legacy", session=True, forget_after=3, forget_status=status) as server,
            opened(server.target) as connection,
        ):
            results = [await connection.call_tool("big", raw({"bytes": n})) for n in range(4)]
            assert [len(text_of(result)) for result in results] == [0, 1, 2, 3]
            assert [request.method for request in server.seen].count("initialize") == 2

    asyncio.run(main())


def test_a_stream_that_ends_early_is_taken_up_again() -> None:
    async def main() -> None:
        async with MisbehavingHttp(era="legacy", resume="tools/call") as server:
            async with opened(server.target) as connection:
                assert text_of(await connection.call_tool("big", raw({"bytes": 2}))) == "xx"
            resumed = [request for request in server.seen if request.headers.get("last-event-id")]
            assert [request.headers["last-event-id"] for request in resumed] == ["1"]

    asyncio.run(main())


@ERAS
def test_an_answer_that_is_cut_off_fails_its_request_only(era: str) -> None:
    async def main() -> None:
        async with (
            MisbehavingHttp(era=era, cut="tools/list") as server,
            opened(server.target) as connection,
        ):
            with pytest.raises(ServerClosed, match="broke off"):
                await connection.list_tools()
            assert text_of(await connection.call_tool("big", raw({"bytes": 1}))) == "x"

    asyncio.run(main())


def test_a_cancelled_modern_call_closes_its_stream() -> None:
    async def main() -> None:
        async with (
            MisbehavingHttp(era="modern", hang="tools/call") as server,
            opened(server.target) as connection,
        ):
            call = asyncio.ensure_future(connection.call_tool("echo", raw({})))
            await until(lambda: "tools/call" in [request.method for request in server.seen])
            call.cancel()
            await until(lambda: server.closed_early == ["tools/call"])
            with pytest.raises(ServerTimeout):
                await connection.call_tool("echo", raw({}), timeout_s=0.05)

    asyncio.run(main())


def test_a_cancelled_legacy_call_is_told() -> None:
    async def main() -> None:
        async with (
            MisbehavingHttp(era="legacy", hang="tools/call") as server,
            opened(server.target) as connection,
        ):
            with pytest.raises(ServerTimeout):
                await connection.call_tool("echo", raw({}), timeout_s=0.05)
            await until(lambda: "notifications/cancelled" in [request.method for request in server.seen])

    asyncio.run(main())


def test_a_body_over_the_cap_is_refused() -> None:
    async def main() -> None:
        for events in (False, True):
            async with (
                MisbehavingHttp(events=events) as server,
                opened(server.target, WireOptions(max_frame_bytes=50_000)) as connection,
            ):
                with pytest.raises(FrameTooLarge):
                    await connection.call_tool("big", raw({"bytes": 1_000_000}))
                assert text_of(await connection.call_tool("big", raw({"bytes": 1}))) == "x"

    asyncio.run(main())


def test_a_modern_elicitation_is_answered_over_http() -> None:
    async def jane(method: str, params: Raw) -> Raw:
        return raw({"action": "accept", "content": {"name": "Jane"}})

    async def main() -> str:
        async with MisbehavingHttp(era="modern") as server, opened(server.target, FORMS) as connection:
            return text_of(await connection.call_tool("ask", raw({"times": 2}), on_input=jane))

    assert "Jane" in asyncio.run(main())


def test_marked_parameters_are_mirrored_and_learnt_when_they_are_missing() -> None:
    async def main() -> None:
        marks = {"region": "Region"}
        async with (
            MisbehavingHttp(era="modern", strict_headers=True, parameter_headers=marks) as server,
            opened(server.target) as connection,
        ):
            result = await connection.call_tool("echo", raw({"region": "Zürich"}))
            assert value(result)["structuredContent"] == {"region": "Zürich"}
            calls = [request for request in server.seen if request.method == "tools/call"]
            assert len(calls) == 2
            assert calls[1].headers["mcp-param-region"] == "=?base64?WsO8cmljaA==?="

    asyncio.run(main())


def test_a_tool_with_a_wrong_mark_is_left_out_and_said() -> None:
    async def main() -> None:
        async with (
            MisbehavingHttp(era="modern", parameter_headers={"region": "not a token"}) as server,
            opened(server.target) as connection,
        ):
            found = await connection.list_tools()
            assert "echo" not in [value(tool)["name"] for tool in found.tools]
            assert "'echo' was left out" in found.warnings[0]

    asyncio.run(main())


def test_changes_are_told_on_the_get_stream() -> None:
    async def main() -> None:
        told: list[str] = []
        handlers = Handlers(on_notification=lambda method, params: told.append(method))
        async with MisbehavingHttp(era="legacy", listen=True) as server, opened(server.target, handlers=handlers):
            await until(lambda: server.listened)
            server.change()
            await until(lambda: told == ["notifications/tools/list_changed"])

    asyncio.run(main())


SECRET = {"Authorization": "Bearer very-secret-token", "X-Api-Key": "other-secret"}


def test_secrets_are_sent_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def main() -> None:
        async with MisbehavingHttp(refuse={"tools/list": 401}) as server:
            target = HttpTarget(server.url + "?key=query-secret", SECRET)
            async with opened(target) as connection:
                with pytest.raises(ServerUnavailable, match="refused access") as caught:
                    await connection.list_tools()
            assert all(request.headers["x-api-key"] == "other-secret" for request in server.seen)
            assert "secret" not in str(caught.value.as_dict())

    asyncio.run(main())
    assert "secret" not in caplog.text


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_wants_a_token_says_so_at_once(status: int) -> None:
    async def main() -> int:
        async with MisbehavingHttp(refuse={"server/discover": status}) as server:
            with pytest.raises(ServerUnavailable, match=f"HTTP {status}") as caught:
                await connect(server.target, options=QUICK)
            assert "token" in caught.value.next_action
            return len(server.seen)

    assert asyncio.run(main()) == 1


def test_a_redirect_to_another_origin_carries_nothing_there() -> None:
    async def main() -> None:
        async with MisbehavingHttp() as other, MisbehavingHttp(redirect=other.url) as server:
            with pytest.raises(ServerUnavailable, match="redirects to"):
                await connect(HttpTarget(server.url, SECRET), options=QUICK)
            assert other.seen == []

    asyncio.run(main())


def test_a_redirect_in_a_circle_ends() -> None:
    async def main() -> None:
        async with MisbehavingHttp(redirect="/mcp") as server:
            with pytest.raises(ServerUnavailable, match="circle"):
                await connect(server.target, options=QUICK)

    asyncio.run(main())


def test_nobody_at_the_address_is_said_at_once() -> None:
    async def main() -> None:
        async with MisbehavingHttp() as server:
            target = server.target
        with pytest.raises(ServerUnavailable, match="cannot be reached"):
            await connect(target, options=QUICK)

    asyncio.run(main())


@pytest.mark.parametrize("body", [b"", b"<html>hello</html>", b"{}", b'{"jsonrpc":"2.0","id":999999,"result":{}}'])
def test_an_endpoint_that_is_no_mcp_server_is_refused(body: bytes) -> None:
    async def main() -> None:
        garbage = {"server/discover": body, "initialize": body}
        async with MisbehavingHttp(garbage=garbage) as server:
            with pytest.raises(ProtocolViolation):
                await connect(server.target, options=QUICK)

    asyncio.run(main())


def test_a_cancelled_connect_leaves_no_connection() -> None:
    async def main() -> None:
        async with MisbehavingHttp(hang="server/discover") as server:
            opening = asyncio.ensure_future(connect(server.target, options=QUICK))
            await until(lambda: bool(server.seen))
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            await until(lambda: server.closed_early == ["server/discover"])

    asyncio.run(main())


def test_the_loss_of_the_oldest_transports_stream_is_told() -> None:
    async def main() -> None:
        reasons: list[str] = []
        async with MisbehavingHttp(era="legacy", oldest=True) as server:
            connection = await connect(server.target, options=QUICK, handlers=Handlers(on_closed=reasons.append))
            server.drop()
            await until(lambda: bool(reasons))
            with pytest.raises(UpstreamError):
                await connection.list_tools()
            await connection.aclose()

    asyncio.run(main())
