"""A small shop, office and bank, for tests of who may see what."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from toolfold import Gateway, Settings
from toolfold.testing.memory_upstream import MemoryUpstream

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


def tool(name: str, description: str, **annotations: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": name,
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "note": {"type": "string"}, "password": {"type": "string"}},
        },
        "outputSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}},
    }
    if annotations:
        found["annotations"] = annotations
    return found


SHOP = [
    tool("find_order", "Finds an order of the shop by its number.", readOnlyHint=True),
    tool("list_orders", "Lists all orders of the shop.", readOnlyHint=True),
    tool("delete_order", "Deletes an order of the shop for good.", destructiveHint=True),
    tool("create_invoice", "Creates an invoice for an order."),
]
BANK = [
    tool("send_payment", "Sends a payment from an account.", destructiveHint=True),
    tool("read_balance", "Reads the balance of a bank account.", readOnlyHint=True),
    tool("list_payments", "Lists the payments of a bank account.", readOnlyHint=True),
]
FILES = [
    tool("read_file", "Reads a file from disk.", readOnlyHint=True),
    tool("delete_file", "Deletes a file from disk.", destructiveHint=True),
    tool("search_files", "Searches files by a pattern.", readOnlyHint=True),
]


def upstreams() -> list[MemoryUpstream]:
    made = [MemoryUpstream("shop", SHOP), MemoryUpstream("bank", BANK), MemoryUpstream("files", FILES)]
    for server, tools in zip(made, (SHOP, BANK, FILES), strict=True):
        for one in tools:
            server.answer(
                one["name"], {"content": [{"type": "text", "text": "done"}], "structuredContent": {"ok": True}}
            )
    return made


def gateway_of(settings: Settings) -> Gateway:
    return Gateway(settings, upstreams=upstreams())
