"""What one hung server does to everybody else: when its calls end, and how long the calls of another take meanwhile.

Part of `toolfold bench calls`. The hung server takes requests and never answers; many calls of it wait while another
server is called one call after the other, and the same without them, in turns.
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.measurement import percentile
from benchmarks.peers import BARE_SERVER
from benchmarks.servers import misbehaving_spec
from toolfold.config import Settings
from toolfold.errors import ServerTimeout
from toolfold.gateway import Gateway
from toolfold.types import ServerSpec

DEADLINE_S = 2.0
HUNG_CALLS = 50
TURNS = 3
CALLS = 3000


async def hung_beside_others(folder: Path) -> dict[str, Any]:
    script = folder / "bare_beside.py"
    script.write_text(BARE_SERVER, encoding="utf-8")
    specs = (
        misbehaving_spec("hung", "--hang", "tools/call"),
        ServerSpec(name="bare", transport="stdio", command=sys.executable, args=(str(script),)),
    )
    alone: list[float] = []
    beside: list[float] = []
    ends: list[float] = []
    async with Gateway(Settings(servers=specs, home=folder / "home-hung")) as gateway:
        await gateway.build(index=False)
        await _timed(gateway, [], CALLS // 10)
        for _ in range(TURNS):
            await _timed(gateway, alone, CALLS)
            waiting = [asyncio.create_task(_ended(gateway, ends)) for _ in range(HUNG_CALLS)]
            await _timed(gateway, [], CALLS // 100)  # by then all of them have been sent
            await _timed(gateway, beside, CALLS)
            await asyncio.gather(*waiting)
    return {
        "deadline_s": DEADLINE_S,
        "hung_calls_at_once": HUNG_CALLS,
        "ended_after_s": {"min": round(min(ends), 3), "max": round(max(ends), 3)},
        "others_p99_ms": {"alone": _p99(alone), "beside_hung": _p99(beside)},
        "others_p99_ratio": round(_p99(beside) / _p99(alone), 3),
        "repetitions": TURNS * CALLS,
    }


async def _timed(gateway: Gateway, times: list[float], count: int) -> None:
    for _ in range(count):
        started = time.perf_counter()
        await gateway.call_tool("bare.echo", {"size": 1024})
        times.append(time.perf_counter() - started)


async def _ended(gateway: Gateway, ends: list[float]) -> None:
    started = time.perf_counter()
    try:
        await gateway.call_tool("hung.echo", {}, timeout_s=DEADLINE_S)
    except ServerTimeout:
        ends.append(time.perf_counter() - started)


def _p99(times: list[float]) -> float:
    return round(percentile(times, 0.99) * 1000, 3)
