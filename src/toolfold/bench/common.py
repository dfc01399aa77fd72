"""What every bench needs: facts of the machine, percentiles, CPU time, and tools read from recorded material.

Nothing here judges: a bench says what its figures mean.
"""

import json
import os
import platform
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from toolfold.catalogue.metadata import Rules
from toolfold.catalogue.summary import summarise
from toolfold.types import ServerInfo, Tool
from toolfold.upstream.definitions import read_definition


def environment(*packages: str) -> dict[str, Any]:
    """Where a figure was measured: interpreter, machine, cores, load, and the versions of `packages`."""
    return {
        "toolfold": _version("toolfold"),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "packages": {package: _version(package) for package in packages},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the values lie; the nearest of them, 0 where there are none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Spent:
    """CPU seconds of this process between entering and leaving `cpu_time()`."""

    seconds: float = 0.0


@contextmanager
def cpu_time() -> Iterator[Spent]:
    spent = Spent()
    started = time.process_time()
    try:
        yield spent
    finally:
        spent.seconds = time.process_time() - started


class RecordedTools(msgspec.Struct, frozen=True):
    """A set of tools from recorded material, with what their servers say and, where given, their categories."""

    name: str
    tools: tuple[Tool, ...]
    infos: dict[str, ServerInfo]
    categories: dict[str, str] = {}
    """tool_id → the category that the set's makers gave it."""


def recorded_servers(folder: Path) -> RecordedTools:
    """All tools of `folder/*.json`, one recorded server a file."""
    tools: list[Tool] = []
    infos: dict[str, ServerInfo] = {}
    for file in sorted(folder.glob("*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        started = record.get("initialize") or {}
        said = started.get("serverInfo") or {}
        infos[file.stem] = ServerInfo(
            name=said.get("name") or "", title=said.get("title") or "", instructions=started.get("instructions") or ""
        )
        tools += [made_tool(file.stem, entry) for entry in record["tools"]]
    return RecordedTools(folder.name, _with_distinct_ids(tools), infos)


def retrieval_tools(folder: Path) -> RecordedTools:
    """All tools of `folder/tools.jsonl`; the first element of `category` is the category, the last the server."""
    tools: list[Tool] = []
    infos: dict[str, ServerInfo] = {}
    given: list[str] = []
    names: dict[str, str] = {}
    with (folder / "tools.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            category = entry.get("category") or [""]
            full = str(category[-1]) if len(category) > 1 else entry.get("server") or "tools"
            server = names.get(full) or _unused(short_server(full), names)
            names[full] = server
            infos[server] = ServerInfo(
                name=entry.get("server") or "", instructions=entry.get("server_description") or ""
            )
            parameters = entry.get("parameters")
            schema = parameters if isinstance(parameters, dict) else {"type": "object"}
            made = {"name": entry["name"], "description": entry.get("description") or "", "inputSchema": schema}
            tools.append(made_tool(server, made))
            given.append(str(category[0]))
    distinct = _with_distinct_ids(tools)
    categories = {tool.tool_id: category for tool, category in zip(distinct, given, strict=True) if category}
    return RecordedTools(folder.name, distinct, infos, categories)


def short_server(name: str) -> str:
    """`@owner_some-mcp-server` → `some`: what a person would call the server in a configuration."""
    owner, _, bare = name.removeprefix("@").replace("/", "_").partition("_")
    for text in (bare, owner):
        words = [word for word in re.split(r"[^A-Za-z0-9]+", text.lower()) if word not in {"mcp", "server", ""}]
        if words:
            return "-".join(words)
    return name


def _unused(name: str, names: dict[str, str]) -> str:
    taken = set(names.values())
    return next(free for n in range(1, len(taken) + 2) if (free := name if n == 1 else f"{name}-{n}") not in taken)


def made_tool(server: str, entry: dict[str, Any]) -> Tool:
    """A tool as the catalogue makes it, so that what is counted is what a model would read."""
    definition, _ = read_definition(msgspec.Raw(msgspec.json.encode(entry)))
    if definition is None:
        raise ValueError(f"no tool of {server}: {entry}")
    tool_id = f"{server}.{definition.name}"
    metadata = Rules().metadata(tool_id, definition)
    return Tool(
        tool_id=tool_id,
        server=server,
        definition=definition,
        fingerprint="",
        summary=summarise(definition),
        tags=metadata.tags,
        risks=metadata.risks,
    )


def _with_distinct_ids(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    seen: dict[str, int] = {}
    result: list[Tool] = []
    for tool in tools:
        count = seen[tool.tool_id] = seen.get(tool.tool_id, 0) + 1
        result.append(tool if count == 1 else msgspec.structs.replace(tool, tool_id=f"{tool.tool_id}-{count}"))
    return tuple(result)
