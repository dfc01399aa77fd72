"""Many new tools are taken into the index in parts: with progress, and nothing is done twice after a break."""

import asyncio
from pathlib import Path

import pytest

from toolfold import Gateway, Settings
from toolfold.search import service
from toolfold.testing.memory_upstream import MemoryUpstream


def many(count: int) -> MemoryUpstream:
    tools = [{"name": f"tool_{at}", "description": f"does thing {at}", "inputSchema": {}} for at in range(count)]
    return MemoryUpstream("shop", tools)


async def test_15_18_progress_is_told_and_a_broken_off_index_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_SYNC_BATCH", 10)  # the real size would take seconds
    seen: list[tuple[int, int]] = []

    def stop_half_way(done: int, total: int) -> None:
        seen.append((done, total))
        if done == 20:
            raise asyncio.CancelledError

    async with Gateway(Settings(home=tmp_path), upstreams=[many(35)]) as gateway:
        await gateway.build(index=False)
        with pytest.raises(asyncio.CancelledError):
            await gateway.search.sync(stop_half_way)
        assert seen == [(0, 35), (10, 35), (20, 35)]
    async with Gateway(Settings(home=tmp_path), upstreams=[many(35)]) as gateway:
        assert await gateway.search.sync() == 15
        assert await gateway.search.sync() == 0
