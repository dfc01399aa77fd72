"""Tools with an app: listed to clients that render apps and to no others, with pages that can be read here."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from leaf_servers import Leaves
from msgspec import Raw

from toolfold.errors import RemoteError
from toolfold.types import Era
from toolfold.wire import Connection, StdioTarget
from toolfold.wire.connect import connect
from toolfold.wire.types import WireOptions

pytestmark = pytest.mark.requirement("G-15")

PAGE = "<!doctype html><script>document.title = 'ran'; fetch('/v1/servers')</script><b>&amp;</b>"
CSP = {"ui": {"csp": {"connectDomains": ["https://api.example.com"]}, "prefersBorder": True}}
URI = "ui://dash/main page"


def tool(name: str, **ui: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, "_meta": {"other/key": [1], **({"ui": ui} if ui else {})}}


WEATHER = {
    "tools": [tool("show", resourceUri=URI), tool("refresh", visibility=["app"]), tool("both"), tool("odd", x=1)],
    "texts": {URI: {"contents": [{"uri": URI, "mimeType": "text/html;profile=mcp-app", "text": PAGE, "_meta": CSP}]}},
}
OTHER = {"tools": [tool("refresh", resourceUri="ui://dash"), tool("show", resourceUri="https://example.com/")]}
APPS = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}


async def asked(connection: Connection, method: str, **params: Any) -> Any:
    return msgspec.json.decode(await connection.request(method, Raw(msgspec.json.encode(params))))


def scene_of(
    leaves: Leaves, era: Era, scene: Callable[[Connection], Awaitable[None]], capabilities: Any = APPS
) -> None:
    async def main() -> None:
        command = leaves.command()
        target = StdioTarget(command[0], tuple(command[1:]), dict(os.environ))
        options = WireOptions(capabilities=Raw(msgspec.json.encode(capabilities)))
        async with asyncio.timeout(90):
            connection = await connect(target, options=options, era=era)
            try:
                # Once there is a catalogue.
                await asked(connection, "tools/call", name="list", arguments={})
                await scene(connection)
            finally:
                await connection.aclose()

    asyncio.run(main())


async def tools(connection: Connection) -> dict[str, Any]:
    return {one["name"]: one for one in (await asked(connection, "tools/list"))["tools"]}


@pytest.mark.parametrize("profile", ["discovery", "auto"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_tool_with_an_app_is_listed_to_whoever_renders_it(era: Era, profile: str, tmp_path: Path) -> None:
    async def scene(connection: Connection) -> None:
        listed = await tools(connection)
        own = {name for name in listed if name.startswith(("weather_", "other_"))}
        assert own == {"weather_show", "weather_refresh", "other_refresh"}
        address = listed["weather_show"]["_meta"]["ui"]["resourceUri"]
        assert address == "ui://weather/dash/main%20page"
        assert listed["weather_show"]["_meta"] == {"other/key": [1], "ui": {"resourceUri": address}}
        assert listed["other_refresh"]["_meta"]["ui"] == {"resourceUri": "ui://other/dash"}
        (content,) = (await asked(connection, "resources/read", uri=address))["contents"]
        assert content == {"uri": address, "mimeType": "text/html;profile=mcp-app", "text": PAGE, "_meta": CSP}
        called = await asked(connection, "tools/call", name="weather_show", arguments={"a": 1})
        assert called["content"][0]["text"] == 'show {"a": 1}'
        # An app calls its tools by the names that their server gave them.
        called = await asked(connection, "tools/call", name="show", arguments={})
        assert called["content"][0]["text"] == "show {}"
        with pytest.raises(RemoteError, match="there is no tool"):  # which of the two?
            await asked(connection, "tools/call", name="refresh", arguments={})
        with pytest.raises(RemoteError, match="there is no tool"):
            await asked(connection, "tools/call", name="weather_both", arguments={})

    leaves = Leaves(tmp_path, profile, weather=WEATHER, other=OTHER)
    leaves.more("[discovery]\nstrict = true\n")  # `auto` folds, too
    scene_of(leaves, era, scene)


@pytest.mark.parametrize(
    "capabilities", [{}, {"extensions": {}}, {"extensions": {"io.modelcontextprotocol/ui": True}}, {"extensions": [1]}]
)
def test_for_all_other_clients_the_list_is_as_ever(capabilities: Any, tmp_path: Path) -> None:
    names: list[bytes] = []

    async def scene(connection: Connection) -> None:
        names.append(bytes(await connection.request("tools/list", None)))

    for folder, apps in (("a", WEATHER), ("b", {"tools": [tool(name) for name in ("show", "refresh", "both", "odd")]})):
        (tmp_path / folder).mkdir()
        scene_of(Leaves(tmp_path / folder, weather=apps), "modern", scene, capabilities)
    assert b"weather" not in names[0]
    assert names[0] == names[1]


def test_all_tools_are_listed_with_pages_that_can_be_read(tmp_path: Path) -> None:
    async def scene(connection: Connection) -> None:
        listed = await tools(connection)
        assert listed["weather_show"]["_meta"]["ui"] == {"resourceUri": "ui://weather/dash/main%20page"}
        assert listed["other_show"]["_meta"]["ui"] == {"resourceUri": "https://example.com/"}

    leaves = Leaves(tmp_path, "direct", weather=WEATHER, other=OTHER)

    async def main() -> None:
        command = leaves.command()
        target = StdioTarget(command[0], tuple(command[1:]), dict(os.environ))
        async with asyncio.timeout(90):
            connection = await connect(target)
            try:
                await scene(connection)
            finally:
                await connection.aclose()

    asyncio.run(main())


def test_a_hidden_tool_has_no_app_and_its_server_is_told_what_clients_render(tmp_path: Path) -> None:
    async def scene(connection: Connection) -> None:
        assert not {name for name in await tools(connection) if name.startswith("weather_s")}
        shown = await asked(connection, "tools/call", name="expand_tool", arguments={"tool_id": "weather.refresh"})
        assert "app-only" in json.loads(shown["content"][0]["text"])["tags"]
        called = {"tool_id": "weather.asked"}
        said = await asked(connection, "tools/call", name="call_tool", arguments=called)
        sent = json.loads(said["content"][0]["text"])
        (hello,) = [params for method, params in sent if method == "initialize"]
        assert hello["capabilities"]["extensions"] == APPS["extensions"]

    leaves = Leaves(tmp_path, weather=WEATHER)
    leaves.more('[policy.default]\ndeny = ["weather.show"]\n')
    scene_of(leaves, "modern", scene)
