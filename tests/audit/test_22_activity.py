"""The audit log added up as it grows, for everybody and for one caller; and readers who go away in the middle."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from toolfold import Gateway, Settings
from toolfold.audit.record import Step, encode_step
from toolfold.storage.base import AuditRow
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import Caller

pytestmark = pytest.mark.requirement("G-07")

SHOP = MemoryUpstream("shop", [{"name": "buy", "inputSchema": {"type": "object"}}])


async def test_22_activity_adds_up_what_each_caller_did(tmp_path: Path) -> None:
    ann, ben = Caller(name="ann", session="one"), Caller(name="ben", session="two")
    async with Gateway(Settings(home=tmp_path), upstreams=[SHOP]) as gateway:
        await gateway.build()
        await gateway.search_tool_by_category("buy", caller=ann)
        for caller in (ann, ben, ben):
            await gateway.call_tool("shop.buy", {}, caller=caller)
        activity = await gateway.audit_log.activity()
        assert activity.complete
        [everything] = activity.hours(None, time.time() - 60).values()
        [own] = activity.hours("ben", time.time() - 60).values()
        assert (everything.calls, everything.searches, everything.sessions) == (3, 1, 2)
        assert (own.calls, own.searches, own.sessions, own.errors) == (2, 0, 1, 0)
        assert own.slower_than(0.5) is not None
        assert [(one.tool_id, one.calls) for one in activity.tools(None)] == [("shop.buy", 3)]
        assert [(one.caller, one.session, one.tools) for one in activity.sessions("ann")] == [
            ("ann", "one", ["shop.buy"])
        ]
        assert activity.last("nobody") == 0


async def test_22_what_another_process_recorded_is_added_too(tmp_path: Path) -> None:
    async with Gateway(Settings(home=tmp_path), upstreams=[SHOP]) as gateway:
        await gateway.build()
        assert (await gateway.audit_log.activity()).last("far") == 0
        about: dict[str, Any] = {"caller": "far", "session": "s", "at": time.time()}
        record = encode_step(Step(id="x", step="call", tool_id="shop.buy", code="STORE_BUSY", **about))
        await gateway.store.append_audit([AuditRow(selection="", record=record, **about)], keep=100)
        async with asyncio.timeout(20):
            while not (activity := await gateway.audit_log.activity()).last("far"):
                await asyncio.to_thread(time.sleep, 0.01)
        assert [(one.figures.calls, one.figures.errors) for one in activity.sessions("far")] == [(1, 1)]


async def test_22_a_reader_who_goes_away_takes_nothing_along(tmp_path: Path) -> None:
    async with Gateway(Settings(home=tmp_path), upstreams=[SHOP]) as gateway:
        await gateway.build()
        for turns in range(12):
            gateway.audit_log.record_change(Caller(name="root"), f"change {turns}")
            reader = asyncio.create_task(gateway.audit_log.activity())
            for _ in range(turns):
                await asyncio.sleep(0)
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        recorded = [step.query for step in await gateway.audit_log.steps()]
        assert recorded == [f"change {turns}" for turns in range(12)]
