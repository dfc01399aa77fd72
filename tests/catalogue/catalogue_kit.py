"""What the catalogue's tests share: small listings, a plain placement, and a catalogue in a folder."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path as FilePath
from typing import Any

from msgspec import Struct

from toolfold.catalogue.build import PlaceTools
from toolfold.catalogue.catalogue import Catalogue
from toolfold.config import Settings
from toolfold.storage import factory
from toolfold.storage.base import Store
from toolfold.storage.records import _parse_definition
from toolfold.types import Listing, Node, Path, ServerInfo, Tool, ToolDefinition


def definition(name: str, **fields: Any) -> ToolDefinition:
    return _parse_definition(json.dumps({"name": name, "inputSchema": {"type": "object"}, **fields}).encode())


def listing(server: str, *tools: str | ToolDefinition, **fields: Any) -> Listing:
    return Listing(
        server=server,
        tools=tuple(definition(one, description=f"Does {one}.") if isinstance(one, str) else one for one in tools),
        **fields,
    )


class Shelves(Struct):
    nodes: tuple[Node, ...]
    placements: dict[str, tuple[Path, ...]]
    warnings: tuple[str, ...] = ()


def by_server_and_verb(tools: Sequence[Tool], infos: Mapping[str, ServerInfo]) -> Shelves:
    """Each tool under its server, and under the first word of its name."""
    placements: dict[str, tuple[Path, ...]] = {}
    counts: dict[Path, int] = {}
    for tool in tools:
        verb = tool.name.split("_")[0].title()
        placements[tool.tool_id] = (("By verb", verb), ("By server", tool.server))
        for path in placements[tool.tool_id]:
            for end in range(1, len(path) + 1):
                counts[path[:end]] = counts.get(path[:end], 0) + 1
    nodes = tuple(Node(path=path, summary=f"About {path[-1]}", tools=count) for path, count in sorted(counts.items()))
    return Shelves(nodes, placements)


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def store_in(folder: FilePath, *, create: bool = True) -> Store:
    """A store for that folder, of the engine that the test runs with."""
    return factory.open_store(Settings(home=folder), create)


@asynccontextmanager
async def catalogue_in(
    folder: FilePath, *listings: Listing, place: PlaceTools = by_server_and_verb, **options: Any
) -> AsyncIterator[Catalogue]:
    """A catalogue of the listings; without any, as an earlier one left it in that folder."""
    async with store_in(folder) as store:
        catalogue = Catalogue(store, place=place, **options)
        if listings:
            await catalogue.rebuild(listings)
        yield catalogue
