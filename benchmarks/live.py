"""`toolfold bench live`: how long `inspect` takes for small and large things, and a session to start, beside IPython.

The peer is an IPython kernel asked over `jupyter_client` for the same objects, in an environment of its own
(`--peers DIR` with `DIR/jupyter`). A kernel answers from its one process and thread, with no deadline; the figures say
what the fork and the bounds cost.
"""

import asyncio
import os
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.measurement import environment, percentile
from benchmarks.peers import peer_python, peer_version
from toolfold.errors import SandboxError
from toolfold.live.manager import LiveLimits, LiveSession

ROUNDS = 300
HEAP_ROUNDS = 40
STARTS = 8
GIB = 1024**3

SMALL = """
number, text, mapping = 42, 'hello', {'a': 1, 'b': [1, 2, 3]}
class Point:
    'A point.'
    def __init__(self): self.x, self.y = 1, 2
    def __repr__(self): return 'Point(1, 2)'
point = Point()
def function(a, b=2):
    'Adds.'
    return a + b
"""
PLAIN = ("number", "text", "mapping")
FORKED = ("point", "function", "Point")
LARGE = "large = list(range(1_000_000))"

PEER = """
import json, sys, time
from jupyter_client.manager import start_new_kernel
setup, heap, rounds, heap_rounds = json.loads(sys.argv[1])
started = time.perf_counter()
manager, client = start_new_kernel(kernel_name='python3')
begun = time.perf_counter() - started
def run(code):
    client.execute(code, reply=True, timeout=300)
def times(names, count):
    found = []
    for number in range(count):
        name = names[number % len(names)]
        before = time.perf_counter()
        client.inspect(name, detail_level=1, reply=True, timeout=300)
        found.append(time.perf_counter() - before)
    return found
run(setup)
result = {'start_s': begun, 'plain': times(['number', 'text', 'mapping'], rounds),
          'objects': times(['point', 'function', 'Point'], rounds)}
run('large = list(range(1_000_000))')
result['large'] = times(['large'], 20)
run('del large')
run(heap)
result['heap'] = times(['point'], heap_rounds)
client.stop_channels()
manager.shutdown_kernel(now=True)
print(json.dumps(result))
"""

Metrics = dict[str, Any]


def run(data: Path | None = None, peers: Path | None = None) -> Metrics:
    heap = heap_bytes()
    metrics = asyncio.run(measured(heap))
    metrics["peer"] = query_peer(peers, heap)
    return {"name": "live", "metrics": metrics, "environment": environment("msgspec", "prompt-toolkit")}


def heap_bytes() -> int:
    """One gibibyte, or a quarter of what is free where that is less: the heap is held by session, fork and peer."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4 * GIB
    return min(GIB, free // 4)


def heap_code(size: int) -> str:
    return f"heap = [bytes([n % 255 + 1]) * 1048576 for n in range({size // 1048576})]"


async def measured(heap: int) -> Metrics:
    limits = LiveLimits(memory_bytes=heap + GIB, execute_s=300.0, inspect_s=20.0, eval_s=20.0)
    return {
        "rounds": ROUNDS,
        "starts": STARTS,
        "heap_bytes": heap,
        "heap_rounds": HEAP_ROUNDS,
        "start": await starts(),
        "trusted": await one_session(LiveSession(trusted=True, limits=limits), heap),
        "sandboxed": await sandboxed(limits, heap),
    }


async def sandboxed(limits: LiveLimits, heap: int) -> Metrics:
    try:
        return await one_session(LiveSession(limits=limits), heap)
    except SandboxError as error:
        return {"absent": error.message}


async def starts() -> Metrics:
    """From nothing to the first answer, for a process of a person's own; and from a zygote that waits."""
    found: Metrics = {"trusted_ms": summary(await _starts(lambda: LiveSession(trusted=True)))}
    from toolfold.gateway import Gateway
    from toolfold.live.manager import LiveManager

    with tempfile.TemporaryDirectory(prefix="toolfold-bench-") as folder:
        from toolfold.config import Settings

        async with Gateway(Settings(home=Path(folder))) as gateway:
            living: LiveManager = gateway.live_sessions
            try:
                times = await _starts(living.session)
            except SandboxError as error:
                return {**found, "sandboxed": f"absent: {error.message}"}
    return {**found, "sandboxed_first_ms": round(times[0] * 1000, 2), "sandboxed_ms": summary(times[1:])}


async def _starts(make: Callable[[], LiveSession]) -> list[float]:
    times = []
    for _ in range(STARTS):
        before = time.perf_counter()
        async with make() as session:
            await session.eval_expr("1")
            times.append(time.perf_counter() - before)
    return times


async def one_session(made: LiveSession, heap: int) -> Metrics:
    async with made as session:
        await done(session.execute(SMALL))
        found: Metrics = {
            "layers": list(session.layers),
            "inspect_plain_ms": summary(await inspected(session, PLAIN, ROUNDS)),
            "inspect_objects_ms": summary(await inspected(session, FORKED, ROUNDS)),
            "eval_expr_ms": summary(await timed(lambda _: session.eval_expr("number + 1"), ROUNDS)),
        }
        await done(session.execute(LARGE))
        found["inspect_million_items_ms"] = summary(await inspected(session, ("large",), HEAP_ROUNDS))
        await done(session.execute("del large"))
        await done(session.execute(heap_code(heap)))
        found["inspect_plain_beside_heap_ms"] = summary(await inspected(session, PLAIN, HEAP_ROUNDS))
        found["inspect_objects_beside_heap_ms"] = summary(await inspected(session, FORKED, HEAP_ROUNDS))
        found["eval_expr_beside_heap_ms"] = summary(await timed(lambda _: session.eval_expr("number + 1"), HEAP_ROUNDS))
        return found


async def inspected(session: LiveSession, names: tuple[str, ...], rounds: int) -> list[float]:
    return await timed(lambda number: session.inspect(names[number % len(names)]), rounds)


async def timed(ask: Callable[[int], Awaitable[dict[str, Any]]], rounds: int) -> list[float]:
    times = []
    for number in range(rounds):
        before = time.perf_counter()
        await done(ask(number))
        times.append(time.perf_counter() - before)
    return times


async def done(answer: Awaitable[dict[str, Any]]) -> None:
    found = await answer
    assert found["ok"], found["error"]


def summary(times: list[float]) -> dict[str, float]:
    return {name: round(percentile(times, share) * 1000, 3) for name, share in (("p50", 0.5), ("p99", 0.99))}


def query_peer(peers: Path | None, heap: int) -> Metrics:
    python = peer_python(peers, "jupyter")
    if python is None:
        return {"absent": "give --peers DIR with an environment DIR/jupyter that holds jupyter_client and ipykernel"}
    given = msgspec.json.encode([SMALL, heap_code(heap), ROUNDS, HEAP_ROUNDS]).decode()
    done = subprocess.run([python, "-c", PEER, given], capture_output=True, check=False, timeout=600)
    if done.returncode != 0:
        return {"absent": f"the kernel did not run: {done.stderr.decode('utf-8', 'replace')[-300:]}"}
    found = msgspec.json.decode(done.stdout.splitlines()[-1])
    return {
        "ipykernel": peer_version(python, "ipykernel"),
        "jupyter_client": peer_version(python, "jupyter_client"),
        "start_ms": round(found["start_s"] * 1000, 1),
        "inspect_plain_ms": summary(found["plain"]),
        "inspect_objects_ms": summary(found["objects"]),
        "inspect_million_items_ms": summary(found["large"]),
        "inspect_objects_beside_heap_ms": summary(found["heap"]),
    }
