"""What a model reads first has exactly the keys of the discovery protocol, and never a schema."""

import asyncio
from pathlib import Path

import pytest
from catalogue_kit import catalogue_in, definition, listing
from msgspec.json import encode

from toolfold.catalogue.catalogue import Page
from toolfold.disclosure.render import render_list_page, render_listing, render_node_page, render_tool_page
from toolfold.search.service import _ListPage, _NodePage, _RankedNode, _RankedTool, _ToolPage
from toolfold.testing.store_conformance import sample_tool
from toolfold.types import Node

pytestmark = pytest.mark.usefixtures("engine")  # on both engines


@pytest.mark.requirement("D-12")
def test_a_listing_holds_nodes_and_pointers_with_risk_in_the_tags(tmp_path: Path) -> None:
    put = definition("put_object", description="Uploads an object to a bucket.", annotations={"readOnlyHint": False})

    async def main() -> None:
        async with catalogue_in(tmp_path, listing("storage", put)) as catalogue:
            page = await catalogue.list(("by verb", "put"))
            assert render_listing(page) == {
                "path": ["By verb", "Put"],
                "nodes": [],
                "tools": [
                    {
                        "tool_id": "storage.put_object",
                        "path": ["By verb", "Put"],
                        "summary": "Uploads an object to a bucket.",
                        "tags": ["risk:destructive"],
                        "confidence": None,
                    }
                ],
                "next_cursor": None,
            }
            parent = await catalogue.list(("By verb",))
            assert render_listing(parent)["nodes"] == [
                {"name": "Put", "path": ["By verb", "Put"], "summary": "About Put", "tags": []}
            ]

    asyncio.run(main())


def test_a_pointer_never_holds_a_schema() -> None:
    tool = sample_tool(tags=("a",), paths=(("Shop",), ("By server", "shop")))
    (entry,) = render_tool_page(_ToolPage(path=(), tools=(_RankedTool(tool, 0.72345),)))["results"]
    assert list(entry) == ["tool_id", "path", "summary", "tags", "confidence"]
    assert entry["confidence"] == 0.72
    assert b"object" not in encode(entry)


def test_a_pointer_names_the_place_it_was_seen_from_else_the_primary_one() -> None:
    tool = sample_tool(paths=(("Shop",), ("By server", "shop")))

    def place(path: tuple[str, ...]) -> list[str]:
        (entry,) = render_listing(Page(path=path, tools=(tool,)))["tools"]
        return list(entry["path"])

    assert place(("by SERVER", "shop")) == ["By server", "shop"]
    assert place(("Elsewhere",)) == ["Shop"]
    below = render_list_page(_ListPage(path=("By server",), tools=(_RankedTool(tool, 0.9),)))
    assert below["tools"][0]["path"] == ["By server", "shop"]
    assert render_listing(Page(path=(), tools=(sample_tool(paths=()),)))["tools"] == [
        {"tool_id": "shop.find_order", "path": [], "summary": "Finds an order.", "tags": [], "confidence": None}
    ]


def test_a_node_found_by_search_has_no_more_than_path_summary_and_confidence() -> None:
    node = Node(path=("User", "Auth"), summary="Log in", tags=("oauth",), tools=3)
    assert render_node_page(_NodePage(nodes=(_RankedNode(node, 0.834),))) == {
        "results": [{"path": ["User", "Auth"], "summary": "Log in", "confidence": 0.83}]
    }
    assert list(render_listing(Page(path=(), nodes=(node,)))["nodes"][0]) == ["name", "path", "summary", "tags"]
