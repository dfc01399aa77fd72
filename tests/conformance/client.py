"""The client that the official conformance suite runs: `client.py SERVER_URL`, one scenario named in the environment.

It uses the wire layer as any user of it would, and is not told which era to speak: that it finds out.
What a scenario wants done stands in one function per scenario.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Raw

from toolfold.wire import Connection, HttpTarget, WireOptions, connect

Scenario = Callable[[Connection], Awaitable[None]]

EVERYTHING = Raw(b'{"elicitation":{"form":{"applyDefaults":true},"url":{}},"sampling":{},"roots":{}}')
FORMS = Raw(b'{"elicitation":{"form":{"applyDefaults":true}}}')


def raw(value: object) -> Raw:
    return Raw(json.dumps(value).encode())


async def fill_in(method: str, params: Raw) -> Raw:
    """Accepts every form: each field gets its default, or the plainest value of its type."""
    if method != "elicitation/create":
        raise AssertionError(f"asked for {method}")
    fields = json.loads(bytes(params)).get("requestedSchema", {}).get("properties", {})
    plain = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "array": []}
    content = {name: field.get("default", plain.get(field.get("type"), "text")) for name, field in fields.items()}
    return raw({"action": "accept", "content": content})


async def call(connection: Connection, name: str, arguments: object = None) -> dict[str, Any]:
    result = await connection.call_tool(name, raw(arguments or {}), on_input=fill_in)
    return dict(json.loads(bytes(result)))


async def tools_of(connection: Connection) -> dict[str, Any]:
    listed = await connection.list_tools()
    return {tool["name"]: tool for tool in (json.loads(bytes(entry)) for entry in listed.tools)}


async def only_list(connection: Connection) -> None:
    await connection.list_tools()


async def add_numbers(connection: Connection) -> None:
    tools = await tools_of(connection)
    await call(connection, next(iter(tools)), {"a": 5, "b": 3})


async def call_every_tool(connection: Connection) -> None:
    for name in await tools_of(connection):
        await call(connection, name)


async def metadata(connection: Connection) -> None:
    await connection.list_tools()
    await call(connection, "anything")


async def standard_headers(connection: Connection) -> None:
    await call_every_tool(connection)
    await connection.request("resources/list")
    await connection.request("resources/read", raw({"uri": "file:///path/to/file%20name.txt"}))
    await connection.request("prompts/list")
    await connection.request("prompts/get", raw({"name": "test_prompt"}))


async def custom_headers(connection: Connection) -> None:
    await connection.list_tools()
    for wanted in json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]:
        await call(connection, wanted["name"], wanted["arguments"])


async def invalid_tool_headers(connection: Connection) -> None:
    for name, tool in (await tools_of(connection)).items():
        await call(connection, name, dict.fromkeys(tool["inputSchema"].get("properties", {}), "value"))


async def request_state(connection: Connection) -> None:
    """Several conversations at once, none of which may leak into another."""
    names = list(await tools_of(connection))
    await asyncio.gather(*(call(connection, name) for name in names))


async def echo_schema(connection: Connection) -> None:
    tools = await tools_of(connection)
    await call(connection, "json_schema_echo", {"schema": tools["json_schema_2020_12_tool"]["inputSchema"]})


SCENARIOS: dict[str, Scenario] = {
    "initialize": only_list,
    "tools_call": add_numbers,
    "elicitation-sep1034-client-defaults": call_every_tool,
    "sse-retry": call_every_tool,
    "request-metadata": metadata,
    "sep-2322-client-request-state": request_state,
    "http-standard-headers": standard_headers,
    "http-custom-headers": custom_headers,
    "http-invalid-tool-headers": invalid_tool_headers,
    "json-schema-ref-no-deref": only_list,
    "json-schema-2020-12-preservation": echo_schema,
}


async def main() -> None:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    capabilities = EVERYTHING if scenario == "request-metadata" else FORMS
    connection = await connect(
        HttpTarget(sys.argv[-1]), options=WireOptions(capabilities=capabilities, request_timeout_s=20)
    )
    try:
        await SCENARIOS[scenario](connection)
    finally:
        await connection.aclose()


if __name__ == "__main__":
    asyncio.run(main())
