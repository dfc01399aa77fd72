"""What a caller may not see tells nothing: no twin under another id, no cursor that moves, no figure, no waiting."""

import json
import sys
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from filed_stdio import filed_spec
from policy_scene import run, tool

from toolfold import Gateway, Settings, ToolNotFound
from toolfold.config import Policy
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import Caller, ServerSpec

BOB = Caller(name="bob", policy="readers")


def settings_of(home: Path, *deny: str, allow: tuple[str, ...] = ("**",), **further: Any) -> Settings:
    return Settings(home=home, policies=(Policy(name="readers", allow=allow, deny=deny),), **further)


@pytest.mark.parametrize("names", [("A_B", "a_b"), ("a_b", "a b")])
def test_15_17_denying_an_id_hides_its_twin_too(tmp_path: Path, names: tuple[str, str]) -> None:
    async def main() -> None:
        upstream = MemoryUpstream("names", [tool(name, "Does it.") for name in (*names, "other")])
        async with Gateway(settings_of(tmp_path, "names.a_b"), upstreams=[upstream]) as gateway:
            await gateway.build()
            assert len((await gateway.inventory())["names"]) == 3
            assert (await gateway.inventory(caller=BOB))["names"] == ["other"]
            twin = next(one.tool_id for one in await gateway.tools_below(()) if "-" in one.tool_id)
            with pytest.raises(ToolNotFound):
                await gateway.call_tool(twin, {}, caller=BOB)

    run(main())


def test_15_17_allowing_an_id_lets_no_twin_in(tmp_path: Path) -> None:
    async def main() -> None:
        upstream = MemoryUpstream("names", [tool(name, "Does it.") for name in ("a_b", "a b")])
        async with Gateway(settings_of(tmp_path, allow=("names.a_b",)), upstreams=[upstream]) as gateway:
            await gateway.build()
            assert (await gateway.inventory(caller=BOB))["names"] == ["a_b"]

    run(main())


def test_15_17_a_change_of_something_hidden_does_not_move_a_cursor(tmp_path: Path) -> None:
    shop = [tool(f"find_order_{number}", f"Finds an order of kind {number}.") for number in range(8)]
    hidden = tmp_path / "hidden.json"

    async def main() -> None:
        hidden.write_text(json.dumps([tool("pay", "Pays an order.")]), encoding="utf-8")
        settings = settings_of(tmp_path / "home", "bank.*", servers=(filed_spec("bank", hidden),))
        async with Gateway(settings, upstreams=[MemoryUpstream("shop", shop)]) as gateway:
            await gateway.build()
            async with gateway.view(BOB).catalogue.snapshot() as snapshot:
                path = next(node.path for node in await snapshot.nodes() if node.own_tools > 3)
            ask: dict[str, Callable[[str | None], Awaitable[Mapping[str, Any]]]] = {
                "search": lambda cursor: gateway.search_tool_by_category(
                    "find an order", limit=3, cursor=cursor, caller=BOB
                ),
                "query": lambda cursor: gateway.list(query="find an order", limit=3, cursor=cursor, caller=BOB),
                "list": lambda cursor: gateway.list(path, limit=3, cursor=cursor, caller=BOB),
            }
            first = {name: (await page(None))["next_cursor"] for name, page in ask.items()}
            hidden.write_text(
                json.dumps([tool("pay", "Pays an order, or two."), tool("owe", "Owes.")]), encoding="utf-8"
            )
            await gateway.reread("bank")
            again = {name: (await page(None))["next_cursor"] for name, page in ask.items()}
            assert [urlsafe_b64decode(one + "==") for one in first.values()] == [
                urlsafe_b64decode(one + "==") for one in again.values()
            ]
            for name, page in ask.items():
                assert await page(first[name])

    run(main())


@pytest.mark.parametrize(
    ("allow", "deny"), [(("**",), ("slow.*",)), (("**",), ("server:slow",)), (("shop.*",), ()), (("server:shop",), ())]
)
def test_15_17_nobody_waits_for_a_server_that_is_hidden(
    tmp_path: Path, allow: tuple[str, ...], deny: tuple[str, ...]
) -> None:
    slow = ServerSpec(
        name="slow",
        transport="stdio",
        command=sys.executable,
        args=("-c", "import time; time.sleep(60)"),
        start_timeout_s=30,
    )

    async def main() -> None:
        settings = settings_of(tmp_path, *deny, allow=allow, servers=(slow,))
        async with Gateway(settings, upstreams=[MemoryUpstream("shop", [tool("find", "Finds.")])]) as gateway:
            await gateway.build(["shop"])
            view = gateway.view(BOB)
            assert "slow" not in await view.ask()
            assert "slow" not in await view.ask("slow.x")

    run(main())


@pytest.mark.parametrize("allow", ["slow.read", "sl*", "risk:read-only", "server:s*", "**"])
def test_15_17_a_server_of_which_something_may_be_seen_is_asked(tmp_path: Path, allow: str) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([tool("read", "Reads.", readOnlyHint=True)]), encoding="utf-8")

    async def main() -> None:
        settings = settings_of(tmp_path / "home", "slow.write", allow=(allow,), servers=(filed_spec("slow", tools),))
        async with Gateway(settings, upstreams=[MemoryUpstream("shop", [tool("find", "Finds.")])]) as gateway:
            await gateway.build(["shop"])
            assert (await gateway.tool("slow.read", BOB)).tool_id == "slow.read"

    run(main())
