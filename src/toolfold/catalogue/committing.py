"""From listings to a committed generation: reads the build before, builds in a thread, writes, and tries again where
another process was faster. The one place where building and storing meet."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial as bound
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolfold.catalogue.build import Build, Placed, PlaceTools, Previous, build
from toolfold.catalogue.metadata import Rules
from toolfold.config import MetadataRule
from toolfold.errors import StoreChanged
from toolfold.storage.base import Store
from toolfold.types import Listing, ServerInfo, Tool

if TYPE_CHECKING:
    from toolfold.catalogue.ontology import Overrides

ATTEMPTS = 5
"""How often a build is made again because another process committed meanwhile."""


async def commit(
    store: Store,
    listings: Sequence[Listing],
    failures: Mapping[str, str],
    *,
    place: PlaceTools | None,
    rules: Sequence[MetadataRule],
    clock: Callable[[], float],
    partial: bool,
) -> Build:
    make = bound(
        build, listings, place=place or place_by_capability, failures=failures, rules=Rules(rules), partial=partial
    )
    for attempt in range(ATTEMPTS):
        before = await read_previous(store)
        made = await asyncio.to_thread(make, before, at=clock())
        try:
            return replace(made, generation=await store.commit(made.update))
        except StoreChanged:
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


async def read_previous(store: Store) -> Previous:
    async with store.snapshot() as view:
        return Previous(
            generation=view.generation,
            tools=tuple(await view.tools()),
            nodes=tuple(await view.nodes()),
            servers=tuple(await view.servers()),
            numbers=await view.version_numbers(),
        )


def place_by_capability(
    tools: Sequence[Tool], infos: Mapping[str, ServerInfo], *, overrides: "Overrides | None" = None
) -> Placed:
    """The ontology: by what the tools do, and as the owner's file of overrides wants it."""
    from toolfold.catalogue.ontology import build_ontology

    return build_ontology(tools, infos=infos, overrides=overrides)
