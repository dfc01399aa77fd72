"""Which tools an agent is offered before any search, over real servers: all of few, of many those near its task."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from toolfold import Gateway
from toolfold.agent.definition import AgentDefinition
from toolfold.config import Settings
from toolfold.model import Prompt, Reply, ToolUse
from toolfold.testing.scripted_model import ScriptedModel
from toolfold.types import ServerSpec

MANY = Path(__file__).resolve().parents[1] / "servers" / "misbehaving_stdio.py"
TASK = "What does the text file note.txt say? Read it."


@asynccontextmanager
async def gateway(folder: Path, *, crowd: int) -> AsyncIterator[Gateway]:
    """Six tools on files, and a crowd of others."""
    (folder / "note.txt").write_text("hello")
    files = ("-m", "toolfold.demo.files", str(folder))
    crowded = ("-I", "-S", str(MANY), "--tools", str(crowd))
    servers = tuple(
        ServerSpec(name=name, transport="stdio", command=sys.executable, args=args)
        for name, args in (("files", files), ("crowd", crowded))
    )
    async with Gateway(Settings(servers=servers, home=folder / "home")) as opened:
        await opened.build()
        yield opened


async def first_prompt(opened: Gateway, *tools: str) -> Prompt:
    model = ScriptedModel(lambda prompt: Reply(text="It says hello."))
    await opened.agent(model=model, definition=AgentDefinition(tools=tools or ("*",))).run(TASK)
    return model.prompts[0]


def offered(prompt: Prompt) -> set[str]:
    commands = {"search", "sandbox", "finish", "fail"}
    return {offer.name for offer in prompt.tools if offer.name not in commands}


async def test_15_13_of_many_tools_those_near_the_task_are_offered_and_called_without_a_search(tmp_path: Path) -> None:
    async with gateway(tmp_path, crowd=40) as opened:
        prompt = await first_prompt(opened)
        assert "files_read" in offered(prompt)
        assert len(offered(prompt)) <= 8
        assert "search" in {offer.name for offer in prompt.tools}
        says = iter([Reply(uses=(ToolUse("1", "files_read", {"path": "note.txt"}),)), Reply(text="It says hello.")])
        model = ScriptedModel(lambda prompt: next(says))
        report = await opened.agent(model=model).run(TASK)
        assert (report.ending, report.text, report.calls) == ("finished", "It says hello.", 1)
        assert "hello" in model.prompts[1].messages[-1].content


async def test_15_13_an_agent_sees_only_the_servers_of_its_own_tools(tmp_path: Path) -> None:
    async with gateway(tmp_path, crowd=40) as opened:
        prompt = await first_prompt(opened, "files.*")
        assert offered(prompt) == {f"files_{name}" for name in ("list", "read", "search", "stat", "tree", "write")}
        assert "crowd" not in msgspec.json.encode(prompt).decode()
        others = await first_prompt(opened, "crowd.*")
        assert 0 < len(offered(others)) <= 8
        assert all(name.startswith("crowd_") for name in offered(others))


async def test_15_13_a_search_finds_what_an_agent_may_use_below_what_others_may(tmp_path: Path) -> None:
    search = Reply(uses=(ToolUse("1", "search", {"query": "read a text file", "limit": 1}),))
    says = iter([search, Reply(uses=(ToolUse("1", "finish", {"report": "done"}),))])
    model = ScriptedModel(lambda prompt: next(says))
    async with gateway(tmp_path, crowd=2) as opened:
        definition = AgentDefinition(tools=("files.stat",))
        await opened.agent(model=model, definition=definition).run(TASK)
    assert "files.stat" in model.prompts[1].messages[-1].content


async def test_15_13_a_schema_that_is_too_large_for_an_offer_is_told_in_short(tmp_path: Path) -> None:
    options = {f"option_{number}": {"type": "string", "description": "x" * 50} for number in range(100)}
    code = f"""
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    tool = {{"name": "large", "inputSchema": {{"type": "object", "properties": {options!r}}}}}
    told = {{"protocolVersion": "2025-11-25", "capabilities": {{"tools": {{}}}}, "serverInfo": {{"name": "x"}}}}
    result = told if asked["method"] == "initialize" else {{"tools": [tool]}}
    print(json.dumps({{"jsonrpc": "2.0", "id": asked["id"], "result": result}}), flush=True)
"""
    server = ServerSpec(name="big", transport="stdio", command=sys.executable, args=("-I", "-S", "-c", code))
    async with Gateway(Settings(servers=(server,), home=tmp_path)) as opened:
        await opened.build()
        (offer,) = [offer for offer in (await first_prompt(opened)).tools if offer.name == "big_large"]
    assert offer.parameters == {"type": "object"}
    assert "Arguments: option_0: string; option_1: string" in offer.description


async def test_15_13_without_any_tool_a_search_is_offered_and_says_why(tmp_path: Path) -> None:
    search, fail = ToolUse("1", "search", {"query": "read"}), ToolUse("2", "fail", {"reason": "there is no tool"})
    says = iter([Reply(uses=(search,)), Reply(uses=(fail,))])
    model = ScriptedModel(lambda prompt: next(says))
    async with gateway(tmp_path, crowd=2) as opened:
        await opened.agent(model=model, definition=AgentDefinition(tools=("nobody.*",))).run(TASK)
    assert "search" in {offer.name for offer in model.prompts[0].tools}
    assert "no tool that this agent may use fits" in model.prompts[1].messages[-1].content
