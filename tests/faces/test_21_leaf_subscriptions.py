"""Subscriptions to resources of all servers: asked for once, told under the address that each client uses."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from leaf_servers import Leaves, fixture_table, met, operate, play
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_client_helpers import RecordingClient

pytestmark = pytest.mark.requirement("G-15")

GUIDE = "toolfold://resources/docs/file%3A%2F%2F%2Fdocs%2Finstall%20guide.md"
SAME = "toolfold://resources/docs/test%3Asame"
WATCHED = "toolfold://resources/fixture/test%3A%2F%2Fwatched-resource"
UPDATED = "notifications/resources/updated"


async def update(client: Client, uri: str) -> None:
    args = {"method": UPDATED, "params": {"uri": uri}}
    await client.call_tool("call_tool", {"tool_id": "docs.tell", "args": args})


async def asked(client: Client, method: str) -> list[Any]:
    return [params for name, params in await operate(client, "call_tool", tool_id="docs.asked") if name == method]


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_legacy_client_hears_of_what_it_subscribed_to(transport: str, tmp_path: Path) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        await client.subscribe_resource(GUIDE)
        await update(client, "test:same")
        await update(client, "file:///docs/install guide.md")
        await recorder.wait_for(UPDATED)
        assert await asked(client, "resources/subscribe") == [{"uri": "file:///docs/install guide.md"}]
        await client.unsubscribe_resource(GUIDE)
        assert await asked(client, "resources/unsubscribe") == [{"uri": "file:///docs/install guide.md"}]
        with pytest.raises(MCPError, match="there is no resource"):
            await client.subscribe_resource("nothing:here")

    play(Leaves(tmp_path), "legacy", scene, transport)


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_modern_client_hears_each_under_the_address_that_it_gave(transport: str, tmp_path: Path) -> None:
    async def scene(client: Client, recorder: RecordingClient) -> None:
        wanted = [GUIDE, "file:///docs/install guide.md", "nothing:here"]
        async with client.listen(resource_subscriptions=wanted) as heard:
            await update(client, "file:///docs/install guide.md")
            seen = {str((await anext(heard)).uri) for _ in range(2)}  # type: ignore[union-attr]
            assert seen == set(wanted[:2])
            assert len(await asked(client, "resources/subscribe")) == 1

    play(Leaves(tmp_path), "modern", scene, transport)


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_modern_server_is_listened_to(era: str, tmp_path: Path) -> None:
    leaves = Leaves(tmp_path).more(fixture_table())

    async def tell(client: Client) -> None:
        await client.call_tool("call_tool", {"tool_id": "fixture.extra_update_resource"})

    async def scene(client: Client, recorder: RecordingClient) -> None:
        if era == "legacy":
            await client.subscribe_resource(WATCHED)
            while recorder.changes.empty() or await recorder.changes.get() != UPDATED:
                await tell(client)  # its server is asked to listen, which takes a moment
            return
        async with client.listen(resource_subscriptions=[WATCHED]) as heard:
            next_one = asyncio.ensure_future(anext(heard))
            while not next_one.done():
                await tell(client)
            assert str((await next_one).uri) == WATCHED  # type: ignore[union-attr]

    play(leaves, era, scene)


async def until_updated(heard: Any) -> AsyncIterator[Any]:
    """What is told of resources, up to the first."""
    async for one in heard:
        if type(one).__name__ == "ResourceUpdated":
            yield one
            return


def test_whoever_may_no_longer_see_a_resource_hears_nothing_of_it(tmp_path: Path) -> None:
    leaves = Leaves(tmp_path)

    async def scene() -> None:
        wanted = [GUIDE, SAME]
        async with (
            met(leaves, "modern", "http") as (client, _),
            client.listen(resource_subscriptions=wanted, resources_list_changed=True) as heard,
        ):
            leaves.more('[policy.default]\ndeny = ["resource:docs.Install*"]\n')
            while GUIDE in [str(one.uri) for one in (await client.list_resources()).resources]:
                await anext(heard)
            await update(client, "file:///docs/install guide.md")
            await update(client, "test:same")
            told = [one async for one in until_updated(heard)]
            assert [str(one.uri) for one in told] == [SAME]

    asyncio.run(scene())
