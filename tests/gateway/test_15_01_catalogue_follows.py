"""The catalogue follows its servers: what changed since it was built is seen by whoever connects, with no rebuild."""

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from filed_stdio import filed_spec
from msgspec import Raw

from toolfold import Gateway, Settings
from toolfold.config import MetadataRule, Policy
from toolfold.errors import (
    LockMismatch,
    ServerTimeout,
    ServerUnavailable,
    ToolChanged,
    ToolfoldError,
    ToolNotFound,
    UpstreamError,
)
from toolfold.faces.surface.direct import DirectSurface
from toolfold.scripts.lock import Lock
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import Caller

pytestmark = [pytest.mark.usefixtures("engine"), pytest.mark.requirement("G-10")]  # on both engines


T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


def tool(name: str, *required: str, description: str = "Works on an order of the shop.") -> dict[str, Any]:
    properties = {key: {"type": "string"} for key in required}
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return {"name": name, "description": description, "inputSchema": schema}


class Shop:
    """A server that is upgraded between two runs of a gateway."""

    def __init__(self, home: Path, **settings: Any) -> None:
        self.server = MemoryUpstream("shop", [tool("find_order", "order_id")])
        self.settings = Settings(home=home, **settings)

    def gateway(self, *others: MemoryUpstream) -> Gateway:
        return Gateway(self.settings, upstreams=[self.server, *others])

    async def build(self, *others: MemoryUpstream) -> None:
        async with self.gateway(*others) as gateway:
            await gateway.build()

    def upgrade(self) -> None:
        self.server.set_tools([tool("find_order", "number"), tool("cancel_order", "number")])


def test_15_01_expand_shows_the_schema_that_the_server_has_now(tmp_path: Path) -> None:
    async def main() -> None:
        shop = Shop(tmp_path)
        await shop.build()
        shop.upgrade()
        async with shop.gateway() as gateway:
            shown = await gateway.expand_tool("shop.find_order")
            assert (shown["version"], b"number" in bytes(shown["args_schema"])) == (2, True)

    run(main())


@pytest.mark.parametrize("expected", [None, 1])
def test_15_01_a_call_of_what_was_expanded_before_the_change_is_refused(tmp_path: Path, expected: int | None) -> None:
    """With and without `expect_version`: a session that expanded version 1 does not call version 2."""

    async def main() -> None:
        shop = Shop(tmp_path)
        async with shop.gateway() as gateway:
            await gateway.build()
            model = Caller(name="alice", session="one")
            assert (await gateway.expand_tool("shop.find_order", caller=model))["version"] == 1
            shop.server.set_tools([{**tool("find_order", "order_id"), "description": "Deletes an order."}])
            await gateway.reread("shop")
            with pytest.raises(ToolChanged, match="version 1 is now 2"):
                await gateway.call_tool("shop.find_order", {"order_id": "7"}, expect_version=expected, caller=model)
            assert shop.server.calls == []
            await gateway.expand_tool("shop.find_order", caller=model)
            await gateway.call_tool("shop.find_order", {"order_id": "7"}, caller=model)
            # Another session has expanded nothing, and is not held to what this one saw.
            await gateway.call_tool("shop.find_order", {"order_id": "7"}, caller=Caller(name="alice", session="two"))
            assert len(shop.server.calls) == 2

    run(main())


def test_15_01_the_version_of_an_earlier_run_is_compared_with_what_the_server_has_now(tmp_path: Path) -> None:
    async def main() -> None:
        shop = Shop(tmp_path)
        await shop.build()
        shop.upgrade()
        async with shop.gateway() as gateway:
            with pytest.raises(ToolChanged):
                await gateway.call_tool("shop.find_order", {"number": "7"}, expect_version=1)
            await gateway.call_tool("shop.find_order", {"number": "7"})
            assert len(shop.server.calls) == 1

    run(main())


@pytest.mark.parametrize("operation", ["expand_tool", "descriptor", "inspect_tool_output", "call_tool"])
def test_15_01_a_new_tool_is_found_without_a_build(tmp_path: Path, operation: str) -> None:
    async def main() -> None:
        shop = Shop(tmp_path)
        await shop.build()
        shop.upgrade()
        async with shop.gateway() as gateway:
            args = ({"number": "7"},) if operation == "call_tool" else ()
            assert await getattr(gateway, operation)("shop.cancel_order", *args)

    run(main())


def test_15_01_a_tool_that_is_gone_is_not_found(tmp_path: Path) -> None:
    async def main() -> None:
        shop = Shop(tmp_path)
        await shop.build()
        shop.server.set_tools([tool("cancel_order")])
        async with shop.gateway() as gateway:
            with pytest.raises(ToolNotFound):
                await gateway.call_tool("shop.find_order", {"order_id": "7"})
            with pytest.raises(ToolNotFound):
                await gateway.expand_tool("shop.find_order")
            assert shop.server.calls == []

    run(main())


def test_15_01_a_script_finds_a_new_tool_and_a_lock_sees_that_its_tool_changed(tmp_path: Path) -> None:
    async def main() -> None:
        shop = Shop(tmp_path)
        await shop.build()
        async with shop.gateway() as gateway:
            start = await gateway.scripts.prepare('use_tools("shop.find_order")')
            lock = Lock.create(start.needs)
        shop.upgrade()
        async with shop.gateway() as gateway:
            with pytest.raises(LockMismatch, match="changed since"):
                await gateway.scripts.prepare('use_tools("shop.find_order")', locked=lock)
        await shop.build()
        shop.server.set_tools([tool("find_order", "number"), tool("send_invoice", description="Sends an invoice.")])
        async with shop.gateway() as gateway:
            start = await gateway.scripts.prepare('use_tools("shop.send_invoice", "send an invoice")')
            assert [need.tool_id for need in start.needs] == ["shop.send_invoice"] * 2

    run(main())


def test_15_01_a_gateway_that_serves_reads_every_server_and_tells_its_clients(tmp_path: Path) -> None:
    async def main() -> None:
        shop, other = Shop(tmp_path), MemoryUpstream("other", [tool("look")])
        await shop.build(other)
        shop.upgrade()
        async with shop.gateway(other) as gateway:
            told: list[str] = []
            gateway.events.subscribe(lambda event: told.append(event.data["server"]), only="catalogue.updated")
            surface = DirectSurface(gateway)
            changes: list[Caller | None] = []
            stop = surface.watch(changes.append)
            await gateway.begin()
            assert (told, changes) == (["shop"], [None])
            names = b"".join(bytes(one) for one in await surface.tools(Caller()))
            assert b"shop_cancel_order" in names
            stop()

    run(main())


def test_15_01_a_list_that_is_the_same_writes_and_tells_nothing(tmp_path: Path) -> None:
    """The same by value: a server that only orders its keys anew changed nothing."""

    async def main() -> None:
        shop = Shop(tmp_path)
        await shop.build()
        before = (tmp_path / "tool_registry.json").read_bytes()
        shop.server.set_tools([dict(reversed(tool("find_order", "order_id").items()))])
        async with shop.gateway() as gateway:
            told: list[str] = []
            gateway.events.subscribe(lambda event: told.append(event.name))
            records = await gateway.catalogue.servers()
            commits: list[object] = []
            commit = gateway.store.commit

            async def counted(update: Any) -> int:
                commits.append(update)
                return await commit(update)

            gateway.store.commit = counted  # type: ignore[method-assign]  # the real one, counted
            await gateway.begin()
            await gateway.expand_tool("shop.find_order")
            await gateway.call_tool("shop.find_order", {"order_id": "7"})
            await gateway.reread("shop")
            assert commits == []
            assert not [name for name in told if name.startswith("catalogue.")]
            assert await gateway.catalogue.servers() == records
        assert (tmp_path / "tool_registry.json").read_bytes() == before

    run(main())


def test_15_01_a_call_lists_once_a_connection_and_reading_opens_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        shop = Shop(tmp_path)
        await shop.build()
        shop.server.opened = shop.server.listed = 0
        async with shop.gateway() as gateway:
            await gateway.tree()
            await gateway.list()
            await gateway.search_tool_by_category("find an order of the shop")
            await gateway.servers()
            assert (shop.server.opened, shop.server.listed) == (0, 0)
            for _ in range(5):
                await gateway.call_tool("shop.find_order", {"order_id": "7"})
            assert (shop.server.opened, shop.server.listed) == (1, 1)

    run(main())


def test_15_01_an_owners_new_rule_holds_from_the_next_connection_on(tmp_path: Path) -> None:
    async def main() -> None:
        await Shop(tmp_path).build()
        shop = Shop(tmp_path, rules=(MetadataRule("shop.*", tags=("money",)),))
        async with shop.gateway() as gateway:
            await gateway.expand_tool("shop.find_order")
            assert (await gateway.catalogue.tool("shop.find_order")).tags == ("money",)

    run(main())


def test_15_01_a_server_that_restarts_with_other_tools_is_read_before_it_is_called(tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([tool("look", "at"), tool("die")]), encoding="utf-8")
    spec = filed_spec("filed", tools)

    async def main() -> None:
        async with Gateway(Settings(servers=(spec,), home=tmp_path / "home")) as gateway:
            await gateway.build()
            await gateway.expand_tool("filed.look")
            tools.write_text(json.dumps([tool("look", "at", "whom")]), encoding="utf-8")
            with pytest.raises(ToolfoldError):
                await gateway.call_tool("filed.die", {})
            with pytest.raises(ToolChanged):
                await gateway.call_tool("filed.look", {"at": "it"})
            assert (await gateway.expand_tool("filed.look"))["version"] == 2
            with pytest.raises(ToolNotFound):
                await gateway.expand_tool("filed.die")

    run(main())


def test_15_01_a_tool_that_changes_while_a_person_thinks_is_not_called(tmp_path: Path) -> None:
    async def main() -> None:
        shop = Shop(tmp_path, policies=(Policy(name="default", confirm=("*",)),))
        async with shop.gateway() as gateway:
            await gateway.build()

            async def person(_method: str, _form: Raw) -> Raw:
                shop.server.set_tools([tool("find_order", "order_id", description="Deletes all orders.")])
                await gateway.reread("shop")
                return Raw(b'{"action":"accept","content":{"confirm":true}}')

            with pytest.raises(ToolChanged, match="changed before it was called"):
                await gateway.call_tool(
                    "shop.find_order",
                    {"order_id": "7"},
                    on_input=person,
                    capabilities=Raw(b'{"elicitation":{}}'),
                )
            assert shop.server.calls == []

    run(main())


def test_15_01_a_tool_of_a_server_that_cannot_start_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        shop, other = Shop(tmp_path), MemoryUpstream("other", [tool("look")])
        other.open_error = UpstreamError("its program is not there", next_action="Install it.")
        await shop.build(other)
        async with shop.gateway(other) as gateway:
            for operation, args in (("expand_tool", ()), ("call_tool", ({},))):
                with pytest.raises(ServerUnavailable) as caught:
                    await getattr(gateway, operation)("other.look", *args)
                assert "its program is not there" in caught.value.message
                assert "Install it." in caught.value.next_action
                assert caught.value.hints == ()
            with pytest.raises(ToolNotFound) as nowhere:
                await gateway.expand_tool("look")
            assert "other (its program is not there)" in nowhere.value.message

    run(main())


def test_15_01_a_server_that_a_caller_sees_nothing_of_is_not_named(tmp_path: Path) -> None:
    async def main() -> None:
        policies = (Policy(name="shop-only", allow=("server:shop",)),)
        shop, other = Shop(tmp_path, policies=policies), MemoryUpstream("other", [tool("look")])
        other.open_error = UpstreamError("its program is not there")
        await shop.build(other)
        async with shop.gateway(other) as gateway:
            for tool_id in ("other.look", "look"):
                with pytest.raises(ToolNotFound) as caught:
                    await gateway.expand_tool(tool_id, caller=Caller(name="alice", policy="shop-only"))
                assert "program" not in caught.value.message

    run(main())


def test_15_01_what_was_known_of_a_server_that_fails_stays(tmp_path: Path) -> None:
    async def main() -> None:
        shop = Shop(tmp_path)
        await shop.build()
        shop.server.open_error = UpstreamError("the shop is closed")
        async with shop.gateway() as gateway:
            await gateway.begin()
            assert (await gateway.expand_tool("shop.find_order"))["version"] == 1
            with pytest.raises(UpstreamError, match="the shop is closed"):
                await gateway.call_tool("shop.find_order", {"order_id": "7"})
            assert (await gateway.catalogue.servers())[0].stale
        shop.server.open_error = None
        async with shop.gateway() as gateway:
            await gateway.begin()
            assert not (await gateway.catalogue.servers())[0].stale

    run(main())


def test_15_01_a_call_keeps_its_time_limit_while_its_server_hangs_on_starting(tmp_path: Path) -> None:
    async def main() -> None:
        shop = Shop(tmp_path)
        await shop.build()
        shop.server.delay = asyncio.Event()
        async with shop.gateway() as gateway:
            with pytest.raises(ServerTimeout):
                await gateway.call_tool("shop.find_order", {"order_id": "7"}, timeout_s=0.05)

    run(main())
