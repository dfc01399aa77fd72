"""Tools and listings for benches: recorded from real servers where a folder of them is given, else made from our own.

The folder has `servers/NAME.json` and may have `retrieval/SET/tools.jsonl`.
"""

import inspect
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from toolfold.catalogue.build import _summarise
from toolfold.catalogue.metadata import Rules
from toolfold.types import Listing, ServerInfo, Tool, ToolDefinition
from toolfold.upstream.definitions import _read_definition

Server = tuple[str, ServerInfo, Sequence[ToolDefinition]]


def recorded_listings(data: Path | None, tools: int) -> tuple[list[Listing], str]:
    """As many tools as asked for, in whole servers until the last, and a sentence on where they come from."""
    source = list(real_servers(data)) if data is not None else []
    said = "real tools recorded from servers" if source else "tools made from the standard library's functions"
    if not source:
        source = [own_server()]
    listings: list[Listing] = []
    left, round_ = tools, 0
    while left > 0:
        for name, info, definitions in source:
            taken = tuple(definitions[:left])
            if taken:
                listings.append(Listing(server=f"{name}-{round_}" if round_ else name, tools=taken, info=info))
                left -= len(taken)
        round_ += 1
    return listings, said if round_ == 1 else f"{said}, each server repeated under {round_} names"


def real_servers(data: Path) -> Iterator[Server]:
    sets = [recorded_servers(data / "servers")] if (data / "servers").is_dir() else []
    if (data / "retrieval" / "mcpflow_toucan").is_dir():
        sets.append(retrieval_tools(data / "retrieval" / "mcpflow_toucan"))
    for recorded in sets:
        by_server: dict[str, dict[str, ToolDefinition]] = {}
        for tool in recorded.tools:
            by_server.setdefault(tool.server, {}).setdefault(tool.name, tool.definition)
        for server, definitions in by_server.items():
            # Two sets may know a server of one name.
            yield f"{recorded.name}-{server}", recorded.infos.get(server, ServerInfo()), list(definitions.values())


def own_server() -> Server:
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
            entry = {"name": f"{module.__name__}_{name}", "description": text, "inputSchema": schema}
            tools.append(build_tool("library", entry).definition)
    return "library", ServerInfo(name="library"), tools


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
        tools += [build_tool(file.stem, entry) for entry in record["tools"]]
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
            tools.append(build_tool(server, made))
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


def build_tool(server: str, entry: dict[str, Any]) -> Tool:
    """A tool as the catalogue makes it, so that what is counted is what a model would read."""
    definition, _ = _read_definition(msgspec.Raw(msgspec.json.encode(entry)))
    if definition is None:
        raise ValueError(f"no tool of {server}: {entry}")
    tool_id = f"{server}.{definition.name}"
    metadata = Rules().metadata(tool_id, definition)
    return Tool(
        tool_id=tool_id,
        server=server,
        definition=definition,
        fingerprint="",
        summary=_summarise(definition),
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
