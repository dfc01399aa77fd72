"""Several tools asked for by name: those that are not there are named. What a failed server advises are sentences."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from toolfold import Gateway, Settings
from toolfold.errors import ServerUnavailable
from toolfold.events import Events
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import ServerSpec
from toolfold.upstream.supervisor import PoolLimits, Supervisor

pytestmark = pytest.mark.usefixtures("engine")  # on both engines


def tool(name: str, title: str = "") -> dict[str, Any]:
    return {"name": name, "title": title, "description": f"Does {name}.", "inputSchema": {"type": "object"}}


def test_15_01_a_selected_tool_that_is_not_there_is_named(tmp_path: Path) -> None:
    async def main() -> None:
        inn = MemoryUpstream("inn", [tool("check_in"), tool("check_out", "Departure of a guest")])
        async with Gateway(Settings(home=tmp_path), upstreams=[inn]) as gateway:
            await gateway.build(index=False)
            for ask in (gateway.search_tool_by_category, lambda query: gateway.list(query=query)):
                page = await ask("select:inn.check_in, nope.x, checkOut")
                assert page["note"] == "there is no tool nope.x"
                page = await ask("select:inn__check_in, Departure of a Guest")
                assert "note" not in page

    asyncio.run(main())


def test_15_01_advice_and_what_follows_it_are_two_sentences() -> None:
    async def main() -> None:
        supervisor = Supervisor(ServerSpec(name="a", transport="stdio"), MemoryUpstream, Events(), PoolLimits())  # type: ignore[arg-type]
        for advice, said in {
            "run it by hand to see what it says": "run it by hand to see what it says. It can be tried",
            "Start it.": "Start it. It can be tried",
            "": "It can be tried",
        }.items():
            supervisor._fail(ServerUnavailable("it ended", server="a", next_action=advice))
            assert supervisor._unavailable(3).next_action == f"{said} again in 3.0 s."

    asyncio.run(main())
