"""What a model reads first has exactly the keys of the discovery protocol, and never a schema."""

import asyncio
from pathlib import Path

import pytest
from catalogue_kit import catalogue_in, definition, listing
from msgspec.json import encode

from toolfold.disclosure.pointers import found_node_entry, listing_entry, node_entry, pointer, pointer_entry
from toolfold.testing.stores import sample_tool
from toolfold.types import Node, Pointer


@pytest.mark.requirement("D-12")
def test_a_listing_holds_nodes_and_pointers_with_risk_in_the_tags(tmp_path: Path) -> None:
    put = definition("put_object", description="Uploads an object to a bucket.", annotations={"readOnlyHint": False})

    async def main() -> None:
        async with catalogue_in(tmp_path, listing("storage", put)) as catalogue:
            page = await catalogue.list(("by verb", "put"))
            assert listing_entry(page.path, page.nodes, page.tools, page.next_cursor) == {
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
            assert listing_entry(parent.path, parent.nodes, parent.tools)["nodes"] == [
                {"name": "Put", "path": ["By verb", "Put"], "summary": "About Put", "tags": []}
            ]

    asyncio.run(main())


def test_a_pointer_never_holds_a_schema() -> None:
    tool = sample_tool(tags=("a",), paths=(("Shop",), ("By server", "shop")))
    entry = pointer_entry(pointer(tool, confidence=0.72345))
    assert list(entry) == ["tool_id", "path", "summary", "tags", "confidence"]
    assert entry["confidence"] == 0.72
    assert b"object" not in encode(entry)


def test_a_pointer_names_the_place_it_was_seen_from_else_the_primary_one() -> None:
    tool = sample_tool(paths=(("Shop",), ("By server", "shop")))
    assert pointer(tool, ("by SERVER", "shop")).path == ("By server", "shop")
    assert pointer(tool, ("Elsewhere",)).path == ("Shop",)
    assert pointer(sample_tool(paths=())) == Pointer("shop.find_order", (), "Finds an order.", (), None)


def test_a_node_found_by_search_has_no_more_than_path_summary_and_confidence() -> None:
    node = Node(path=("User", "Auth"), summary="Log in", tags=("oauth",), tools=3)
    assert found_node_entry(node, 0.834) == {"path": ["User", "Auth"], "summary": "Log in", "confidence": 0.83}
    assert list(node_entry(node)) == ["name", "path", "summary", "tags"]
