"""Learning from use: what a call that worked teaches search, and what it does not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from toolfold import Gateway, Settings
from toolfold.audit.selections import _SessionSelections
from toolfold.config.sections import Audit, Policy
from toolfold.errors import NoMatchInCategory
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import LOCAL, Caller

THINGS = ("invoice", "branch", "contact", "dashboard", "recipe", "playlist", "parcel", "meeting")
VERBS = ("list", "create", "delete", "update")
TOOLS = [
    {"name": "get_state", "description": "Gets the state of a lock, a light or another entity."},
    {"name": "get_weather", "description": "Tells the weather of a city."},
    *({"name": f"{verb}_{thing}", "description": f"{verb}s a {thing}."} for thing in THINGS for verb in VERBS),
]


@asynccontextmanager
async def home_of(
    folder: Path, policies: tuple[Policy, ...] = (), audit: Audit | None = None
) -> AsyncIterator[Gateway]:
    listed = [{**tool, "inputSchema": {"type": "object"}} for tool in TOOLS]
    settings = Settings(home=folder, audit=audit or Audit(), policies=policies)
    async with Gateway(settings, upstreams=[MemoryUpstream("home", listed)]) as gateway:
        await gateway.build()
        yield gateway


async def ask(gateway: Gateway, query: str, caller: Caller = LOCAL) -> list[str]:
    """The ids that a search shows; none where it refuses."""
    try:
        page = await gateway.search_tool_by_category(query, caller=caller)
    except NoMatchInCategory:
        return []
    return [hit["tool_id"] for hit in page["results"]]


async def prior(gateway: Gateway, query: str, tool_id: str) -> float:
    await gateway.audit_log.flush()
    hits = await gateway.search.hits(gateway.view(), query, (), limit=50)
    return next(hit.why.prior for hit in hits if hit.tool_id == tool_id)


async def test_16_08_it_is_on_where_the_trail_is_and_off_where_either_is_off(tmp_path: Path) -> None:
    query = "the weather of a city"
    audits = [(Audit(), 1), (Audit(learn=False), 0), (Audit(enabled=False), 0)]
    for number, (audit, learned) in enumerate(audits):
        async with home_of(tmp_path / str(number), audit=audit) as gateway:
            assert "home.get_weather" in await ask(gateway, query)
            await gateway.expand_tool("home.get_weather")
            await gateway.call_tool("home.get_weather", {})
            await gateway.audit_log.flush()
            assert await gateway.search.count_choices() == learned


async def test_16_08_the_words_of_a_poor_first_search_learn_the_tool_that_was_called_in_the_end(tmp_path: Path) -> None:
    poor = "check whether the lock at the back is closed"
    async with home_of(tmp_path) as gateway:
        await ask(gateway, poor)
        await ask(gateway, "get the state of a lock")
        await gateway.expand_tool("home.list_parcel")  # looked at, and not it
        await gateway.expand_tool("home.get_state")
        await gateway.call_tool("home.get_state", {})
        assert await prior(gateway, poor, "home.get_state") > 0
        assert await prior(gateway, "get the state of a lock", "home.get_state") > 0
        assert await prior(gateway, poor, "home.list_parcel") == 0
        assert await gateway.search.count_choices() == 2


async def test_16_08_a_call_for_another_reason_teaches_an_unrelated_search_nothing(tmp_path: Path) -> None:
    unrelated = "translate this poem into Finnish"
    async with home_of(tmp_path) as gateway:
        await ask(gateway, unrelated)
        await gateway.expand_tool("home.delete_invoice")
        await gateway.call_tool("home.delete_invoice", {})
        await ask(gateway, unrelated)
        await ask(gateway, "delete an invoice")
        await gateway.expand_tool("home.delete_invoice")
        await gateway.call_tool("home.delete_invoice", {})
        assert await prior(gateway, unrelated, "home.delete_invoice") == 0
        assert await gateway.search.count_choices() == 1


async def test_16_08_a_tool_far_worse_than_the_best_was_called_for_another_reason(tmp_path: Path) -> None:
    async with home_of(tmp_path) as gateway:
        query = "which meeting is next"
        hits = await gateway.search.hits(gateway.view(), query, (), limit=50)
        worse = [hit for hit in hits if hit.fits and hit.confidence < hits[0].confidence / 4]
        assert worse, "the request has no hit that fits and is far worse"
        assert (await ask(gateway, query))[0] == hits[0].tool_id
        await gateway.expand_tool(worse[0].tool_id)
        await gateway.call_tool(worse[0].tool_id, {})
        assert await prior(gateway, query, worse[0].tool_id) == 0
        assert (await ask(gateway, query))[0] == hits[0].tool_id


async def test_16_08_a_tool_that_was_not_shown_or_not_expanded_teaches_nothing(tmp_path: Path) -> None:
    async with home_of(tmp_path) as gateway:
        await gateway.expand_tool("home.create_recipe")
        shown = await ask(gateway, "create a recipe")
        other = next(name for name in ("home.list_recipe", "home.list_branch") if name not in shown)
        await gateway.call_tool(other, {})
        assert "home.create_recipe" in shown
        await gateway.call_tool("home.create_recipe", {})  # expanded before the search, not because of it
        await gateway.audit_log.flush()
        assert await gateway.search.count_choices() == 0


async def test_16_08_a_tool_that_does_the_opposite_teaches_nothing(tmp_path: Path) -> None:
    offered = [
        {"name": "write_file", "description": "Writes text to a file.", "inputSchema": {"type": "object"}},
        {"name": "read_text_file", "description": "Reads a file as text.", "inputSchema": {"type": "object"}},
    ]
    query = "save this text in a file"
    async with Gateway(Settings(home=tmp_path), upstreams=[MemoryUpstream("files", offered)]) as gateway:
        await gateway.build()
        assert await ask(gateway, query) == ["files.write_file", "files.read_text_file"]
        await gateway.expand_tool("files.read_text_file")
        await gateway.call_tool("files.read_text_file", {})
        await gateway.audit_log.flush()
        assert await gateway.search.count_choices() == 0
        assert await ask(gateway, query) == ["files.write_file", "files.read_text_file"]


async def test_16_08_the_need_of_a_script_is_resolved_without_what_was_learned(tmp_path: Path) -> None:
    need = "create a recipe"
    async with home_of(tmp_path) as gateway:
        before = await gateway.search.resolve(gateway.view(), need)
        for _ in range(3):
            await gateway.search.learn(need, "home.update_recipe")
        assert (await ask(gateway, need))[0] == "home.update_recipe"
        after = await gateway.search.resolve(gateway.view(), need)
        assert (after.tool.tool_id, after.confidence) == (before.tool.tool_id, before.confidence)
        assert after.tool.tool_id == "home.create_recipe"


async def test_16_08_a_name_teaches_nothing_about_words(tmp_path: Path) -> None:
    async with home_of(tmp_path) as gateway:
        assert (await ask(gateway, "home.create_recipe"))[0] == "home.create_recipe"
        await gateway.expand_tool("home.create_recipe")
        await gateway.call_tool("home.create_recipe", {})
        await gateway.audit_log.flush()
        assert await gateway.search.count_choices() == 0


async def test_16_08_another_caller_and_another_session_teach_nothing_of_mine(tmp_path: Path) -> None:
    mine, other = Caller(name="ann", session="1"), Caller(name="ann", session="2")
    async with home_of(tmp_path) as gateway:
        assert "home.create_recipe" in await ask(gateway, "create a recipe", mine)
        for caller in (other, Caller(name="bob", session="1")):
            await gateway.expand_tool("home.create_recipe", caller=caller)
            await gateway.call_tool("home.create_recipe", {}, caller=caller)
        await gateway.audit_log.flush()
        assert await gateway.search.count_choices() == 0


async def test_16_08_what_was_learned_lifts_nothing_that_the_policy_hides_and_passes_no_bar(tmp_path: Path) -> None:
    refused = "which horse is going to win the derby"
    policy = Policy(name="guest", deny=("home.update_parcel",))
    guest = Caller(name="guest", policy="guest")
    async with home_of(tmp_path, (policy,)) as gateway:
        before = await gateway.search.hits(gateway.view(), refused, (), limit=50)
        assert not any(hit.fits for hit in before)
        await gateway.search.learn(refused, "home.update_parcel")
        found = await gateway.search.hits(gateway.view(), refused, (), limit=50)
        assert found[0].tool_id == "home.update_parcel" != before[0].tool_id
        assert not any(hit.fits for hit in found)
        hidden = await gateway.search.hits(gateway.view(guest), refused, (), limit=50)
        assert "home.update_parcel" not in {hit.tool_id for hit in hidden}


async def test_16_08_forgetting_reaches_a_gateway_that_runs_and_leaves_no_word_on_disk(tmp_path: Path) -> None:
    query = "create a recipe for pancakes"
    async with home_of(tmp_path) as running, home_of(tmp_path) as other:
        await ask(running, query)
        await running.expand_tool("home.create_recipe")
        await running.call_tool("home.create_recipe", {})
        assert await prior(running, query, "home.create_recipe") > 0
        assert await prior(other, query, "home.create_recipe") > 0
        kept = [file.read_bytes() for file in (tmp_path / "search").glob("usage-*")]
        assert kept
        assert not any(b"pancakes" in content for content in kept)
        assert await other.search.forget_choices() == 1
        assert await prior(running, query, "home.create_recipe") == 0
        await running.search.learn("list the meetings", "home.list_meeting")
        assert await other.search.count_choices() == 1


def test_16_08_time_ends_what_a_search_can_learn() -> None:
    session = _SessionSelections()
    session.add_result("s1", "is it locked", 1_000.0, [])
    session.add_result("s2", "state of a lock", 1_500.0, ["home.get_state"])
    session.expand("home.get_state", 1_510.0)
    session.start("a", "home.get_state", 1_510.0)
    assert session.use("home.get_state", 1_620.0) == ["state of a lock"]
    session.add_result("s3", "is it locked", 3_000.0, ["home.get_light"])
    session.expand("home.get_light", 3_010.0)
    session.start("b", "home.get_light", 3_010.0)
    assert session.use("home.get_light", 3_700.0) == []


@pytest.mark.parametrize("shown", [[], ["home.get_state"]])
def test_16_08_one_call_teaches_three_searches_at_most_and_each_once(shown: list[str]) -> None:
    session = _SessionSelections()
    for number in range(8):
        session.add_result(f"s{number}", f"query {number // 2}", 1_000.0 + number, shown)
    session.add_result("s8", "query 4", 1_008.0, ["home.get_state"])
    session.expand("home.get_state", 1_020.0)
    session.start("a", "home.get_state", 1_020.0)
    assert session.use("home.get_state", 1_030.0) == ["query 2", "query 3", "query 4"]
    assert session.use("home.get_state", 1_040.0) == []
