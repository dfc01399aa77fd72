"""Search through the gateway: pointers and categories for requests in plain words, and an honest "nothing fits"."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from toolfold import Gateway, Settings
from toolfold.errors import BadCursor, InvalidArguments, NoMatchInCategory, ToolNotFound, UnknownPath
from toolfold.events import Event
from toolfold.testing.memory_upstream import MemoryUpstream

pytestmark = pytest.mark.usefixtures("engine")  # on both engines

T = TypeVar("T")

GIT = {
    "git_log": "Shows the commit history of a branch, newest first.",
    "git_diff": "Shows what changed between two commits.",
    "git_blame": "Tells who last changed each line of a file.",
    "create_branch": "Creates a new branch.",
}
SHOP = {
    "find_order": "Finds a customer's order by its number.",
    "refund_order": "Refunds the payment of an order to the customer.",
    "list_products": "Lists the products of the shop with price and stock.",
}
MAIL = {
    "send_email": "Sends an e-mail message to one or more recipients.",
    "search_inbox": "Searches the messages of the mailbox.",
}


def tools_of(texts: dict[str, str]) -> list[dict[str, Any]]:
    return [{"name": tool, "description": text, "inputSchema": {"type": "object"}} for tool, text in texts.items()]


def upstream(name: str, texts: dict[str, str]) -> MemoryUpstream:
    return MemoryUpstream(name, tools_of(texts))


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


class Built:
    """A gateway over three small servers, built."""

    def __init__(self, home: Path) -> None:
        self.shop = upstream("shop", SHOP)
        self.gateway = Gateway(Settings(home=home), upstreams=[upstream("git", GIT), self.shop, upstream("mail", MAIL)])

    async def __aenter__(self) -> Gateway:
        await self.gateway.__aenter__()
        await self.gateway.build()
        return self.gateway

    async def __aexit__(self, *exc_info: object) -> None:
        await self.gateway.aclose()


@pytest.mark.requirement("D-03")
def test_pointers_come_ranked_and_hold_what_a_pointer_holds(tmp_path: Path) -> None:
    async def main() -> None:
        async with Built(tmp_path) as gateway:
            found = await gateway.search_tool_by_category("who changed this line of code", [])
            assert set(found) == {"category_path", "results", "next_cursor"}
            assert found["results"][0]["tool_id"] == "git.git_blame"
            assert all(set(one) == {"tool_id", "path", "summary", "tags", "confidence"} for one in found["results"])
            confidences = [one["confidence"] for one in found["results"]]
            assert all(0 <= one <= 1 for one in confidences)

    run(main())


@pytest.mark.requirement("D-03")
def test_a_category_bounds_the_search_and_all_below_it_counts(tmp_path: Path) -> None:
    async def main() -> None:
        async with Built(tmp_path) as gateway:
            found = await gateway.search_tool_by_category("give the money back", ["servers", "SHOP"])
            assert found["category_path"] == ["Servers", "shop"]
            assert found["results"][0]["tool_id"] == "shop.refund_order"
            above = await gateway.search_tool_by_category("give the money back", ["Servers"])
            assert above["results"][0]["tool_id"] == "shop.refund_order"

    run(main())


@pytest.mark.requirement("D-03")
def test_pages_of_a_ranking_join_without_gap_or_repeat(tmp_path: Path) -> None:
    async def main() -> None:
        async with Built(tmp_path) as gateway:
            whole = await gateway.search_tool_by_category("orders of a customer", [], limit=9)
            pages, cursor = [], None
            for _ in range(9):
                page = await gateway.search_tool_by_category("orders of a customer", [], limit=2, cursor=cursor)
                pages += page["results"]
                cursor = page["next_cursor"]
                if cursor is None:
                    break
            assert pages == whole["results"]
            assert len(pages) == 9

    run(main())


def test_a_ranking_of_an_older_catalogue_is_not_continued(tmp_path: Path) -> None:
    async def main() -> None:
        built = Built(tmp_path)
        async with built as gateway:
            page = await gateway.search_tool_by_category("orders of a customer", [], limit=1)
            built.shop.set_tools([])
            await gateway.build()
            with pytest.raises(BadCursor):
                await gateway.search_tool_by_category("orders of a customer", [], limit=1, cursor=page["next_cursor"])

    run(main())


@pytest.mark.requirement("D-14")
def test_nothing_fits_is_an_answer_and_names_categories_that_do_match(tmp_path: Path) -> None:
    async def main() -> None:
        async with Built(tmp_path) as gateway:
            with pytest.raises(NoMatchInCategory) as elsewhere:
                await gateway.search_tool_by_category("send an e-mail to a colleague", ["Servers", "git"])
            found = [tuple(path) for path in elsewhere.value.categories]
            assert elsewhere.value.hints[0]["tool_id"] == "mail.send_email"
            mail = await gateway.catalogue.tool("mail.send_email")
            assert set(found) & {path[:depth] for path in mail.paths for depth in (1, 2, 3)}

    run(main())


@pytest.mark.requirement("D-04")
def test_categories_come_ranked_with_summary_and_confidence(tmp_path: Path) -> None:
    async def main() -> None:
        async with Built(tmp_path) as gateway:
            found = await gateway.search_nodes("see the history of commits", limit=3)
            assert set(found) == {"results"}
            assert all(set(one) == {"path", "summary", "confidence"} for one in found["results"])
            tool = await gateway.catalogue.tool("git.git_log")
            best = tuple(found["results"][0]["path"])
            assert any(path[: len(best)] == best for path in tool.paths)
            assert best[0] != "Servers"
            assert "note" in await gateway.search_nodes("book a flight to the moon")

    run(main())


def test_an_unknown_category_and_an_empty_request_are_told_apart(tmp_path: Path) -> None:
    async def main() -> None:
        async with Built(tmp_path) as gateway:
            with pytest.raises(UnknownPath):
                await gateway.search_tool_by_category("commits", ["No such place"])
            with pytest.raises(InvalidArguments):
                await gateway.search_tool_by_category("   ", [])

    run(main())


@pytest.mark.requirement("U-04")
def test_a_need_is_resolved_to_one_tool_or_refused_with_the_nearest(tmp_path: Path) -> None:
    async def main() -> None:
        async with Built(tmp_path) as gateway:
            need = await gateway.search.resolve(gateway.view(), "a tool to get the git commit log")
            assert (need.tool.tool_id, need.query) == ("git.git_log", "a tool to get the git commit log")
            inside = await gateway.search.resolve(gateway.view(), "find an order", server="shop")
            assert inside.tool.tool_id == "shop.find_order"
            with pytest.raises(ToolNotFound) as caught:
                await gateway.search.resolve(gateway.view(), "a tool to fold laundry")
            assert caught.value.query == "a tool to fold laundry"
            assert caught.value.candidates

    run(main())


def test_the_index_follows_the_catalogue_and_embeds_nothing_twice(tmp_path: Path) -> None:
    async def main() -> None:
        told: list[Event] = []
        built = Built(tmp_path)
        built.gateway.events.subscribe(told.append)
        async with built as gateway:
            await gateway.search_tool_by_category("orders of a customer", [])
            cancel = {"name": "cancel_order", "description": "Cancels an order.", "inputSchema": {}}
            built.shop.set_tools([cancel, *tools_of({"find_order": SHOP["find_order"]})])
            await gateway.build()
            found = await gateway.search_tool_by_category("cancel an order", [])
            assert found["results"][0]["tool_id"] == "shop.cancel_order"
            assert "shop.refund_order" not in {one["tool_id"] for one in found["results"]}
        assert [event.data["embedded"] for event in told if event.name == "search.synced"] == [9, 1]
        again = Gateway(Settings(home=tmp_path))
        async with again:
            assert await again.search.sync() == 0

    run(main())
