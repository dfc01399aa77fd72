"""Listings for benches: real tools recorded from servers where a folder of them is given, else made from our own.

The folder has `servers/NAME.json` (with `initialize` and `tools`) and may have `retrieval/SET/tools.jsonl`.
"""

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from toolfold.types import Listing, ServerInfo
from toolfold.upstream.definitions import read_definitions


def recorded_listings(data: Path | None, tools: int) -> tuple[list[Listing], str]:
    """As many tools as asked for, in whole servers until the last, and a sentence on where they come from."""
    source = list(real_servers(data)) if data is not None else []
    said = "real tools recorded from servers" if source else "tools made from the package's own functions"
    if not source:
        source = [own_server()]
    listings: list[Listing] = []
    left, round_ = tools, 0
    while left > 0:
        for name, info, raws in source:
            if left <= 0:
                break
            suffix = f"-{round_}" if round_ else ""
            found, _ = read_definitions(raws[:left])
            if found:
                listings.append(Listing(server=f"{name}{suffix}", tools=found, info=info))
                left -= len(found)
        round_ += 1
    return listings, said if round_ == 1 else f"{said}, each server repeated under {round_} names"


def real_servers(data: Path) -> Iterator[tuple[str, ServerInfo, list[Raw]]]:
    for file in sorted((data / "servers").glob("*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        about = record["initialize"].get("serverInfo", {})
        info = ServerInfo(
            name=str(about.get("name", "")), instructions=record["initialize"].get("instructions") or "", era="legacy"
        )
        yield file.stem, info, [raw(tool) for tool in record["tools"] or []]
    for file in sorted((data / "retrieval").glob("mcpflow*/tools.jsonl")):
        yield from listed_servers(file)


def listed_servers(file: Path) -> Iterator[tuple[str, ServerInfo, list[Raw]]]:
    """A retrieval set as servers: its tools grouped by the server that each names."""
    servers: dict[str, tuple[ServerInfo, list[Raw]]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        name = str(record.get("id", "")).partition("::")[0] or "set"
        about = ServerInfo(name=str(record.get("server", "")), instructions=str(record.get("server_description", "")))
        parameters = record.get("parameters")
        schema = parameters if isinstance(parameters, dict) else {"type": "object"}
        tool = {"name": record["name"], "description": record.get("description") or "", "inputSchema": schema}
        servers.setdefault(name, (about, []))[1].append(raw(tool))
    for name, (info, tools) in sorted(servers.items()):
        yield name.lstrip("@").replace("/", "-"), info, tools


def own_server() -> tuple[str, ServerInfo, list[Raw]]:
    """The public functions of the standard library's plainer modules, by signature and first line."""
    import calendar
    import shutil
    import statistics
    import textwrap

    tools = []
    for module in (calendar, shutil, statistics, textwrap):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("_") or function.__module__ != module.__name__:
                continue
            properties = {word: {"type": "string"} for word in inspect.signature(function).parameters}
            text = (inspect.getdoc(function) or name).splitlines()[0]
            schema = {"type": "object", "properties": properties}
            tools.append(raw({"name": f"{module.__name__}_{name}", "description": text, "inputSchema": schema}))
    return "library", ServerInfo(name="library"), tools


def raw(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))
