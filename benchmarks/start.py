"""`toolfold bench start`: many slow servers at once beside one after the other, and what the command line costs.

The servers are real processes that sleep before they answer. The gateway runs in a process of its own, so that its
memory is its own. A bare interpreter is measured in the same run as the floor under every command.
"""

import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.measurement import environment, percentile
from benchmarks.recorded import recorded_listings
from benchmarks.servers import ROOT, misbehaving_spec
from toolfold.config import Settings
from toolfold.gateway import Gateway
from toolfold.types import ServerSpec

SERVERS = 50
DELAY_S = 0.5
SERIAL = 10
"""Servers started one after the other; the time of all is that of these times five."""
TREE_TOOLS = 10_000
REPEATS = 7


def run(data: Path | None = None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="toolfold-bench-") as folder:
        home = Path(folder)
        serial = in_process("serial", home / "serial")
        together = in_process("together", home / "together")
        serial_s = serial["seconds"] / SERIAL * SERVERS
        tree_home = home / "tree"
        source = asyncio.run(fill(tree_home, data))
        metrics = {
            "servers": SERVERS,
            "each_needs_s": DELAY_S,
            "together_s": round(together["seconds"], 3),
            "serial_s": round(serial_s, 3),
            "serial_measured_servers": SERIAL,
            "together_to_serial": round(together["seconds"] / serial_s, 4),
            "respawns": together["respawns"],
            "gateway_rss_mb": round(together["rss_mb"], 1),
            "gateway_peak_rss_mb": round(together["peak_rss_mb"], 1),
            "tree_tools": TREE_TOOLS,
            "tree_tools_are": source,
            **command_costs(tree_home),
            "repetitions": REPEATS,
        }
    return {"name": "start", "metrics": metrics, "environment": environment("msgspec", "uvloop")}


def in_process(how: str, home: Path) -> dict[str, Any]:
    """Runs this module as a program of its own, and reads what it found."""
    command = [sys.executable, "-m", "benchmarks.start", how, str(home)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=600)
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


async def measured(how: str, home: Path) -> dict[str, Any]:
    specs = tuple(slow_server(number) for number in range(SERVERS if how == "together" else SERIAL))
    async with Gateway(Settings(servers=specs, home=home)) as gateway:
        pool = await gateway.pool()
        started = time.perf_counter()
        if how == "together":
            await gateway.build(index=False)
        else:
            for spec in specs:
                await pool.listing(spec.name)
        seconds = time.perf_counter() - started
        pids = [state.pid for state in pool.states()]
        for _ in range(3):
            async for _ in pool.listings():
                pass
        after = pool.states()
        assert all(state.status == "ready" for state in after), [state.error for state in after]
        return {
            "seconds": seconds,
            "respawns": sum(state.restarts for state in after)
            + sum(pid != state.pid for pid, state in zip(pids, after, strict=True)),
            "rss_mb": resident_mb(),
            "peak_rss_mb": peak_mb(),
        }


def slow_server(number: int) -> ServerSpec:
    return misbehaving_spec(f"slow{number:02}", "--start-delay", str(DELAY_S), "--tools", "5")


def resident_mb() -> float:
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024**2
    return peak_mb()


def peak_mb() -> float:
    """Linux counts in KiB, macOS in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)


async def fill(home: Path, data: Path | None) -> str:
    listings, source = recorded_listings(data, TREE_TOOLS)
    async with Gateway(Settings(home=home)) as gateway:
        await gateway.catalogue.rebuild(listings)
    return source


def command_costs(home: Path) -> dict[str, float]:
    """CPU seconds of whole processes, each command in turn, so that noise falls on all alike."""
    toolfold = [sys.executable, "-m", "toolfold"]
    commands = {
        "bare_python_cpu_s": [sys.executable, "-c", "pass"],
        "version_cpu_s": [*toolfold, "--version"],
        "tree_cpu_s": [*toolfold, "tree", "--home", str(home)],
        "tree_json_cpu_s": [*toolfold, "tree", "--json", "--depth", "5", "--home", str(home)],
    }
    spent: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(REPEATS):
        for name, command in commands.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=60, cwd=home)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent[name].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {name: round(percentile(values, 0.5), 4) for name, values in spent.items()}


if __name__ == "__main__":
    import uvloop

    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(measured(sys.argv[1], Path(sys.argv[2])))))
