"""A live session runs at one gateway, and is reached from all gateways on the same store."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toolfold import Gateway, Settings
from toolfold.live.manager import _ClientSessions
from toolfold.types import Caller
from toolfold.wire.serving.peers import Peers

ANN = Caller(name="ann", session="one")
BOB = Caller(name="bob", session="one")


@contextlib.asynccontextmanager
async def gateway_in(folder: Path) -> AsyncIterator[Gateway]:
    async with Gateway(Settings(home=folder)) as gateway:
        gateway.peers = Peers(gateway.store)
        await gateway.peers.open()
        try:
            yield gateway
        finally:
            await gateway.peers.aclose()


async def run(gateway: Gateway, expr: str, caller: Caller = ANN) -> Any:
    async with asyncio.timeout(60):
        return await gateway.live_sessions.sessions.dispatch(caller, "eval_expr", {"expr": expr})


@pytest.mark.requirement("G-18")
async def test_19_a_live_session_is_the_same_from_every_gateway_and_each_callers_own(tmp_path: Path) -> None:
    async with gateway_in(tmp_path) as a, gateway_in(tmp_path) as b:
        assert (await run(a, "(x := 41)"))["ok"]
        answer = await run(b, "x + 1")
        assert (answer["ok"], "42" in str(answer)) == (True, True)
        assert not (await run(b, "x", BOB))["ok"]
        assert len(b.live_sessions.sessions._sessions) == 1  # bob's alone
        # What one gateway ends is ended, and said, at the other.
        sessions = a.live_sessions.sessions
        sessions._close(("ann", "one"), "was ended after 15 minutes without a request")
        await sessions._closing.wait()
        lost = await run(b, "x")
        assert lost["ok"] is False
        assert "was ended after 15 minutes" in str(lost)
        assert (await run(b, "(y := 1)"))["ok"]
        assert (await run(a, "y"))["ok"]


async def test_19_a_live_session_of_a_gone_gateway_is_said_to_be_lost(tmp_path: Path) -> None:
    async with gateway_in(tmp_path) as b:
        async with gateway_in(tmp_path) as a:
            assert (await run(a, "(x := 1)"))["ok"]
            assert a.peers is not None
            # As if it were killed: nothing is given up.
            a.live_sessions.sessions._others = None
        lost = await run(b, "x")
        assert lost["ok"] is False
        assert "ended with the gateway that it ran at" in str(lost)
        assert "run what set the session up again" in str(lost)
        assert (await run(b, "(x := 2)"))["ok"]


async def test_19_errors_of_a_live_session_come_from_its_gateway_as_they_are(tmp_path: Path) -> None:
    async with gateway_in(tmp_path) as a, gateway_in(tmp_path) as b:
        assert (await run(a, "(x := 1)"))["ok"]
        assert a.peers is not None
        full = _ClientSessions(a.live_sessions, a.live_sessions.sessions._others, limit=1)
        await full.get(BOB)
        with pytest.raises(Exception, match="live sessions are in use by other callers") as raised:
            await run(b, "x")
        assert "try again later" in str(raised.value.next_action)  # type: ignore[attr-defined]
        await full.aclose()
