"""`toolfold bench fuzz`: odd arguments in every place of every operation, each answer timed, beside a bare JSON echo.

One client sends over stdio, to `toolfold serve` and to the echo in turn, so that noise falls on both alike. Nothing is
judged but time: that no answer is out of order is for the tests.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from benchmarks.measurement import environment, percentile
from benchmarks.peers import BARE_SERVER
from benchmarks.servers import misbehaving
from toolfold.errors import RemoteError
from toolfold.wire import Connection, StdioTarget, WireOptions, connect

LIMIT_MS = 100.0
SERVERS = 12
"""How many recorded servers are served, the largest first."""
LONG = 1_000_000
WARM_UP = 20

OWN = (
    *("", " ", "undefined", "null", "NaN", "-1e400", "\x00", "\x1b[31m", "\u202e\u2066", "Ω≈ç√∫", "田中さん", "\ufeff"),
    *("' OR 1=1 --", "<script>alert(1)</script>", "../../etc/passwd", "%00%s%n", "{{7*7}}", "$(id)"),
    *("a" * 10_000, "\\" * 999),
)
"""Used where no folder with more is given."""


def run(data: Path | None = None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="toolfold-bench-") as folder:
        metrics = asyncio.run(_measured(Path(folder), data))
    return {"name": "fuzz", "metrics": metrics, "environment": environment("msgspec", "jsonschema-rs")}


async def _measured(folder: Path, data: Path | None) -> dict[str, Any]:
    strings = _strings(data)
    script = folder / "bare.py"
    script.write_text(BARE_SERVER, encoding="utf-8")
    serve = _prepared(folder, script, data)
    options = WireOptions(start_timeout_s=60.0, request_timeout_s=60.0)
    served = await connect(serve, options=options)
    try:
        echo = await connect(StdioTarget(sys.executable, (str(script),)), options=options)
        try:
            operations = await _operations(served)
            groups = {"odd": list(_odd(operations, strings)), "long": list(_long(operations))}
            found: dict[str, Any] = {"strings": len(strings), "limit_ms": LIMIT_MS}
            # The first unknown id is looked for by search, which loads its weights then.
            found["first_search_ms"] = round(await _ms(served, "expand_tool", b'{"tool_id":"unknown"}'), 1)
            for name, asked in groups.items():
                found[name] = await _timed(served, echo, asked)
            return found
        finally:
            await echo.aclose()
    finally:
        await served.aclose()


def _strings(data: Path | None) -> list[str]:
    file = data / "suites" / "naughty-strings" / "blns.json" if data is not None else None
    return [*OWN, *(msgspec.json.decode(file.read_bytes(), type=list[str]) if file and file.is_file() else ())]


def _prepared(folder: Path, script: Path, data: Path | None) -> StdioTarget:
    """A built catalogue of real tools where there are some, and what serves it."""
    recorded = sorted((data / "servers").glob("*.json"), key=lambda file: -file.stat().st_size) if data else []
    replay = misbehaving("--era", "legacy", "--replay")
    servers = {f"recorded{number}": (*replay, str(file.resolve())) for number, file in enumerate(recorded[:SERVERS])}
    config = folder / "toolfold.toml"
    config.write_text(
        "".join(
            f"[servers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps(arguments)}\n"
            for name, arguments in (*servers.items(), ("bare", (str(script),)))
        ),
        encoding="utf-8",
    )
    base = ("-m", "toolfold", "--config", str(config), "--home", str(folder / "home"))
    subprocess.run([sys.executable, *base, "build"], check=True, capture_output=True, timeout=300)
    return StdioTarget(sys.executable, (*base, "serve", "--profile", "discovery"))


async def _operations(served: Connection) -> dict[str, list[str]]:
    """The names of each operation's arguments. Scripts are run for real, so they are left out; `tool_output` is there
    also while nothing is stored and it is not listed."""
    tools = [msgspec.json.decode(tool) for tool in (await served.list_tools()).tools]
    listed = {tool["name"]: list(tool["inputSchema"]["properties"]) for tool in tools if tool["name"] != "run_script"}
    return {**listed, "tool_output": ["handle", "extract", "mode"]}


Asked = tuple[str, bytes]


def _odd(operations: dict[str, list[str]], strings: list[str]) -> Iterator[Asked]:
    for text in strings:
        for name, keys in operations.items():
            for value in (text, [text], {text: text}):
                yield name, json.dumps(dict.fromkeys(keys, value)).encode()


def _long(operations: dict[str, list[str]]) -> Iterator[Asked]:
    for name, keys in operations.items():
        for value in ("rename a symbol " * (LONG // 16), ["a"] * (LONG // 100)):
            for key in keys:
                yield name, json.dumps({key: value}).encode()


async def _timed(served: Connection, echo: Connection, asked: list[Asked]) -> dict[str, Any]:
    through: list[float] = []
    bare: list[float] = []
    slowest: dict[str, float] = {}
    for number, (name, arguments) in enumerate([*asked[:WARM_UP], *asked]):
        taken = await _ms(served, name, arguments)
        beside = await _ms(echo, "echo", b'{"text":"ok","given":%b}' % arguments)
        if number >= min(WARM_UP, len(asked)):
            through.append(taken)
            bare.append(beside)
            slowest[name] = max(slowest.get(name, 0.0), round(taken, 1))
    return {"calls": len(through), "toolfold": _figures(through), "echo": _figures(bare), "slowest_ms": slowest}


async def _ms(connection: Connection, name: str, arguments: bytes) -> float:
    started = time.perf_counter()
    with contextlib.suppress(RemoteError):  # refused is answered, too
        await connection.call_tool(name, Raw(arguments))
    return (time.perf_counter() - started) * 1000


def _figures(times: list[float]) -> dict[str, Any]:
    return {
        "p50_ms": round(percentile(times, 0.5), 3),
        "p99_ms": round(percentile(times, 0.99), 3),
        "max_ms": round(max(times, default=0.0), 3),
        "over_limit": sum(one > LIMIT_MS for one in times),
    }
