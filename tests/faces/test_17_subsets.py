"""Named subsets of the tools: served alone, at their own address or by name, and never more than the policy allows."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_client_helpers import command, served_over_http
from served_config import Served, call, wait_for_call

from toolfold import ConfigError, Gateway, Settings, ToolfoldError
from toolfold.__main__ import main
from toolfold.config.sections import Policy, Subset
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import Caller


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


TEXTS = '[subsets.texts]\ntools = ["fixture.test_simple_text", "fixture.test_error_handling"]\n'
DENIED = '[policy.default]\ndeny = ["fixture.test_error_handling"]\n'


def read_order(number: int) -> int:
    """Reads an order."""
    return number


def delete_order(number: int) -> int:
    """Deletes an order."""
    return number


def make_order() -> int:
    """Makes an order."""
    return 1


@pytest.mark.parametrize(
    ("policy", "subset", "seen"),
    [
        ({}, ["shop.*_order"], ["delete_order", "make_order", "read_order"]),
        ({}, ["shop.read_order"], ["read_order"]),
        ({}, ["risk:destructive"], ["delete_order"]),
        ({"deny": ("shop.delete_order",)}, ["**"], ["make_order", "read_order"]),
        ({"allow": ("shop.read_order",)}, ["shop.delete_order", "shop.read_order"], ["read_order"]),
        ({"deny": ("**",), "reveal": ("**",)}, ["shop.read_order"], []),
        ({}, ["other.*"], []),
    ],
)
def test_17_a_subset_is_what_both_it_and_the_policy_allow(
    policy: dict[str, Any], subset: list[str], seen: list[str], tmp_path: Path
) -> None:
    async def scene() -> None:
        settings = Settings(
            home=tmp_path,
            policies=(Policy(name="default", **policy),),
            subsets=(Subset(name="part", tools=tuple(subset)),),
        )
        shop = MemoryUpstream("shop", [read_order, delete_order, make_order])
        caller = Caller(subset="part")
        async with Gateway(settings, upstreams=[shop]) as gateway:
            await gateway.build(index=False)
            assert (await gateway.inventory(caller=caller)).get("shop", []) == seen
            for tool in {"read_order", "delete_order", "make_order"} - set(seen):
                with pytest.raises(ToolfoldError) as raised:
                    await gateway.call_tool(f"shop.{tool}", {"number": 1}, caller=caller)
                assert raised.value.code in {"TOOL_NOT_FOUND", "NOT_AUTHORIZED"}
            with pytest.raises(ConfigError, match="no subset 'parts'"):
                await gateway.inventory(caller=Caller(subset="parts"))

    asyncio.run(scene())


def test_17_each_subset_has_an_address_of_its_own(tmp_path: Path) -> None:
    async def names(url: str) -> set[str]:
        async with asyncio.timeout(60), Client(url, cache=None) as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    with served_over_http(tmp_path, "--profile", "direct", extra=TEXTS + DENIED) as url:
        whole, part = asyncio.run(names(url)), asyncio.run(names(f"{url}/p/texts"))
        assert {"fixture_test_simple_text", "fixture_test_image_content"} <= whole
        assert part - {"tool_output"} == {"fixture_test_simple_text"}
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the client makes of 404
            asyncio.run(names(f"{url}/p/nothing"))


def test_17_serve_subset_serves_that_alone(tmp_path: Path) -> None:
    program, *arguments = command(tmp_path, "--profile", "direct", "--subset", "texts", extra=TEXTS)

    async def scene() -> None:
        parameters = StdioServerParameters(command=program, args=arguments)
        async with asyncio.timeout(60), Client(parameters, cache=None) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} - {"tool_output"} == {
                "fixture_test_simple_text",
                "fixture_test_error_handling",
            }
            answer = await client.call_tool("fixture_test_simple_text", {})
            assert "simple text" in str(answer.content)

    asyncio.run(scene())


def test_17_a_subset_that_is_not_there_is_said_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, _, *arguments = command(tmp_path, "--http", "127.0.0.1:0", "--subset", "text", extra=TEXTS)
    assert main(arguments) != 0
    said = capsys.readouterr().err
    assert "there is no subset 'text'" in said
    assert "texts" in said


def test_17_the_subsets_of_a_file_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "toolfold.toml"
    for text, said in (
        ("[subsets.a]\ntols = []\n", "Did you mean `tools`"),
        ('[subsets.a]\ntools = ["pth:x"]\n', "unknown kind of pattern"),
        ('[subsets."a b"]\ntools = ["x"]\n', "not a valid name of a subset"),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=said):
            Settings.load(file, require_servers=False)
    file.write_text('[subsets.a]\ntools = "git.*"\n', encoding="utf-8")
    assert Settings.load(file, require_servers=False).subsets == (Subset(name="a", tools=("git.*",)),)


def test_17_subsets_change_while_they_are_served(served: Served) -> None:
    table = served.table("a", "one", "two")
    served.write(table, "[subsets.part]\ntools = ['a.one']\n")

    async def names(client: Client) -> set[str]:
        return {tool.name for tool in (await client.list_tools()).tools} - {"tool_output"}

    async def scene(url: str) -> None:
        # With the cache that the SDK has by itself: it must not hide what changed.
        async with asyncio.timeout(60), Client(f"{url}/p/part") as client:
            assert await names(client) == {"a_one"}
            served.write(table, "[subsets.part]\ntools = ['a.two']\n[subsets.more]\ntools = ['a.*']\n")
            assert "takes effect" not in served.wait_for("the configuration was read again")
            assert await names(client) == {"a_two"}
            async with Client(f"{url}/p/more") as other:
                assert await names(other) == {"a_one", "a_two"}
            served.write(table, "[subsets.more]\ntools = ['a.*']\n")
            served.wait_for("the configuration was read again", 2)
            with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the client makes of 404
                await names(client)

    with served.over_http("--profile", "direct") as url:
        wait_for_call(url, "a.one")
        asyncio.run(scene(url))


def test_17_the_subset_that_is_served_alone_stays(served: Served) -> None:
    table = served.table("a", "one", "two")
    served.write(table, "[subsets.part]\ntools = ['a.one']\n")
    with served.over_http("--subset", "part") as url:
        wait_for_call(url, "a.one")
        served.write(table)
        served.wait_for("the earlier one stays: the subset part that is served is not there any more")
        assert call(url, "a.two", {})["error"]["code"] == "TOOL_NOT_FOUND"
