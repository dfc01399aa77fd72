"""`toolfold bench scripts`: from a script received to its first line, calls inside a script, and wrappers.

Each figure has its baseline in the same run: a plain gateway call beside a call inside a script, a bare interpreter
with pydantic beside a forked child, and, where they are installed in an environment of their own,
datamodel-code-generator and FastMCP's CodeMode (`TOOLFOLD_BENCH_PEERS` names its python).
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.measurement import environment, percentile
from benchmarks.recorded import own_server, recorded_listings, recorded_servers
from benchmarks.script_peers import peers
from benchmarks.servers import misbehaving_spec
from toolfold.config import Settings
from toolfold.config.sections import Scripts
from toolfold.faces.cli.runner import fast_loop
from toolfold.gateway import Gateway
from toolfold.types import Listing, ServerSpec, Tool

T = TypeVar("T")

STARTS = 30
CALLS = 200
BATCHES = 5
GATHERED = 100
TOOLS = (10, 10_000)

FIRST_LINE = """
import time
started = time.monotonic_ns()
use_tools("box.echo", "box.sleep", "box.big")
from servers.box import echo, sleep, big
ready = time.monotonic_ns()
from servers.box import EchoParams, SleepParams, BigParams
[started, ready, time.monotonic_ns()]
"""

LOOP = """
import time
echo, = use_tools("box.echo")
for _ in range(5):
    await echo(text="warm")
times = []
spent = time.process_time()
for _ in range({calls}):
    started = time.perf_counter()
    await echo(text="x")
    times.append(time.perf_counter() - started)
[times, time.process_time() - spent]
"""

GATHER = """
import asyncio, time
echo, = use_tools("box.echo")
await echo(text="warm")
started = time.perf_counter()
await asyncio.gather(*(echo(text="x") for _ in range({calls})))
time.perf_counter() - started
"""


SDK_ECHO = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("box")
@server.tool()
def echo(text: str) -> str:
    "Gives its text back."
    return text
server.run("stdio")
"""


def run(data: Path | None = None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="toolfold-bench-") as folder:
        home = Path(folder)
        metrics: dict[str, Any] = {
            "first_line": fast(first_lines(home / "start")),
            "bare_interpreter_with_pydantic_ms": bare_start(),
            "calls": [
                fast(calls(home / f"{tools}-{kind}", tools, kind, spec, data))
                for kind, spec in servers().items()
                for tools in TOOLS
            ],
            "wrappers": wrappers(data),
            "peers": peers(),
            "repetitions": {"starts": STARTS, "calls": CALLS * BATCHES, "gathered": GATHERED},
        }
    return {"name": "scripts", "metrics": metrics, "environment": environment("pydantic", "msgspec", "uvloop")}


def fast(work: Coroutine[Any, Any, T]) -> T:
    """On the event loop that the command line takes, too."""
    with asyncio.Runner(loop_factory=fast_loop) as runner:
        return runner.run(work)


async def first_lines(home: Path) -> dict[str, Any]:
    """Milliseconds from the call of `run_script` to lines of the script, by a clock that both processes share."""
    found: dict[str, Any] = {}
    for name, ready in (("pre_forked", 2), ("cold_fork", 0)):
        settings = Settings(servers=(misbehaving_spec("box"),), home=home, scripts=Scripts(ready=ready))
        async with Gateway(settings) as gateway:
            await gateway.build(index=False)
            await gateway.run_script(FIRST_LINE)
            lines: dict[str, list[float]] = {
                "first_line": [],
                "three_functions": [],
                "three_models_built": [],
                "whole": [],
            }
            for _ in range(STARTS):
                await asyncio.sleep(0.1)  # the next child gets ready
                received = time.monotonic_ns()
                result = await gateway.run_script(FIRST_LINE)
                ended = time.monotonic_ns()
                for key, at in zip(lines, [*result.answer, ended], strict=True):
                    lines[key].append((at - received) / 1e6)
            found[name] = {key: _spread(values) for key, values in lines.items()}
            found["sandbox"] = list(result.layers)
    return found


def bare_start() -> dict[str, float]:
    command = [sys.executable, "-c", "import asyncio, pydantic; pydantic.create_model('A', x=(int, 1))"]
    times = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run(command, check=True, timeout=60)
        times.append((time.perf_counter() - started) * 1000)
    return _spread(times)


def servers() -> dict[str, ServerSpec]:
    """A server that costs next to nothing, and, where the official SDK is installed, one as people write them."""
    found = {"bare": misbehaving_spec("box")}
    if find_spec("mcp") is not None:
        found["sdk"] = ServerSpec(name="box", transport="stdio", command=sys.executable, args=("-c", SDK_ECHO))
    return found


async def calls(home: Path, tools: int, kind: str, spec: ServerSpec, data: Path | None) -> dict[str, Any]:
    """A call inside a script beside a plain one, in turns, of the same real server over stdio."""
    settings = Settings(servers=(spec,), home=home)
    async with Gateway(settings) as gateway:
        own = await (await gateway.pool()).listing("box")
        missing = tools - len(own.tools)
        listings, source = recorded_listings(data, missing) if missing > 0 else ([], "the server's own")
        others = [Listing(server=f"other-{one.server}", tools=one.tools, info=one.info) for one in listings]
        await gateway.catalogue.rebuild([own, *others])
        await gateway.run_script(LOOP.format(calls=5))
        inside, plain = Series(), Series()
        gathered, gathered_plain = [], []
        for _ in range(BATCHES):
            await _plain_calls(gateway, plain)
            await _inside_calls(gateway, inside)
            started = time.perf_counter()
            await asyncio.gather(*(gateway.call_tool("box.echo", {"text": "x"}) for _ in range(GATHERED)))
            gathered_plain.append(time.perf_counter() - started)
            gathered.append((await gateway.run_script(GATHER.format(calls=GATHERED))).answer)
        return {
            "server": kind,
            "tools": max(tools, len(own.tools)),
            "tools_are": source,
            "inside_ms": inside.spread(),
            "plain_ms": plain.spread(),
            "inside_to_plain": round(inside.at(0.5) / plain.at(0.5), 3),
            "inside_to_plain_p10": round(inside.at(0.1) / plain.at(0.1), 3),
            "cpu_us": {"inside_host": inside.cpu(), "inside_child": inside.child_cpu(), "plain_host": plain.cpu()},
            "gather_100_inside_ms": round(percentile(gathered, 0.5) * 1000, 3),
            "gather_100_plain_ms": round(percentile(gathered_plain, 0.5) * 1000, 3),
        }


class Series:
    """Calls one after the other: how long each took, and what they cost the processes."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.host_s = self.child_s = 0.0

    def at(self, fraction: float) -> float:
        return percentile(self.seconds, fraction)

    def spread(self) -> dict[str, float]:
        return {f"p{part}": round(self.at(part / 100) * 1000, 4) for part in (10, 50, 95)}

    def cpu(self) -> float:
        return round(self.host_s / len(self.seconds) * 1e6, 1)

    def child_cpu(self) -> float:
        return round(self.child_s / len(self.seconds) * 1e6, 1)


async def _plain_calls(gateway: Gateway, series: Series) -> None:
    spent = time.process_time()
    for _ in range(CALLS):
        started = time.perf_counter()
        await gateway.call_tool("box.echo", {"text": "x"})
        series.seconds.append(time.perf_counter() - started)
    series.host_s += time.process_time() - spent


async def _inside_calls(gateway: Gateway, series: Series) -> None:
    """What a script costs without any call is taken off."""
    empty = time.process_time()
    await gateway.run_script(LOOP.format(calls=0))
    spent = time.process_time()
    times, child_s = (await gateway.run_script(LOOP.format(calls=CALLS))).answer
    series.host_s += time.process_time() - spent - (spent - empty)
    series.child_s += child_s
    series.seconds += times


def wrappers(data: Path | None) -> dict[str, Any]:
    """Microseconds per tool: describing it at the host (kept by fingerprint), and building everything in the child."""
    from toolfold.scripts.runtime.functions import BoundTool
    from toolfold.scripts.runtime.host_link import HostLink
    from toolfold.scripts.tool_specs import _describe_tool

    tools = _tools(data)
    describing, building = [], []
    for tool in tools:
        raw = tool.definition.output_schema
        output = json.loads(bytes(raw)) if raw is not None else None
        started = time.perf_counter()
        spec = _describe_tool(tool, output)
        described = time.perf_counter()
        bound = BoundTool(spec, HostLink.__new__(HostLink), _ignore)
        for name in bound.names:
            bound.get(name)
        describing.append((described - started) * 1e3)
        building.append((time.perf_counter() - described) * 1e3)
    return {"tools": len(tools), "describe_ms": _spread(describing), "build_models_ms": _spread(building)}


def _tools(data: Path | None) -> list[Tool]:
    if data is not None and (data / "servers").is_dir():
        return list(recorded_servers(data / "servers").tools)
    name, _, definitions = own_server()
    return [Tool(tool_id=f"{name}.{one.name}", server=name, definition=one, fingerprint="") for one in definitions]


def _ignore(_: str) -> None:
    return None


def _spread(values: list[float]) -> dict[str, float]:
    return {"p50": round(percentile(values, 0.5), 3), "p95": round(percentile(values, 0.95), 3)}
