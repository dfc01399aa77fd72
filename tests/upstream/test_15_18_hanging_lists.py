"""A server that starts and then hangs at `tools/list` has the time that it has to start, not that of a call."""

import asyncio

import pytest
from msgspec.structs import replace
from pool_kit import TOOL, run

from toolfold.errors import ServerTimeout
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.upstream.pool import Pool


def test_15_18_a_list_that_hangs_obeys_the_time_to_start() -> None:
    async def main() -> None:
        server = MemoryUpstream("one", [TOOL])
        spec = replace(server.spec, start_timeout_s=0.05, call_timeout_s=600.0)
        async with Pool([spec], make=server.make) as pool:
            await pool.ensure("one")
            server.delay = asyncio.Event()
            with pytest.raises(ServerTimeout, match=r"within 0\.05 s") as caught:
                await pool.listing("one")
            assert "start_timeout_s" in caught.value.next_action

    run(main)
