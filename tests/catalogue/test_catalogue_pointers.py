"""What a model reads first has exactly the keys of the discovery protocol, and never a schema."""

import asyncio
from pathlib import Path

import pytest
from catalogue_kit import catalogue_in, definition, listing
from msgspec.json import encode

from toolfold.disclosure.render import pointer_to, render_listing, render_node, render_node_hit, render_pointer
from toolfold.testing.store_conformance import sample_tool
from toolfold.types import Node, Pointer


@pytest.mark.requirement("D-12")
def test_a_listing_holds_nodes_and_pointers_with_risk_in_the_tags(tmp_path: Path) -> None:
    put = definition("put_object", description="Uploads an object to a bucket.", annotations={"readOnlyHint": False})

    async def main() -> None:
        async with catalogue_in(tmp_path, listing("storage", put)) as catalogue:
            page = await catalogue.list(("by verb", "put"))
            assert render_listing(page.path, page.nodes, page.tools, page.next_cursor) == {
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
            assert render_listing(parent.path, parent.nodes, parent.tools)["nodes"] == [
                {"name": "Put", "path": ["By verb", "Put"], "summary": "About Put", "tags": []}
            ]

    asyncio.run(main())


def test_a_pointer_never_holds_a_schema() -> None:
    tool = sample_tool(tags=("a",), paths=(("Shop",), ("By server", "shop")))
    entry = render_pointer(pointer_to(tool, confidence=0.72345))
    assert list(entry) == ["tool_id", "path", "summary", "tags", "confidence"]
    assert entry["confidence"] == 0.72
    assert b"object" not in encode(entry)


def test_a_pointer_names_the_place_it_was_seen_from_else_the_primary_one() -> None:
    tool = sample_tool(paths=(("Shop",), ("By server", "shop")))
    assert pointer_to(tool, ("by SERVER", "shop")).path == ("By server", "shop")
    assert pointer_to(tool, ("Elsewhere",)).path == ("Shop",)
    assert pointer_to(sample_tool(paths=())) == Pointer("shop.find_order", (), "Finds an order.", (), None)


def test_a_node_found_by_search_has_no_more_than_path_summary_and_confidence() -> None:
    node = Node(path=("User", "Auth"), summary="Log in", tags=("oauth",), tools=3)
    assert render_node_hit(node, 0.834) == {"path": ["User", "Auth"], "summary": "Log in", "confidence": 0.83}
    assert list(render_node(node)) == ["name", "path", "summary", "tags"]
