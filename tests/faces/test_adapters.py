"""A gateway's tools as native tools of other libraries: the shapes they take, and real agents that use them."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from toolfold import BlockingGateway, Gateway, Settings
from toolfold.adapters import (
    AnthropicTools,
    DirectSurface,
    DiscoverySurface,
    OpenAITools,
    SurfaceToolset,
    langchain_tools,
)
from toolfold.adapters.toolkit import ToolResult, _raw_arguments
from toolfold.errors import ConfigError
from toolfold.testing.memory_upstream import MemoryUpstream

PICTURE = {"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}, {"type": "text", "text": "a dot"}]}


def find_order(order_id: int) -> dict[str, str]:
    """Finds an order of the shop by its number."""
    return {"order": f"number {order_id}"}


def shop() -> MemoryUpstream:
    server = MemoryUpstream("shop", [find_order, {"name": "draw", "description": "Draws a dot"}])
    server.answer("draw", PICTURE)
    return server


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Gateway]:
    async with Gateway(Settings(home=folder), upstreams=[shop()]) as gateway:
        await gateway.build()
        yield gateway


def call(order: int) -> str:
    return json.dumps({"tool_id": "shop.find_order", "args": {"order_id": order}})


async def test_openai_chat_tools_and_calls(tmp_path: Path) -> None:
    async with opened(tmp_path) as gateway:
        tools = OpenAITools(DiscoverySurface(gateway))
        shown = await tools.chat_tools()
        assert {tool["type"] for tool in shown} == {"function"}
        assert [tool["function"]["name"] for tool in shown][:2] == ["list", "search_nodes"]
        assert all(set(tool["function"]) == {"name", "description", "parameters"} for tool in shown)
        asked = [
            {"id": "1", "type": "function", "function": {"name": "call_tool", "arguments": call(7)}},
            {"id": "2", "type": "function", "function": {"name": "nothing", "arguments": "{}"}},
            {"id": "3", "type": "function", "function": {"name": "list", "arguments": "{not json"}},
            {"id": "4", "type": "function", "function": {"name": "list", "arguments": ""}},
        ]
        answers = await tools.run_chat({"role": "assistant", "tool_calls": asked})
        assert [(answer["role"], answer["tool_call_id"]) for answer in answers] == [("tool", n) for n in "1234"]
        assert "number 7" in answers[0]["content"]
        assert "TOOL_NOT_FOUND" in answers[1]["content"]
        assert "INVALID_ARGUMENTS" in answers[2]["content"]
        assert json.loads(answers[3]["content"])["path"] == []
        assert await tools.run_chat(SimpleNamespace(tool_calls=None)) == []


async def test_openai_responses_tools_and_calls(tmp_path: Path) -> None:
    async with opened(tmp_path) as gateway:
        tools = OpenAITools(gateway)
        assert all(tool["type"] == "function" and tool["name"] for tool in await tools.responses_tools())
        item = SimpleNamespace(type="function_call", call_id="c", name="call_tool", arguments=call(8))
        (answer,) = await tools.run_responses(SimpleNamespace(output=[SimpleNamespace(type="message"), item]))
        assert (answer["type"], answer["call_id"]) == ("function_call_output", "c")
        assert "number 8" in answer["output"]


async def test_anthropic_tools_and_calls_keep_pictures(tmp_path: Path) -> None:
    async with opened(tmp_path) as gateway:
        tools = AnthropicTools(DirectSurface(gateway))
        shown = {tool["name"]: tool for tool in await tools.tools()}
        assert shown["shop_find_order"]["input_schema"]["required"] == ["order_id"]
        message = {
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "a", "name": "shop_draw", "input": {}},
                {"type": "tool_use", "id": "b", "name": "shop_find_order", "input": {"order_id": "x"}},
            ]
        }
        answer = await tools.run(message)
        assert answer is not None
        assert answer["role"] == "user"
        drawn, failed = answer["content"]
        source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
        assert drawn["content"] == [{"type": "text", "text": "a dot"}, {"type": "image", "source": source}]
        assert (drawn["tool_use_id"], drawn["is_error"]) == ("a", False)
        assert (failed["tool_use_id"], failed["is_error"]) == ("b", True)
        assert await tools.run({"content": [{"type": "text", "text": "done"}]}) is None


async def test_a_pydantic_ai_agent_finds_and_calls_a_tool(tmp_path: Path) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    steps: list[tuple[str, dict[str, Any]]] = [
        ("search_tool_by_category", {"query": "find an order"}),
        ("expand_tool", {"tool_id": "shop.find_order"}),
        ("call_tool", {"tool_id": "shop.find_order", "args": {"order_id": 9}}),
    ]

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        assert "Never call a tool without expanding it" in (info.instructions or "")
        assert info.function_tools[0].name == "list"
        returned = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        if len(returned) == len(steps):
            return ModelResponse([TextPart(f"it is {returned[-1].content}")])
        name, arguments = steps[len(returned)]
        return ModelResponse([ToolCallPart(name, arguments)])

    async with opened(tmp_path) as gateway:
        agent = Agent(FunctionModel(model), toolsets=[SurfaceToolset(DiscoverySurface(gateway))])
        result = await agent.run("where is order 9?")
        assert "number 9" in result.output


async def test_the_test_model_of_pydantic_ai_calls_every_tool_and_gets_an_answer(tmp_path: Path) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    async with opened(tmp_path) as gateway:
        names = [
            "list",
            "search_nodes",
            "search_tool_by_category",
            "expand_tool",
            "call_tool",
            "inspect_tool_output",
        ]
        agent = Agent(TestModel(call_tools=names), toolsets=[SurfaceToolset(DiscoverySurface(gateway))])
        output = json.loads((await agent.run("go")).output)
        assert list(output) == names
        assert "path" in json.loads(output["list"])
        assert "error" in json.loads(output["expand_tool"])


def test_langchain_tools_have_their_shape_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class StructuredTool:
        def __init__(self, **fields: Any) -> None:
            self.__dict__.update(fields)
            made.append(self)

    with BlockingGateway(Settings(home=tmp_path), upstreams=[shop()]) as gateway:
        gateway.build()
        monkeypatch.setitem(sys.modules, "langchain_core.tools", None)
        with pytest.raises(ConfigError, match="not installed"):
            gateway.run(langchain_tools(gateway))
        monkeypatch.setitem(sys.modules, "langchain_core.tools", SimpleNamespace(StructuredTool=StructuredTool))
        tools = {tool.name: tool for tool in gateway.run(langchain_tools(gateway))}
        assert tools["shop_find_order"].args_schema["required"] == ["order_id"]
        assert "number 5" in tools["shop_find_order"].func(order_id=5)


LANGCHAIN = """
import asyncio, sys
from pathlib import Path
from toolfold import BlockingGateway, Settings
from toolfold.adapters import langchain_tools
from toolfold.testing.memory_upstream import MemoryUpstream

def find_order(order_id: int) -> dict[str, str]:
    "Finds an order of the shop by its number."
    return {"order": f"number {order_id}"}

with BlockingGateway(Settings(home=Path(sys.argv[1])), upstreams=[MemoryUpstream("shop", [find_order])]) as gateway:
    gateway.build()
    tools = {tool.name: tool for tool in gateway.run(langchain_tools(gateway))}
    print(tools["shop_find_order"].invoke({"order_id": 6}))
    print(asyncio.run(tools["shop_find_order"].ainvoke({"order_id": 7})))
"""


def test_langchain_tools_are_invoked_for_real_where_it_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("langchain_core", reason="LangChain is no dependency of toolfold: pip install langchain-core")
    done = subprocess.run(
        [sys.executable, "-c", LANGCHAIN, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert "number 6" in done.stdout, done.stderr
    assert "number 7" in done.stdout, done.stderr


def test_no_library_is_imported_before_it_is_used() -> None:
    code = (
        "import sys, toolfold.adapters as a\n"
        "a.OpenAITools, a.AnthropicTools, a.langchain_tools, a.DiscoverySurface\n"
        "print(sorted({'openai', 'anthropic', 'pydantic_ai', 'langchain_core', 'starlette'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ({"type": "resource", "resource": {"uri": "a:b", "text": "inside"}}, "inside"),
        ({"type": "resource", "resource": {"uri": "a:b", "blob": "aGk="}}, "[resource a:b]"),
        ({"type": "audio", "mimeType": "audio/wav", "data": "aGk="}, "[audio audio/wav]"),
        ({"type": "resource_link", "uri": "a:b"}, "[resource_link a:b]"),
    ],
)
def test_content_that_is_no_text_is_named(block: dict[str, Any], text: str) -> None:
    assert ToolResult([block], False).text == text
    assert ToolResult([], False, {"n": 1}).text == '{"n":1}'


@pytest.mark.parametrize(
    ("arguments", "raw"), [("  ", b"{}"), (None, b"{}"), ({"a": 1}, b'{"a":1}'), ({"a": {1, object()}}, b'"not JSON: ')]
)
def test_arguments_of_every_kind_become_json(arguments: Any, raw: bytes) -> None:
    assert bytes(_raw_arguments(arguments)).startswith(raw)
