"""Two tools of one server whose names differ in letter case alone: each is reached by its own spelling."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from toolfold import Gateway, Settings
from toolfold.testing.memory_upstream import MemoryUpstream

pytestmark = pytest.mark.usefixtures("engine")  # on both engines


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": f"Is spelled {name}.", "inputSchema": {"type": "object"}}


@pytest.mark.parametrize("order", [("DUP", "dup", "Dup"), ("dup", "Dup", "DUP")])
@pytest.mark.parametrize("first", ["dup", "DUP", "Dup"])
def test_15_09_an_exact_spelling_leads_to_the_tool_that_is_spelled_so(
    tmp_path: Path, order: tuple[str, ...], first: str
) -> None:
    async def main() -> None:
        server = MemoryUpstream("s", [*map(tool, order), tool("a/b"), tool("A/b")])
        async with Gateway(Settings(home=tmp_path), upstreams=[server]) as gateway:
            await gateway.build()
            for name in (first, *order, "a/b", "A/b"):
                asked = f"s.{name.replace('/', '.')}"
                assert (await gateway.tool(asked)).name == name
                assert (await gateway.expand_tool(asked))["description"] == f"Is spelled {name}."
                await gateway.call_tool(asked, {})
                assert server.calls[-1].tool.name == name
            # The id that a listing shows leads to the same tool, and a spelling that nothing has to one of them.
            for listed in await gateway.tools_below(()):
                assert await gateway.tool(listed.tool_id) == listed
            assert (await gateway.tool("S.dUp")).name.casefold() == "dup"

    asyncio.run(asyncio.wait_for(main(), 60))
