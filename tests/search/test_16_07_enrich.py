"""Requests that a model wrote for tools: asked for once, validated, kept by fingerprint, read by the index alone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from search_catalogue import encoder, tools

from toolfold import Gateway, Settings
from toolfold.errors import ModelError
from toolfold.model import Prompt
from toolfold.search import enrichment
from toolfold.search.enrichment import _requests_in
from toolfold.search.index import SearchIndex
from toolfold.search.service import SearchService
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.testing.scripted_model import Answer, ScriptedModel

LOCKED = "is the back door locked?"
STATES = [
    {"name": "get_state", "description": "Gets the state of an entity.", "inputSchema": {"type": "object"}},
    {"name": "list_areas", "description": "Lists the areas.", "inputSchema": {"type": "object"}},
    {"name": "reload", "description": "Reloads the configuration.", "inputSchema": {"type": "object"}},
]


def written(prompt: Prompt) -> str:
    asked = prompt.messages[0].content
    if "get_state" in asked:
        return f"1. {LOCKED}\n2. did I leave the oven on\n3. how warm is the bedroom"
    return "show me the rooms of my house" if "list_areas" in asked else "I'm sorry, I cannot help with that."


@asynccontextmanager
async def home_of(folder: Path, listed: list[dict[str, Any]] = STATES) -> AsyncIterator[Gateway]:
    async with Gateway(Settings(home=folder), upstreams=[MemoryUpstream("home", listed)]) as gateway:
        await gateway.build(index=False)
        yield gateway


async def enrich(gateway: Gateway, model: ScriptedModel, **options: Any) -> dict[str, int]:
    return await gateway.search.enrich(model, on_start=lambda tools: lambda tool_id: None, **options)


async def near(search: SearchService, gateway: Gateway, query: str) -> dict[str, float]:
    return {hit.tool_id: hit.why.near for hit in await search.hits(gateway.view(), query, (), limit=10)}


async def test_16_07_a_model_is_asked_once_about_each_tool_and_search_knows_its_words(tmp_path: Path) -> None:
    async with home_of(tmp_path) as gateway:
        before = await near(gateway.search, gateway, LOCKED)
        model = ScriptedModel(written)
        assert await enrich(gateway, model) == {"enriched": 2, "unusable": 1, "failed": 0}
        found = await gateway.search.hits(gateway.view(), LOCKED, (), limit=10)
        assert found[0].tool_id == "home.get_state"
        assert {"door", "locked"} <= set(found[0].why.words)
        after = {hit.tool_id: hit.why.near for hit in found}
        assert after["home.get_state"] > before["home.get_state"]
        assert after["home.reload"] == before["home.reload"]
        assert await gateway.search.count_enriched() == 2
        # Not even the one whose answer was of no use is asked about again.
        assert await enrich(gateway, model) == {"enriched": 0, "unusable": 0, "failed": 0}
        assert len(model.prompts) == 3


async def test_16_07_a_changed_tool_is_asked_about_again_an_unchanged_one_never(tmp_path: Path) -> None:
    model = ScriptedModel(written)
    async with home_of(tmp_path) as gateway:
        await enrich(gateway, model)
    changed = [{**STATES[0], "description": "Gets the state of a lock or a light."}, *STATES[1:]]
    async with home_of(tmp_path, changed) as gateway:
        assert await gateway.search.count_enriched() == 1
        again = ScriptedModel(written)
        await enrich(gateway, again)
        assert ["Tool of home: get_state\n" in prompt.messages[0].content for prompt in again.prompts] == [True]


async def test_16_07_a_new_process_notices_what_an_interrupted_run_left_and_embeds_only_that(tmp_path: Path) -> None:
    async with home_of(tmp_path) as gateway:
        assert await gateway.search.sync() == 3
        await enrich(gateway, ScriptedModel(written), limit=1)
    async with home_of(tmp_path) as gateway:
        assert await gateway.search.sync() == 1
    async with home_of(tmp_path) as gateway:
        assert await gateway.search.sync() == 0
        assert await gateway.search.forget_requests() == 1
        await gateway.search.sync()
        assert await gateway.search.count_enriched() == 0
        plain = await near(gateway.search, gateway, LOCKED)
    async with home_of(tmp_path / "other") as gateway:
        assert await near(gateway.search, gateway, LOCKED) == plain


async def test_16_07_only_the_named_server_is_asked_about_and_forgotten(tmp_path: Path) -> None:
    other = [{"name": "ping", "description": "Pings a host.", "inputSchema": {"type": "object"}}]
    upstreams = [MemoryUpstream("home", STATES), MemoryUpstream("net", other)]
    async with Gateway(Settings(home=tmp_path), upstreams=upstreams) as gateway:
        await gateway.build()
        model = ScriptedModel(lambda prompt: "is that computer up")
        assert (await enrich(gateway, model, server="net"))["enriched"] == 1
        assert (await enrich(gateway, model))["enriched"] == 3
        assert await gateway.search.forget_requests(server="net") == 1
        assert await gateway.search.count_enriched() == 3


async def test_16_07_what_was_answered_stays_where_the_model_fails(tmp_path: Path) -> None:
    answers: list[Answer] = ["turn the heating down", *[ModelError("out of reach")] * 9]
    listed = [{**STATES[0], "name": f"get_{number}"} for number in range(12)]
    async with home_of(tmp_path, listed) as gateway:
        with pytest.raises(ModelError, match="out of reach"):
            await enrich(gateway, ScriptedModel(answers))
        assert await gateway.search.count_enriched() == 1
        assert await enrich(gateway, ScriptedModel(lambda prompt: "turn it down")) == {
            "enriched": 11,
            "unusable": 0,
            "failed": 0,
        }


async def test_16_07_one_tool_that_a_model_refuses_does_not_hold_up_the_others(tmp_path: Path) -> None:
    def answer(prompt: Prompt) -> Answer:
        return ModelError("bad request") if "reload" in prompt.messages[0].content else written(prompt)

    async with home_of(tmp_path) as gateway:
        assert await enrich(gateway, ScriptedModel(answer)) == {"enriched": 2, "unusable": 0, "failed": 1}


async def test_16_07_the_number_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enrichment, "_MAX_KEPT", 2)
    model = ScriptedModel(lambda prompt: "what is it like at home")
    async with home_of(tmp_path, STATES[:2]) as gateway:
        assert (await enrich(gateway, model))["enriched"] == 2
    async with home_of(tmp_path, STATES[1:]) as gateway:  # one is gone, and makes room
        assert (await enrich(gateway, model))["enriched"] == 1
    async with home_of(tmp_path) as gateway:
        assert (await enrich(gateway, model))["enriched"] == 0


@pytest.mark.parametrize(
    ("answer", "requests"),
    [
        ("1. turn the light off\n2) turn it on\n\n- dim it", ("turn the light off", "turn it on", "dim it")),
        ('["turn it off", "turn it on"]', ("turn it off", "turn it on")),
        ('```json\n[\n  "turn it off",\n  "turn it on"\n]\n```', ("turn it off", "turn it on")),
        ("Sure! Here are five requests:\n\n\u201cturn it off\u201d", ("turn it off",)),
        ("turn it off\nTurn it off.\nTURN IT OFF", ("turn it off",)),
        ("I can't log in to my account, what now?", ("I can't log in to my account, what now?",)),
        ("I cannot help with that.\nAs an AI language model, I do not.\nI\u2019m sorry.", ()),
        ("x" * 161 + "\n\x1b[31mred\n  \n...\n", ()),
        ("\n".join(f"turn light {number} off" for number in range(99)), tuple(f"turn light {n} off" for n in range(5))),
        ("", ()),
        ("1. **Find all logins of Ann.**\n   - **What they want:** To see who came in.", ("Find all logins of Ann.",)),
        ("**Is it on?**\n- **Request:** `get_state?id=4`\ncall get_state for the light", ("Is it on?",)),
        ("\ud800 alone\nturn it off", ("turn it off",)),
        ("24 hours of weather for Rome\n3 unread mails?", ("24 hours of weather for Rome", "3 unread mails?")),
    ],
)
def test_16_07_of_an_answer_only_what_can_be_a_request_is_kept(answer: str, requests: tuple[str, ...]) -> None:
    assert _requests_in(answer, "get_state") == requests


def test_16_07_tools_without_requests_stay_as_they_were_bit_for_bit() -> None:
    plain, mixed = (SearchIndex.open(None, encoder=encoder()) for _ in range(2))
    plain.sync(tools())
    asked = ("will I need an umbrella", "is it going to rain on Sunday")
    mixed.sync([replace(tool, requests=asked) if tool.name == "get_forecast" else tool for tool in tools()])
    rows = [index._current().snapshot for index in (plain, mixed)]
    for row in range(rows[0].total):
        same = [
            (state.place(row)[0].arrays["vector"][row].tobytes(), float(state.lengths[row]), state.tool_id(row))
            for state in rows
        ]
        assert (same[0] == same[1]) is (rows[0].tool_id(row) != "weather.get_forecast")
    vector = rows[1].segments[0].arrays
    at = next(row for row in range(rows[1].total) if rows[1].tool_id(row) == "weather.get_forecast")
    length = np.linalg.norm(vector["vector"][at].astype(np.float64) * float(vector["scale"][at]))
    assert length == pytest.approx(1, abs=0.01)
