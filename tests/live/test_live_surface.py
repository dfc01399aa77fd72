"""The profile `live`: exactly three tools, one session for each caller, bounded in number and idle time."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from toolfold import Gateway, LiveSession, Settings
from toolfold.errors import LiveError
from toolfold.faces.surface.live import _LiveSurface
from toolfold.live.manager import LiveManager, _ClientSessions
from toolfold.types import LOCAL, CallContext, Caller


async def asked(surface: _LiveSurface, name: str, caller: Caller = LOCAL, **arguments: Any) -> dict[str, Any]:
    raw = await surface.call(name, Raw(msgspec.json.encode(arguments)), CallContext(caller=caller))
    result = msgspec.json.decode(raw)
    answer: dict[str, Any] = msgspec.json.decode(result["content"][0]["text"])
    assert result["isError"] is not answer["ok"]
    return answer


@pytest.mark.requirement("L-01", "L-02")
async def test_the_profile_shows_exactly_three_tools_and_answers_with_the_envelope(tmp_path: Path) -> None:
    async with Gateway(Settings(home=tmp_path)) as gateway:
        surface = _LiveSurface(gateway)
        tools = [msgspec.json.decode(tool) for tool in await surface.tools(LOCAL)]
        assert [tool["name"] for tool in tools] == ["list_globals", "inspect", "eval_expr"]
        assert "Prefer inspect" in await surface.instructions(LOCAL)
        assert await asked(surface, "eval_expr", expr="(x := [1, 2])") == {
            "ok": True,
            "result": {"value_repr": "[1, 2]", "stdout": "", "stderr": ""},
        }
        assert (await asked(surface, "inspect", expr="x"))["result"]["size"] == {"len": 2}
        assert (await asked(surface, "inspect"))["error"]["code"] == "invalid_arguments"
        assert (await asked(surface, "get_type", expr="x"))["error"]["code"] == "unknown_function"


async def test_each_caller_and_client_has_a_session_of_its_own(tmp_path: Path) -> None:
    async with Gateway(Settings(home=tmp_path)) as gateway:
        surface = _LiveSurface(gateway)
        one, two = Caller(name="ann", session="1"), Caller(name="ann", session="2")
        await asked(surface, "eval_expr", one, expr="(secret := 42)")
        assert (await asked(surface, "list_globals", two))["result"] == {"globals": []}
        assert (await asked(surface, "eval_expr", one, expr="secret"))["result"]["value_repr"] == "42"


async def test_sessions_are_bounded_in_number_and_idle_time(tmp_path: Path) -> None:
    async with Gateway(Settings(home=tmp_path)) as gateway:
        sessions = _ClientSessions(gateway.live_sessions, limit=2)
        callers = [Caller(name="ann", session=name) for name in "123"]
        first = await sessions.get(callers[0])
        for caller in callers[1:]:
            await sessions.get(caller)
        assert await sessions.get(callers[0]) is not first
        await sessions.aclose()
        brief = _ClientSessions(gateway.live_sessions, idle_s=-1.0)
        again = await brief.get(callers[0])
        assert await brief.get(callers[0]) is not again
        await brief.aclose()


async def test_15_17_one_callers_sessions_do_not_end_anothers(tmp_path: Path) -> None:
    async with Gateway(Settings(home=tmp_path)) as gateway:
        sessions = _ClientSessions(gateway.live_sessions, limit=4)
        bob = Caller(name="bob")
        await sessions.dispatch(bob, "eval_expr", {"expr": "(kept := 42)"})
        for number in range(6):
            await sessions.dispatch(Caller(name="ann", session=str(number)), "eval_expr", {"expr": "(x := 1)"})
        answer = await sessions.dispatch(bob, "eval_expr", {"expr": "kept"})
        assert answer["result"]["value_repr"] == "42"
        await sessions.aclose()


async def test_15_17_whose_session_was_ended_is_told_with_the_next_request(tmp_path: Path) -> None:
    async with Gateway(Settings(home=tmp_path)) as gateway:
        sessions = _ClientSessions(gateway.live_sessions, limit=2)
        one, two = Caller(name="ann", session="1"), Caller(name="ann", session="2")
        for caller in (one, two, Caller(name="bob")):
            await sessions.dispatch(caller, "eval_expr", {"expr": "(x := 1)"})
        told = (await sessions.dispatch(one, "eval_expr", {"expr": "x"}))["error"]
        assert (told["code"], told["session"]) == ("session_lost", "lost")
        assert "to make room for another caller" in told["message"]
        told = (await sessions.dispatch(two, "eval_expr", {"expr": "x"}))["error"]
        assert "to make room for another of yours" in told["message"]
        assert (await sessions.dispatch(two, "list_globals", {}))["ok"]
        # Nobody has more than an equal share: one more caller ends nobody's session.
        with pytest.raises(LiveError, match="in use by other callers"):
            await sessions.dispatch(Caller(name="cid"), "list_globals", {})
        await sessions.aclose()
        brief = _ClientSessions(gateway.live_sessions, idle_s=-1.0)
        assert (await brief.dispatch(one, "list_globals", {}))["ok"]
        assert "without a request" in (await brief.dispatch(one, "list_globals", {}))["error"]["message"]
        await brief.aclose()


async def test_a_session_that_is_closed_while_it_answers_says_so_and_cancels_nobody(tmp_path: Path) -> None:
    async with Gateway(Settings(home=tmp_path)) as gateway:
        sessions = _ClientSessions(gateway.live_sessions, limit=1)
        ann, other = Caller(name="ann"), Caller(name="ann", session="2")
        session = await sessions.get(ann)
        asking = [asyncio.ensure_future(session.eval_expr("__import__('time').sleep(600)")) for _ in range(2)]
        for _ in range(10):  # the request takes its turn within a few rounds of the loop
            await asyncio.sleep(0)
        assert session._turn.locked()
        await sessions.get(other)
        for one in asking:
            with pytest.raises(LiveError, match="the session was ended"):
                await one
        with pytest.raises(LiveError, match="not open"):
            await session.eval_expr("1")
        assert (await sessions.dispatch(ann, "eval_expr", {"expr": "6 * 7"}))["error"]["code"] == "session_lost"
        assert (await sessions.dispatch(ann, "eval_expr", {"expr": "6 * 7"}))["ok"]
        await sessions.aclose()


class Doors:
    """Sessions that open when they are let."""

    def __init__(self, living: LiveManager) -> None:
        self._living = living
        self.closed = asyncio.Event()
        self.open_for: set[str] = set()
        self.fails = False
        self.started = 0

    def session(self, *, caller: Caller) -> Any:
        doors = self

        class Door:
            async def __aenter__(self) -> LiveSession:
                doors.started += 1
                if doors.fails:
                    raise LiveError("it did not start")
                if caller.name not in doors.open_for:
                    await doors.closed.wait()
                return await doors._living.session(caller=caller).__aenter__()

        return Door()


async def test_a_session_that_takes_long_to_open_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    async with Gateway(Settings(home=tmp_path)) as gateway:
        doors = Doors(gateway.live_sessions)
        doors.open_for = {"bob"}
        sessions = _ClientSessions(doors)  # type: ignore[arg-type]  # it has what is used
        ann, bob = Caller(name="ann"), Caller(name="bob")
        waiting = [asyncio.ensure_future(sessions.get(ann)) for _ in range(2)]
        await asyncio.sleep(0)
        assert (await (await sessions.get(bob)).eval_expr("1"))["ok"]
        assert not any(one.done() for one in waiting)
        assert doors.started == 2
        await sessions.end(ann)
        for one in waiting:
            with pytest.raises(LiveError, match="the session was ended"):
                await one
        doors.fails = True
        for _ in range(2):
            with pytest.raises(LiveError, match="it did not start"):
                await sessions.get(ann)
        doors.fails, doors.open_for = False, {"ann"}
        assert (await (await sessions.get(ann)).eval_expr("1"))["ok"]
        await sessions.aclose()
