"""`toolfold bench build`: a catalogue of 10,000 tools from recorded listings, CPU seconds by part.

Beside it, in the same run, the bare floor: decoding the same tools with the JSON module of the standard library and
writing them to one SQLite table.
"""

import asyncio
import json
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measurement import cpu_time, environment
from benchmarks.recorded import recorded_listings
from toolfold.config import Settings
from toolfold.gateway import Gateway
from toolfold.types import Listing

TOOLS = 10_000


def run(data: Path | None = None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="toolfold-bench-") as folder:
        listings, source = recorded_listings(data, TOOLS)
        metrics = asyncio.run(measured(listings, Path(folder)))
        with cpu_time() as floor:
            bare(listings, Path(folder) / "bare.sqlite")
        store = sum(file.stat().st_size for file in Path(folder).glob("toolfold.sqlite*"))
        registry = (Path(folder) / "tool_registry.json").stat().st_size
    metrics |= {"store_mb": round(store / 1024**2, 2), "registry_mb": round(registry / 1024**2, 2)}
    metrics |= {"bare_decode_and_insert_cpu_s": round(floor.seconds, 3), "tools_are": source, "repetitions": 1}
    return {"name": "build", "metrics": metrics, "environment": environment("msgspec")}


async def measured(listings: list[Listing], home: Path) -> dict[str, Any]:
    started = time.perf_counter()
    async with Gateway(Settings(home=home)) as gateway:
        with cpu_time() as first:
            build = await gateway.catalogue.rebuild(listings)
        with cpu_time() as registry:
            await gateway.catalogue.write_registry(gateway.settings.registry_path)
        with cpu_time() as again:
            same = await gateway.catalogue.rebuild(listings)
        one = max(listings, key=lambda listing: len(listing.tools))
        changed = Listing(server=one.server, tools=one.tools[:-1], info=one.info)
        with cpu_time() as update:
            await gateway.catalogue.update_server(changed)
        return {
            "tools": build.report.tools,
            "servers": len(listings),
            "nodes": build.report.nodes,
            "build_cpu_s": round(first.seconds, 3),
            "registry_cpu_s": round(registry.seconds, 3),
            "rebuild_unchanged_cpu_s": round(again.seconds, 3),
            "rebuild_unchanged_changes": len(same.changes),
            "one_server_changed_cpu_s": round(update.seconds, 3),
            "wall_s": round(time.perf_counter() - started, 2),
        }


def bare(listings: list[Listing], file: Path) -> None:
    connection = sqlite3.connect(file)
    try:
        connection.execute("create table tools (server text, name text, body text)")
        rows = [
            (listing.server, json.loads(bytes(tool.raw))["name"], bytes(tool.raw).decode())
            for listing in listings
            for tool in listing.tools
        ]
        connection.executemany("insert into tools values (?, ?, ?)", rows)
        connection.commit()
    finally:
        connection.close()
