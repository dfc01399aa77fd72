"""A search that finds nothing names the nearest tools, wherever it was asked, within what the caller may see."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import StringIO
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from toolfold import Gateway, Settings
from toolfold.agent.definition import AgentDefinition
from toolfold.config.sections import Policy
from toolfold.errors import NoMatchInCategory, ToolNotFound
from toolfold.faces.cli.terminal import Output
from toolfold.faces.surface.discovery import DiscoverySurface
from toolfold.model import Prompt, Reply, ToolUse
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.testing.scripted_model import ScriptedModel
from toolfold.types import CallContext, Caller

FLIGHT = "book a flight to the moon"
THINGS = ("invoice", "ticket", "branch", "contact", "dashboard", "recipe", "playlist", "thermostat")
VERBS = ("list", "create", "delete", "update")


def tools(*things: str) -> list[dict[str, Any]]:
    return [
        {
            "name": f"{verb}_{thing}",
            "description": f"{verb.capitalize()}s a {thing}.",
            "inputSchema": {"type": "object"},
        }
        for thing in things
        for verb in VERBS
    ]


@asynccontextmanager
async def office(home: Path, *policies: Policy, things: tuple[str, ...] = THINGS) -> AsyncIterator[Gateway]:
    servers = [MemoryUpstream("a", tools(*things[::2])), MemoryUpstream("b", tools(*things[1::2]))]
    for server in servers:
        for verb in VERBS:
            for thing in things:
                server.answer(f"{verb}_{thing}", {"content": [{"type": "text", "text": "done"}]})
    async with Gateway(Settings(home=home, policies=policies), upstreams=servers) as gateway:
        await gateway.build()
        yield gateway


def check(hints: Any) -> list[str]:
    assert 0 < len(hints) <= 5
    assert all(set(hint) == {"tool_id", "summary"} and hint["summary"] for hint in hints)
    return [hint["tool_id"] for hint in hints]


async def test_17_what_is_not_sure_is_not_said_to_be_missing_and_categories_are_called_so(tmp_path: Path) -> None:
    async with office(tmp_path) as gateway:
        with pytest.raises(NoMatchInCategory) as caught:
            await gateway.search_tool_by_category(FLIGHT)
        assert caught.value.message == f"no tool is sure to fit {FLIGHT!r}; the nearest tools are named"
        with pytest.raises(NoMatchInCategory) as caught:
            await gateway.search_nodes(FLIGHT)
        assert caught.value.message == f"no category is sure to fit {FLIGHT!r}; the nearest tools are named"
        assert "look for tools with toolfold search" in Output.for_person(caught.value.next_action)
    async with office(tmp_path / "few", things=THINGS[:2]) as gateway:
        assert "these are the nearest categories of 8 tools" in (await gateway.search_nodes(FLIGHT))["note"]


async def test_16_02_each_way_to_search_names_the_nearest_and_how_to_ask(tmp_path: Path) -> None:
    async with office(tmp_path) as gateway:
        nearest = [hit.tool_id for hit in await gateway.search.hits(gateway.view(), FLIGHT, (), limit=5)]
        for asked in (
            gateway.search_tool_by_category(FLIGHT),
            gateway.list(query=FLIGHT),
            gateway.search_nodes(FLIGHT),
            gateway.available_tools(FLIGHT),
        ):
            with pytest.raises(NoMatchInCategory) as caught:
                await asked
            assert check(caught.value.hints) == nearest
            assert "one whole sentence" in caught.value.next_action
            assert "categories" not in caught.value.as_dict()


async def test_16_02_a_model_and_a_person_read_them(tmp_path: Path) -> None:
    async with office(tmp_path) as gateway:
        asked = Raw(msgspec.json.encode({"query": FLIGHT}))
        result = json.loads(bytes(await DiscoverySurface(gateway).call("search_nodes", asked, CallContext())))
        assert result["isError"]
        first = check(json.loads(result["content"][0]["text"])["error"]["hints"])[0]
        with pytest.raises(NoMatchInCategory) as caught:
            await gateway.search_tool_by_category(FLIGHT)
        told = StringIO()
        Output(err=told).error(caught.value)
        assert f"  - {first}: " in told.getvalue()
        assert "{" not in told.getvalue()


async def test_16_02_hints_stay_within_what_the_caller_may_see(tmp_path: Path) -> None:
    policies = (Policy(name="half", deny=("b.*",)), Policy(name="nothing", allow=()))
    async with office(tmp_path, *policies, things=(*THINGS, *(f"{thing} draft" for thing in THINGS))) as gateway:
        with pytest.raises(NoMatchInCategory) as caught:
            await gateway.search_tool_by_category(FLIGHT, caller=Caller(name="x", policy="half"))
        assert all(tool_id.startswith("a.") for tool_id in check(caught.value.hints))
        with pytest.raises(NoMatchInCategory) as nothing:
            await gateway.search_tool_by_category(FLIGHT, caller=Caller(name="y", policy="nothing"))
        assert nothing.value.hints == ()


async def test_16_02_few_are_counted_as_the_caller_sees_them(tmp_path: Path) -> None:
    async with office(tmp_path, Policy(name="half", deny=("b.*",))) as gateway:
        found = await gateway.search_tool_by_category(FLIGHT, caller=Caller(name="x", policy="half"))
        assert "16 tools" in found["note"]
        assert all(hit["tool_id"].startswith("a.") for hit in found["results"])
        assert found["results"][0]["confidence"] < 0.3
        rest = await gateway.search_tool_by_category(
            FLIGHT, caller=Caller(name="x", policy="half"), cursor=found["next_cursor"]
        )
        assert rest["results"]


async def test_16_02_a_need_of_a_script_is_refused_with_ids_and_summaries(tmp_path: Path) -> None:
    script = f"""
from runtime.discovery import use_tools
from runtime.exceptions import ToolNotFound
try:
    use_tools("{FLIGHT}")
except ToolNotFound as error:
    print(len(error.hints), sorted(error.hints[0]), error.candidates[0] == error.hints[0]["tool_id"])
"""
    async with office(tmp_path, things=THINGS[:2]) as gateway:
        with pytest.raises(ToolNotFound) as caught:
            await gateway.search.resolve(gateway.view(), FLIGHT)
        assert check(caught.value.hints) == list(caught.value.candidates)
        with pytest.raises(ToolNotFound) as elsewhere:
            await gateway.search.resolve(gateway.view(), FLIGHT, server="no such server")
        assert check(elsewhere.value.hints)
        result = await gateway.run_script(script)
        text = gateway.scripts.as_text(result)
        assert "5 ['summary', 'tool_id'] True" in text
        assert f"{caught.value.hints[0]['tool_id']} ({caught.value.hints[0]['summary']})" in text


def saying(*uses: ToolUse) -> ScriptedModel:
    end = ToolUse("end", "fail", {"reason": "there is no flight"})
    replies = chain((Reply(uses=(use,)) for use in uses), repeat(Reply(uses=(end,))))
    return ScriptedModel(lambda prompt: next(replies))


def last(prompt: Prompt) -> str:
    return prompt.messages[-1].content


async def test_16_02_a_planner_gets_the_nearest_that_it_may_use_and_may_call_them(tmp_path: Path) -> None:
    async with office(tmp_path, things=(*THINGS, *(f"{thing} draft" for thing in THINGS))) as gateway:
        model = saying(ToolUse("1", "search", {"query": FLIGHT}))
        definition = AgentDefinition(tools=("b.*",))
        await gateway.agent(model=model, definition=definition).run("Go to the moon.")
        error = json.loads(last(model.prompts[1]).partition("\n")[2])
        near = check(error["hints"])
        assert all(tool_id.startswith("b.") for tool_id in near)
        assert {tool_id.replace(".", "_") for tool_id in near} <= {offer.name for offer in model.prompts[1].tools}
        again = saying(ToolUse("1", "search", {"query": FLIGHT}), ToolUse("2", near[0].replace(".", "_"), {}))
        await gateway.agent(model=again, definition=definition).run("Go to the moon.")
        assert "done" in last(again.prompts[2])


async def test_16_02_searches_that_find_nothing_stay_fruitless(tmp_path: Path) -> None:
    async with office(tmp_path, things=(*THINGS, *(f"{thing} draft" for thing in THINGS))) as gateway:
        places = ("moon", "sun", "red planet Mars", "bottom of the sea")
        model = saying(*(ToolUse(place, "search", {"query": f"book a flight to the {place}"}) for place in places))
        await gateway.agent(model=model).run("Go far away.")
        assert "REFUSED" in last(model.prompts[4])


async def test_16_02_the_nearest_of_few_are_paged_and_tags_still_hold(tmp_path: Path) -> None:
    async with office(tmp_path, things=THINGS[:3]) as gateway:
        seen: list[str] = []
        cursor = None
        while True:
            page = await gateway.list(query=FLIGHT, limit=2, cursor=cursor)
            assert page["note"]
            seen += [tool["tool_id"] for tool in page["tools"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert len(seen) == len(set(seen)) == 5
        risky = await gateway.list(query=FLIGHT, tags=["risk:destructive"])
        assert {tool["tool_id"].partition(".")[2].partition("_")[0] for tool in risky["tools"]} == {"delete"}
        with pytest.raises(NoMatchInCategory) as caught:
            await gateway.list(query=FLIGHT, tags=["no such tag"])
        assert check(caught.value.hints)
