"""Whoever can search is told how to ask, in few tokens."""

from toolfold import tokens
from toolfold.agent.commands import COMMAND_DESCRIPTIONS, tool_offers
from toolfold.agent.prompts import system_prompt
from toolfold.faces.surface.auto import STARTING_INSTRUCTIONS
from toolfold.faces.surface.definitions import BY_NAME, tool_objects
from toolfold.faces.surface.instructions import RULES

# What the tools and the rules of the instructions took before they said how to ask, and what that may cost.
BEFORE = 1011 + 118
MAY_COST = 120


def test_16_01_the_surface_says_how_to_ask_and_grows_by_120_tokens_at_most() -> None:
    tools = "[" + ",".join(bytes(raw).decode() for raw in tool_objects().values()) + "]"
    assert tokens.count(tools) + tokens.count(RULES) <= BEFORE + MAY_COST
    for name in ("search_tool_by_category", "search_nodes"):
        told = BY_NAME[name].properties["query"]["description"]
        assert told == "one whole sentence: what to do, with what kind of thing, in which product"
    assert "search_tool_by_category" in BY_NAME["list"].properties["query"]["description"]
    # A small model sent an example that stood here as its own query, three times in ten.
    assert "lock" not in tools
    assert "must do" in BY_NAME["run_script"].description
    assert "must do" in STARTING_INSTRUCTIONS
    assert "one whole sentence: what to do, with what kind of thing, in which product" in RULES


def test_16_01_nothing_invites_the_users_own_words() -> None:
    texts = [*(bytes(raw).decode() for raw in tool_objects().values()), RULES, *COMMAND_DESCRIPTIONS.values()]
    assert not [text for text in texts if "plain words" in text]


def test_16_01_the_planner_is_told_in_its_prompt_and_in_the_command() -> None:
    prompt = system_prompt(nonce="n", native=True, commands=("search", "finish"), available=())
    assert "by what it must do, in one whole sentence" in prompt
    query = tool_offers(("search",))[0].parameters["properties"]["query"]["description"]
    assert all(part in query for part in ("must do", "One whole sentence", "product"))
    alone = system_prompt(nonce="n", native=True, commands=("finish",), available=())
    assert "whole sentence" not in alone
