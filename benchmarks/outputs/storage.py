"""Storing a very large result through the gateway, beside `cat` to a file through a pipe. Above: `benchmarks.outputs`.

The gateway runs in a process of its own, so that its memory is its own.
"""

import asyncio
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.servers import LARGE_STDIO, ROOT
from toolfold.config import Settings
from toolfold.config.sections import Limits, Outputs
from toolfold.gateway import Gateway
from toolfold.types import ServerSpec


async def measure(folder: Path, size: int) -> dict[str, Any]:
    """Seconds and memory of both ways."""
    piped = await asyncio.to_thread(through_cat, folder, size)
    command = [sys.executable, "-m", "benchmarks.outputs.storage", str(folder), str(size)]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900
    )
    if done.returncode:
        return {"cat_s": piped, "failed": done.stderr.strip()[-300:]}
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "cat_s": piped, "times_cat": round(found["seconds"] / piped, 2)}


def through_cat(folder: Path, size: int) -> float:
    """The same server's bytes into a file through `cat`."""
    params = {"name": "large", "arguments": {"megabytes": size / 1_000_000}}
    request = json.dumps({"id": 1, "method": "tools/call", "params": params})
    target = folder / "piped"
    started = time.perf_counter()
    with (
        target.open("wb") as file,
        subprocess.Popen([sys.executable, str(LARGE_STDIO)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server,
        subprocess.Popen(["cat"], stdin=server.stdout, stdout=file) as cat,
    ):
        if server.stdin is not None:
            server.stdin.write(request.encode() + b"\n")
            server.stdin.close()
        cat.wait()
    target.unlink()
    return round(time.perf_counter() - started, 3)


async def store(folder: Path, size: int) -> dict[str, Any]:
    """One call through the gateway. Memory is what the process grew by from before the call to its peak."""
    spec = ServerSpec(
        name="large", transport="stdio", command=sys.executable, args=(str(LARGE_STDIO),), call_timeout_s=900.0
    )
    limits, outputs = Limits(call_timeout_s=900.0), Outputs(directory=str(folder))
    made = Settings(servers=(spec,), home=folder / "home", limits=limits, outputs=outputs)
    async with Gateway(made) as gateway:
        await gateway.build(index=False)
        await gateway.call_tool("large.large", {"megabytes": 1})
        before = memory("VmRSS")
        started = time.perf_counter()
        outcome = await gateway.call_tool("large.large", {"megabytes": size / 1_000_000})
        seconds = time.perf_counter() - started
        stored = outcome.stored
        return {
            "bytes": stored.bytes if stored is not None else 0,
            "tokens": stored.tokens if stored is not None else 0,
            "seconds": round(seconds, 3),
            "memory_growth_mb": round((memory("VmHWM") - before) / 1024, 1),
        }


def memory(name: str) -> int:
    """Kilobytes, where the system tells."""
    status = Path("/proc/self/status")
    found = re.search(rf"{name}:\s+(\d+)", status.read_text()) if status.exists() else None
    return int(found[1]) if found else 0


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(store(Path(sys.argv[1]), int(sys.argv[2])))))
