"""`toolfold bench calls`: one call through the gateway beside the same call without it, and beside FastMCP's proxy.

One client, the same for all, holds a connection to each over stdio; calls go round them in turn, so that noise falls on
all alike. The server is built with the official SDK, as most are; a second one costs next to nothing, so that the
gateway's own time shows. The client is our own, which costs next to nothing; the official one is measured beside it.
CPU is that of the gateway's or proxy's process alone.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from benchmarks.hung_server import hung_beside_others
from benchmarks.measurement import environment, percentile
from benchmarks.peers import (
    BARE_SERVER,
    FASTMCP_PROXY,
    SDK_CLIENT,
    SDK_SERVER,
    can_import,
    peer_python,
    peer_version,
)
from benchmarks.processes import cpu_seconds, find
from toolfold.errors import ConfigError
from toolfold.wire import Connection, StdioTarget, WireOptions, connect

SIZES = {"1KB": (1024, 400), "100KB": (100 * 1024, 150), "10MB": (10 * 1024**2, 6)}
"""Size of the result, and calls of each."""
WARM_UP = 20
CPU_CALLS = 1500
LONG_S = 120.0

CONFIG = """\
[limits]
tool_response_max_bytes = 1073741824
tool_response_max_tokens = 1000000000
[servers.{name}]
command = {command}
args = [{script}]
"""

Route = tuple[str, StdioTarget, str]
"""A way to the server: its name, what to start, and what marks the process whose CPU counts."""


def run(data: Path | None = None, peers: Path | None = None) -> dict[str, Any]:
    del data
    python = peer_python(peers, "fastmcp")
    sdk = sys.executable if can_import(sys.executable, "mcp") else str(python or "")
    if not sdk:
        raise ConfigError(
            "the bench needs the official SDK for its server",
            next_action="pip install mcp, or give --peers DIR with an environment DIR/fastmcp that holds it",
        )
    with tempfile.TemporaryDirectory(prefix="toolfold-bench-") as folder:
        import uvloop

        metrics = uvloop.run(_measured(Path(folder), sdk, python))
    metrics["fastmcp"] = peer_version(python, "fastmcp") if python else "absent: give --peers DIR with DIR/fastmcp"
    return {"name": "calls", "metrics": metrics, "environment": environment("msgspec", "uvloop", "mcp")}


async def _measured(folder: Path, sdk: str, python: Path | None) -> dict[str, Any]:
    found: dict[str, Any] = {"repetitions": {name: count for name, (_, count) in SIZES.items()}}
    servers = {"sdk_server": (sdk, SDK_SERVER), "bare_server": (sys.executable, BARE_SERVER)}
    for name, (program, text) in servers.items():
        script = folder / f"{name}.py"
        script.write_text(text, encoding="utf-8")
        bare = name == "bare_server"
        routes = _routes(folder, name, program, script, None if bare else python)  # FastMCP does not find its tool
        sizes = {"1KB": SIZES["1KB"]} if bare else SIZES
        found[f"{name}_sdk_client"] = await asyncio.to_thread(_with_sdk_client, folder, sdk, name, routes, sizes)
        found[name] = await _around(name, routes, sizes)
    found["hung_server"] = await hung_beside_others(folder)
    return found


def _routes(folder: Path, name: str, program: str, script: Path, python: Path | None) -> list[Route]:
    config = folder / f"{name}.toml"
    quoted = (repr(value).replace("'", '"') for value in (program, str(script)))
    config.write_text(CONFIG.format(name=name, command=next(quoted), script=next(quoted)), encoding="utf-8")
    home = ("--home", str(folder / f"home-{name}"))
    serve = ("-m", "toolfold", "serve", "--config", str(config), *home)
    routes: list[Route] = [
        ("direct", StdioTarget(program, (str(script),)), str(script)),
        ("transparent", StdioTarget(sys.executable, (*serve, "--profile", "transparent")), "transparent"),
        ("discovery", StdioTarget(sys.executable, (*serve, "--profile", "discovery")), "discovery"),
    ]
    if python is not None:
        proxy = folder / "proxy.py"
        proxy.write_text(FASTMCP_PROXY, encoding="utf-8")
        routes.append(("fastmcp", StdioTarget(str(python), (str(proxy), program, str(script))), "proxy.py"))
    return routes


async def _around(server: str, routes: list[Route], sizes: dict[str, tuple[int, int]]) -> dict[str, Any]:
    opened: dict[str, Connection] = {}
    try:
        for name, target, _ in routes:
            opened[name] = await connect(
                target, options=WireOptions(start_timeout_s=60.0, request_timeout_s=LONG_S, max_frame_bytes=1 << 30)
            )
        call = {name: _caller(name, server, connection) for name, connection in opened.items()}
        found: dict[str, Any] = {label: await _round_robin(call, size, count) for label, (size, count) in sizes.items()}
        found["cpu_ms_per_call"] = await _cpu(routes, opened, call)
        return found
    finally:
        await asyncio.gather(*(connection.aclose() for connection in opened.values()))


def _with_sdk_client(
    folder: Path, sdk: str, server: str, routes: list[Route], sizes: dict[str, tuple[int, int]]
) -> dict[str, Any]:
    """The same with the official client in place of ours, which costs more by itself."""
    script = folder / "sdk_client.py"
    script.write_text(SDK_CLIENT, encoding="utf-8")
    ways = {
        name: (
            target.command,
            target.args,
            "call_tool" if name == "discovery" else "echo",
            f"{server}.echo" if name == "discovery" else "",
        )
        for name, target, _ in routes
    }
    work = msgspec.json.encode({"routes": ways, "sizes": sizes}).decode()
    done = subprocess.run([sdk, script, work], stdout=subprocess.PIPE, check=True, timeout=600)
    return {label: _compared(times) for label, times in msgspec.json.decode(done.stdout).items()}


Caller = Callable[[int], Any]


def _caller(route: str, server: str, connection: Connection) -> Caller:
    """The one call that is measured. Behind the discovery profile it goes through `call_tool`."""

    async def plain(size: int) -> Raw:
        return await connection.call_tool("echo", Raw(b'{"size":%d}' % size))

    async def discovered(size: int) -> Raw:
        arguments = b'{"tool_id":"%b.echo","args":{"size":%d}}' % (server.encode(), size)
        return await connection.call_tool("call_tool", Raw(arguments))

    return discovered if route == "discovery" else plain


async def _round_robin(call: dict[str, Caller], size: int, count: int) -> dict[str, Any]:
    times: dict[str, list[float]] = {name: [] for name in call}
    for number in range(count + min(WARM_UP, count // 3)):
        for name, one in call.items():
            started = time.perf_counter()
            result = await one(size)
            taken = time.perf_counter() - started
            if len(memoryview(result)) < size:
                raise ConfigError(f"{name} gave back {len(memoryview(result))} bytes instead of {size}")
            if number >= min(WARM_UP, count // 3):
                times[name].append(taken)
    return _compared(times)


def _compared(times: dict[str, list[float]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, values in times.items():
        paired = [one / direct for one, direct in zip(values, times["direct"], strict=True)]
        found[name] = {
            "p50_ms": round(percentile(values, 0.5) * 1000, 3),
            "p99_ms": round(percentile(values, 0.99) * 1000, 3),
            "to_direct": round(percentile(paired, 0.5), 3),
        }
    return found


async def _cpu(routes: list[Route], opened: dict[str, Connection], call: dict[str, Caller]) -> dict[str, Any]:
    """CPU of the process between client and server, over many calls of 1 KB."""
    found: dict[str, Any] = {}
    for name, _, marker in routes:
        pid = opened[name].pid
        process = find(pid, marker) if pid and sys.platform == "linux" else None
        if name == "direct" or process is None:
            continue
        before = cpu_seconds(process)
        for _ in range(CPU_CALLS):
            await call[name](1024)
        found[name] = round((cpu_seconds(process) - before) * 1000 / CPU_CALLS, 4)
    if "fastmcp" in found and found.get("transparent"):
        found["fastmcp_to_transparent"] = round(found["fastmcp"] / found["transparent"], 1)
    return found
