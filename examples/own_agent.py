"""Your own agent at the gateway that Claude Code and Cursor use: the official SDK, an address, perhaps a key.

python examples/own_agent.py http://127.0.0.1:8080/mcp
"""

import asyncio
import os
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client


async def main(address: str, key: str) -> None:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(address, http_client=http)) as gateway,
    ):
        # What your model gets: these definitions, and the instructions as a part of its system prompt.
        tools = (await gateway.list_tools()).tools
        print(len(tools), "tools,", len(gateway.instructions or ""), "characters of instructions")
        # What it answers with comes back here: the same two calls for any number of tools.
        page = await gateway.call_tool("search_tool_by_category", {"query": "list the latest commits"})
        print(page.content[0].text)
        answer = await gateway.call_tool("call_tool", {"tool_id": "git.log", "args": {"limit": 2}})
        print(answer.content[0].text)


asyncio.run(main(sys.argv[1], os.environ.get("TOOLFOLD_KEY", "")))
