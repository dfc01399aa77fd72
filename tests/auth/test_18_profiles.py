"""Whatever a profile tells a model to use is in the list of that profile: its instructions, its answers, its errors."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from sign_in_kit import MarkedHttp
from test_18_callers import KEYS, key_of, spec_of

from toolfold import Gateway, Settings
from toolfold.auth.vault import Vault
from toolfold.config.sections import Subset
from toolfold.faces.mcp_server.http import Site, listening_socket, run_site
from toolfold.faces.mcp_server.profiles import open_app
from toolfold.faces.surface.auto import AutoSurface
from toolfold.faces.surface.definitions import BY_NAME
from toolfold.faces.surface.direct import DirectSurface
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import LOCAL, CallContext, Caller
from toolfold.wire.serving import Server
from toolfold.wire.serving.http import McpHttpApp

pytestmark = pytest.mark.requirement("G-14")

NUMBER = {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}
PROFILES = ["auto", "folded", "direct", "discovery", "live", "transparent"]


def tools(count: int) -> list[dict[str, Any]]:
    return [{"name": f"tool_{n}", "description": f"Does {n}. " * 30, "inputSchema": NUMBER} for n in range(count)]


@asynccontextmanager
async def talking(gateway: Gateway, profile: str, server: str | None = None) -> AsyncIterator[Client]:
    async with open_app(gateway, profile, server) as app:
        mcp = McpHttpApp(Server(app))
        bound, stop = listening_socket("127.0.0.1", 0), asyncio.Event()
        serving = asyncio.create_task(run_site(Site(mcp), bound, stop))
        try:
            url = f"http://127.0.0.1:{bound.getsockname()[1]}/mcp"
            async with Client(url, mode="legacy", read_timeout_seconds=60, cache=None) as client:
                yield client
        finally:
            await mcp.aclose()
            stop.set()
            await serving


async def said(client: Client, name: str, arguments: dict[str, Any]) -> str:
    """What a call is answered with, whichever way."""
    try:
        return str((await client.call_tool(name, arguments)).content[0].text)  # type: ignore[union-attr]
    except MCPError as error:
        return f"{error.error.message} {json.dumps(error.error.data)}"


# How texts speak of the operation `list`, which is also a plain word.
LIST = re.compile(r"`list`|\blist\(|with list\b|, list\b")


def named_by(text: str) -> set[str]:
    """The tools that a text speaks of: operations by their names, and all that stands in backticks like a call."""
    words = {word for word in re.findall(r"[a-z_]+", text) if word in BY_NAME and word != "list"}
    words |= {"list"} if LIST.search(text) else set()
    words |= {"search_nodes"} if re.search(r"\ba search\b|`search_\*`", text) else set()
    return words | set(re.findall(r"`(\w+_sign_in)`", text)) | ({"call_tool"} if ".sign_in`" in text else set())


@pytest.mark.parametrize("profile", PROFILES)
async def test_18_a_profile_names_only_what_it_lists(tmp_path: Path, profile: str) -> None:
    maths = MemoryUpstream("maths", tools(120 if profile == "folded" else 3))
    served = "box" if profile == "transparent" else None
    async with MarkedHttp(api_keys=KEYS) as server:
        if profile in ("transparent", "live"):
            await Vault(tmp_path).put(key_of(server, "ada", caller=LOCAL.name))
        settings = Settings(servers=(spec_of(server),), home=tmp_path)
        async with Gateway(settings, upstreams=[maths]) as gateway:
            await gateway.build()
            async with talking(gateway, "auto" if profile == "folded" else profile, served) as client:
                listed = {tool.name for tool in (await client.list_tools()).tools}
                first = min(listed - set(BY_NAME), default="expand_tool")
                texts = [client.instructions or "", await said(client, "nothing_like_it", {})]
                texts += [await said(client, name, {"n": "x", "tool_id": "no.such"}) for name in sorted(listed)]
                if "call_tool" in listed:
                    ids = ("box.sign_in", "maths.tool_0", "maths.none")
                    texts += [await said(client, "call_tool", {"tool_id": name, "args": {}}) for name in ids]
                maths.set_tools([{**tools(1)[0], "name": "other"}])
                await gateway.reread("maths")
                texts += [await said(client, name, {}) for name in (first, "maths_tool_0", "maths_other")]
                if profile not in ("transparent", "live"):
                    await Vault(tmp_path).put(key_of(server, "ada", caller=LOCAL.name))
                    gateway.upstreams.sign_in_changed("box", LOCAL.name)
                    way = ("call_tool", {"tool_id": "box.sign_in"}) if "call_tool" in listed else ("box_sign_in", {})
                    texts.append(await said(client, *way))
                    assert texts[-1].startswith("Signed in to box."), texts
                now = {tool.name for tool in (await client.list_tools()).tools}
    assert texts[0] or profile == "transparent"
    for text in texts:
        assert named_by(text) <= listed | now, text


async def names_of(surface: Any, caller: Caller) -> set[str]:
    return {json.loads(bytes(raw))["name"] for raw in await surface.tools(caller)}


@pytest.mark.parametrize("make", [AutoSurface, DirectSurface])
async def test_18_where_tools_are_listed_so_is_the_way_to_sign_in(tmp_path: Path, make: Any) -> None:
    ada, bob = Caller(name="ada"), Caller(name="bob")
    async with MarkedHttp(api_keys=KEYS, own={"ada": ("pay",)}) as server:
        settings = Settings(
            servers=(spec_of(server),), home=tmp_path, subsets=(Subset(name="maths", tools=("maths.*",)),)
        )
        async with Gateway(settings, upstreams=[MemoryUpstream("maths", tools(1))]) as gateway:
            await gateway.build()
            surface, told = make(gateway), asyncio.Queue[str]()
            stop = surface.watch(lambda caller: told.put_nowait(caller.name if caller is not None else "all"))
            for caller in (ada, bob):
                assert "box_sign_in" in await names_of(surface, caller)
                assert "such as `box_sign_in`" in await surface.instructions(caller)
            # Nobody is told to sign in to what a subset has nothing of.
            inside = Caller(name="ada", subset="maths")
            assert "box_sign_in" not in await names_of(surface, inside)
            assert "Sign-in needed" not in await surface.instructions(inside)
            refused = bytes(await surface.call("box_sign_in", context=CallContext(caller=ada)))
            assert b"SIGN_IN_REQUIRED" in refused
            for name, caller in (("ada", ada), ("bob", bob)):  # of the second no tool is new to the catalogue
                await Vault(tmp_path).put(key_of(server, name))
                gateway.upstreams.sign_in_changed("box", name)
                async with asyncio.timeout(30):
                    while await told.get() != name:
                        pass
                assert "box_sign_in" not in await names_of(surface, caller)
                assert ("box_pay" in await names_of(surface, caller)) == (name == "ada")
                assert "Sign-in needed" not in await surface.instructions(caller)
                # A client that was told to call again may do so.
                again = bytes(await surface.call("box_sign_in", context=CallContext(caller=caller)))
                assert b"Signed in to box. Its tools are listed now" in again
            await Vault(tmp_path).delete("box", "bob")
            gateway.upstreams.sign_in_changed("box", "bob")
            async with asyncio.timeout(30):
                while await told.get() != "bob":
                    pass
            assert "box_sign_in" in await names_of(surface, bob)
            stop()
