"""Tools that providers load when they are found: the forms against the libraries' own types, our search behind them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from toolfold import Gateway, Settings
from toolfold.adapters import AnthropicTools, DiscoverySurface, OpenAITools, SurfaceToolset, langchain_tools
from toolfold.config import Policy
from toolfold.errors import ConfigError
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import Caller


def find_order(order_id: int) -> dict[str, str]:
    """Finds an order of the shop by its number."""
    return {"order": f"number {order_id}"}


def cancel_order(order_id: int) -> dict[str, str]:
    """Cancels an order of the shop, so that it is not delivered."""
    return {"cancelled": f"number {order_id}"}


def water_plants(litres: int) -> dict[str, int]:
    """Waters the plants of the greenhouse."""
    return {"watered": litres}


@asynccontextmanager
async def opened(folder: Path, *policies: Policy) -> AsyncIterator[Gateway]:
    upstreams = [MemoryUpstream("shop", [find_order, cancel_order]), MemoryUpstream("garden", [water_plants])]
    async with Gateway(Settings(home=folder, policies=policies), upstreams=upstreams) as gateway:
        await gateway.build()
        yield gateway


def checked(kind: Any, value: Any) -> Any:
    """Of that type, with no key that the type does not have."""
    TypeAdapter(kind).validate_python(value)
    assert set(value) <= set(kind.__annotations__) | set(getattr(kind, "__required_keys__", ())), value
    return value


async def test_21_anthropic_loads_what_our_search_refers_to(tmp_path: Path) -> None:
    from anthropic.types import Message, ToolParam, ToolReferenceBlockParam, ToolResultBlockParam

    def message(name: str, given: Any) -> Message:
        use = {"type": "tool_use", "id": "t1", "name": name, "input": given, "caller": {"type": "direct"}}
        usage = {"input_tokens": 1, "output_tokens": 1}
        said = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [use], "usage": usage}
        return Message.model_validate({**said, "stop_reason": "tool_use", "stop_sequence": None})

    async with opened(tmp_path) as gateway:
        claude = AnthropicTools(gateway, defer=True)
        first = await claude.tools()
        assert [tool["name"] for tool in first] == ["search-tools", "tool_output"]
        assert "search for what a tool must do" in await claude.instructions()
        assert not any("defer_loading" in tool for tool in first), "one tool must be loaded from the start"
        messages: list[Any] = [{"role": "user", "content": "Where is order 7?"}]
        asked = message("search-tools", {"query": "find an order by its number"})
        answer = await claude.run(asked)
        assert answer is not None
        messages += [{"role": "assistant", "content": asked.content}, answer]
        [found] = answer["content"]
        checked(ToolResultBlockParam, found)
        names = [checked(ToolReferenceBlockParam, block)["tool_name"] for block in found["content"]]
        assert names[0] == "shop_find_order"
        tools = [checked(ToolParam, tool) for tool in await claude.tools(messages)]
        assert [tool["name"] for tool in tools] == ["search-tools", "tool_output", *names], "each reference is defined"
        assert [tool.get("defer_loading", False) for tool in tools] == [False, False, *[True] * len(names)]
        assert tools[2]["input_schema"]["required"] == ["order_id"]
        called = await claude.run(message("shop_find_order", {"order_id": 7}))
        assert called is not None
        assert "number 7" in str(called["content"])
        for given in ({"query": 1}, {}, {"query": ""}):
            wrong = await claude.run(message("search-tools", given))
            assert wrong is not None
            [problem] = [checked(ToolResultBlockParam, block) for block in wrong["content"]]
            assert problem["content"][0]["type"] == "text"
        # A restored conversation may refer to what is gone, or to what never was.
        gone = {"type": "tool_result", "content": [{"type": "tool_reference", "tool_name": "shop_gone"}]}
        assert len(await claude.tools([{"role": "user", "content": [gone]}, {"role": "user", "content": "x"}])) == 2


async def test_21_openai_gets_the_definitions_that_our_search_found(tmp_path: Path) -> None:
    from openai.types.responses import ResponseFunctionToolCall, ToolSearchToolParam
    from openai.types.responses.function_tool_param import FunctionToolParam
    from openai.types.responses.response_tool_search_call import ResponseToolSearchCall
    from openai.types.responses.response_tool_search_output_item_param_param import (
        ResponseToolSearchOutputItemParamParam,
    )
    from openai.types.responses.tool_search_output_namespace_tool_param import ToolSearchOutputNamespaceToolParam

    def search(given: Any, execution: str = "client") -> ResponseToolSearchCall:
        about = {"id": "i", "call_id": "c1", "status": "completed", "type": "tool_search_call"}
        return ResponseToolSearchCall.model_validate({**about, "execution": execution, "arguments": given})

    async with opened(tmp_path) as gateway:
        tools = OpenAITools(gateway, defer=True)
        first, output = await tools.responses_tools()
        checked(ToolSearchToolParam, first)
        assert (first["type"], first["execution"]) == ("tool_search", "client")
        assert first["description"], "without one the service refuses it"
        assert checked(FunctionToolParam, output)["name"] == "tool_output"
        call = ResponseFunctionToolCall(
            arguments='{"litres": 3}', call_id="c2", name="garden_water_plants", type="function_call"
        )
        found, called = await tools.run_responses([search({"query": "water the plants"}), call])
        TypeAdapter(ResponseToolSearchOutputItemParamParam).validate_python(found)
        about = {key: found[key] for key in found if key != "tools"}
        assert about == {
            "type": "tool_search_output",
            "execution": "client",
            "call_id": "c1",
            "status": "completed",
        }
        loaded = checked(FunctionToolParam, found["tools"][0])
        assert (loaded["name"], loaded["defer_loading"]) == ("garden_water_plants", True)
        assert loaded["parameters"]["required"] == ["litres"]
        assert json.loads(called["output"]) == {"watered": 3}
        assert await tools.run_responses([search({"query": "x"}, "server")]) == [], "the service did it itself"
        grouped = OpenAITools(gateway, defer=True, namespaces=True)
        [found] = await grouped.run_responses([search({"query": "find an order by its number"})])
        TypeAdapter(ResponseToolSearchOutputItemParamParam).validate_python(found)
        [shop] = [checked(ToolSearchOutputNamespaceToolParam, one) for one in found["tools"]]
        assert (shop["type"], shop["name"], shop["tools"][0]["name"]) == ("namespace", "shop", "shop_find_order")
        assert shop["tools"][0]["defer_loading"]
        call = ResponseFunctionToolCall(
            arguments='{"order_id": 4}', call_id="c3", name="shop_find_order", namespace="shop", type="function_call"
        )
        [called] = await grouped.run_responses([call])
        assert "number 4" in called["output"]
        [nothing] = await tools.run_responses([search({"wrong": 1})])
        assert nothing["tools"] == []
        with pytest.raises(ConfigError, match="no tool search"):
            await tools.chat_tools()


async def test_21_a_policy_holds_for_what_is_searched_referred_to_and_called(tmp_path: Path) -> None:
    policy = Policy(name="shop", allow=("shop.find*",))
    async with opened(tmp_path, policy) as gateway:
        claude = AnthropicTools(gateway, caller=Caller(name="ann", policy="shop"), defer=True)
        use = {"type": "tool_use", "id": "1", "name": "search-tools", "input": {"query": "water the plants"}}
        answer = await claude.run({"content": [use]})
        assert answer is not None
        assert "garden" not in json.dumps(answer)
        refers = {"type": "tool_result", "content": [{"type": "tool_reference", "tool_name": "garden_water_plants"}]}
        shown = await claude.tools([{"role": "user", "content": [refers]}])
        assert "garden" not in json.dumps(shown)
        with pytest.raises(ConfigError, match="of a gateway"):
            AnthropicTools(DiscoverySurface(gateway), defer=True)


async def test_21_a_pydantic_ai_agent_searches_with_our_search(tmp_path: Path) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.capabilities import ToolSearch
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    seen: list[set[str]] = []
    steps: list[tuple[str, dict[str, Any]]] = [
        ("search_tools", {"queries": ["cancel an order"]}),
        ("shop_cancel_order", {"order_id": 9}),
    ]

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append({tool.name for tool in info.function_tools})
        if len(seen) > len(steps):
            return ModelResponse([TextPart(str(messages[-1].parts[0].content))])  # type: ignore[union-attr]
        name, arguments = steps[len(seen) - 1]
        return ModelResponse([ToolCallPart(name, arguments)])

    async with opened(tmp_path) as gateway:
        tools = SurfaceToolset(gateway, defer=True)
        agent = Agent(FunctionModel(model), toolsets=[tools], capabilities=[ToolSearch(strategy=tools.search)])
        result = await agent.run("cancel order 9")
    assert "number 9" in result.output
    assert seen[0] == {"search_tools", "tool_output"}
    assert "shop_cancel_order" in seen[1]
    assert "garden_water_plants" not in seen[1]


async def test_21_langchain_tools_are_marked_where_it_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("langchain_core", reason="LangChain is no dependency of toolfold: pip install langchain-core")
    async with opened(tmp_path) as gateway:
        marked = {tool.name: tool.extras for tool in await langchain_tools(gateway, defer=True)}
        assert marked["shop_find_order"] == {"defer_loading": True}
        assert not marked["tool_output"]
        assert not any(tool.extras for tool in await langchain_tools(gateway))
