"""The reference server "everything" through `--profile transparent`, with the official SDK's client of either era.

Run as the scripts of clients are, in the environment of the SDK; the job says how to start the server.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from client_scenario import Act, expect, job, perform
from with_mcp import ERAS

mcp: Any = import_module("mcp")
types: Any = import_module("mcp_types")


async def elicited(_context: Any, _params: Any) -> Any:
    return types.ElicitResult(action="accept", content={"name": "Ann"})


async def sampled(_context: Any, _params: Any) -> Any:
    text = types.TextContent(type="text", text="a sample")
    return types.CreateMessageResult(role="assistant", content=text, model="none")


async def rooted(_context: Any) -> Any:
    return types.ListRootsResult(roots=[types.Root(uri="file:///tmp/folder", name="folder")])


ANSWERS = {"elicitation_callback": elicited, "sampling_callback": sampled, "list_roots_callback": rooted}


@asynccontextmanager
async def connected(mode: str, **answers: Any) -> AsyncIterator[Any]:
    serve: list[str] = job()["serve"]
    server = mcp.StdioServerParameters(command=serve[0], args=[*serve[1:], "--profile", "transparent"])
    async with mcp.Client(server, mode=mode, read_timeout_seconds=60, **answers) as client:
        expect(client.protocol_version == ERAS[mode], f"{mode} speaks {client.protocol_version}")
        yield client


async def text_of(client: Any, name: str, arguments: dict[str, Any], **options: Any) -> str:
    result = await client.call_tool(name, arguments, **options)
    return "\n".join(block.text for block in result.content if block.type == "text")


async def lists(client: Any) -> None:
    expect(client.server_info.name == "mcp-servers/everything" and client.instructions, client.server_info)
    names = [tool.name for tool in (await client.list_tools()).tools]
    expect({"echo", "get-sum", "trigger-elicitation-request", "tool_output"} <= set(names), names)
    prompts = [prompt.name for prompt in (await client.list_prompts()).prompts]
    expect("args-prompt" in prompts, prompts)
    prompt = await client.get_prompt("args-prompt", {"city": "Leer"})
    expect("Leer" in prompt.messages[0].content.text, prompt)
    resources = (await client.list_resources()).resources
    expect(resources and (await client.read_resource(resources[0].uri)).contents[0].text, "no resource can be read")
    templates = (await client.list_resource_templates()).resource_templates
    expect(any("{resourceId}" in template.uri_template for template in templates), templates)
    reference = types.PromptReference(type="ref/prompt", name="completable-prompt")
    completion = (await client.complete(reference, {"name": "department", "value": "E"})).completion
    expect("Engineering" in completion.values, completion)


async def calls(client: Any) -> None:
    expect("hello" in await text_of(client, "echo", {"message": "hello"}), "echo")
    structured = (await client.call_tool("get-structured-content", {"location": "New York"})).structured_content
    expect(structured and "temperature" in structured, structured)
    steps: list[float] = []

    async def progressed(step: float, _total: float | None, _message: str | None) -> None:
        steps.append(step)

    await text_of(client, "trigger-long-running-operation", {"duration": 1, "steps": 3}, progress_callback=progressed)
    expect(steps == [1, 2, 3], f"progress: {steps}")
    expect("Ann" in (said := await text_of(client, "trigger-elicitation-request", {})), said)
    said = await text_of(client, "trigger-sampling-request", {"prompt": "hello", "maxTokens": 5})
    expect("a sample" in said, said)
    expect("file:///tmp/folder" in (said := await text_of(client, "get-roots-list", {})), said)


def whole(mode: str) -> Act:
    async def acted() -> None:
        async with connected(mode, **ANSWERS) as client:
            await lists(client)
            await calls(client)

    return acted


def silent(mode: str) -> Act:
    """A client that declares nothing is asked nothing: the call ends, with an answer that says why."""

    async def acted() -> None:
        async with connected(mode) as client:
            result = await client.call_tool("trigger-elicitation-request", {})
            expect(result.is_error, result)

    return acted


if __name__ == "__main__":
    acts = {f"{mode} that answers": whole(mode) for mode in ERAS}
    perform({**acts, **{f"{mode} that cannot answer": silent(mode) for mode in ERAS}})
