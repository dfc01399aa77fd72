"""Listings for benches: real tools recorded from servers where a folder of them is given, else made from our own.

The folder has `servers/NAME.json` and may have `retrieval/mcpflow_toucan/tools.jsonl`; `common.py` reads both.
"""

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path

from toolfold.bench.common import made_tool, recorded_servers, retrieval_tools
from toolfold.types import Listing, ServerInfo, ToolDefinition

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
            tools.append(made_tool("library", entry).definition)
    return "library", ServerInfo(name="library"), tools
