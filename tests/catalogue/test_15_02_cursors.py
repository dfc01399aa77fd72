"""Following a cursor to its end shows every tool that was there throughout, or ends in `BAD_CURSOR`: never less.

Whatever happens to the catalogue between two pages: tools come, go, and move to other categories.
"""

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from catalogue_kit import Shelves, catalogue_in, listing
from hypothesis import given, settings
from hypothesis import strategies as st

from toolfold import Gateway, Settings
from toolfold.errors import BadCursor
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import Node, ServerInfo, Tool

# What to do is said with the operation to repeat.
AGAIN = "without a cursor"
NAMES = [f"tool_{letter}" for letter in "abcdefghijkl"]
SHELVES = [("Top",), ("Top", "Inner"), ("Other",)]
# Each tool that is there stands on one shelf.
States = st.lists(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(SHELVES), min_size=1), min_size=2, max_size=6)


@settings(max_examples=60, deadline=None)
@given(states=States, limit=st.integers(1, 4))
def test_15_02_a_listing_followed_to_its_end_loses_no_tool(
    states: list[dict[str, tuple[str, ...]]], limit: int
) -> None:
    now = states[0]

    def place(tools: Sequence[Tool], infos: Mapping[str, ServerInfo]) -> Shelves:
        used = {path[:depth] for path in now.values() for depth in (1, 2)} | {("Top",)}
        nodes = tuple(Node(path=path, summary=path[-1]) for path in sorted(used))
        return Shelves(nodes, {tool.tool_id: (now.get(tool.name, ("Other",)),) for tool in tools})

    async def main(folder: Path) -> str:
        nonlocal now
        # A second server that changes with every state makes sure that tools are placed anew.
        async with catalogue_in(folder, listing("s", *now), listing("n", "x"), place=place) as catalogue:
            page = await catalogue.list(("Top",), limit=limit)
            seen = {tool.name for tool in page.tools}
            there = {name for name, path in now.items() if path == ("Top",)}
            later = enumerate(states[1:])
            while page.next_cursor:
                number, now = next(later, (0, now))
                there &= now.keys()
                await catalogue.update([listing("s", *now), listing("n", f"x{number}")])
                try:
                    page = await catalogue.list(("Top",), limit=limit, cursor=page.next_cursor)
                except BadCursor as error:
                    return error.next_action
                seen |= {tool.name for tool in page.tools}
            assert there <= seen
            return AGAIN

    with tempfile.TemporaryDirectory() as folder:
        assert AGAIN in asyncio.run(main(Path(folder)))


VERBS = ("find", "list", "cancel", "refund", "ship", "print", "count", "archive")
Offers = st.lists(st.sets(st.sampled_from(VERBS), min_size=2), min_size=1, max_size=3)


@settings(max_examples=12, deadline=None)
@given(offers=Offers, limit=st.integers(1, 3), query=st.booleans())
def test_15_02_a_search_followed_to_its_end_loses_no_tool(offers: list[set[str]], limit: int, query: bool) -> None:
    def tools(verbs: set[str]) -> list[dict[str, object]]:
        schema = {"type": "object"}
        return [
            {"name": f"{verb}_order", "description": f"{verb} an order of the shop.", "inputSchema": schema}
            for verb in sorted(verbs)
        ]

    async def main(folder: Path) -> str:
        shop = MemoryUpstream("shop", tools(offers[0]))
        async with Gateway(Settings(home=folder), upstreams=[shop]) as gateway:
            await gateway.build()
            whole = await page(gateway, 50, None, query)
            there = {pointer["tool_id"] for pointer in whole["results"]}
            later = iter(offers[1:])
            found = await page(gateway, limit, None, query)
            seen = {pointer["tool_id"] for pointer in found["results"]}
            while found["next_cursor"]:
                verbs = next(later, None)
                if verbs is not None:
                    shop.set_tools(tools(verbs))
                    await gateway.reread("shop")
                    there &= {f"shop.{verb}_order" for verb in verbs}
                # What is learned between two pages may rank the tools anew, in the same generation.
                await gateway.search.learn("do something with an order", f"shop.{max(offers[0])}_order")
                try:
                    found = await page(gateway, limit, found["next_cursor"], query)
                except BadCursor as error:
                    return error.next_action
                seen |= {pointer["tool_id"] for pointer in found["results"]}
            assert there <= seen
            return AGAIN

    async def page(gateway: Gateway, limit: int, cursor: str | None, listed: bool) -> Mapping[str, Any]:
        words = "do something with an order"
        if not listed:
            return await gateway.search_tool_by_category(words, (), limit=limit, cursor=cursor)
        answer = await gateway.list((), query=words, limit=limit, cursor=cursor)
        return {"results": answer["tools"], "next_cursor": answer["next_cursor"]}

    with tempfile.TemporaryDirectory() as folder:
        assert AGAIN in asyncio.run(main(Path(folder)))
