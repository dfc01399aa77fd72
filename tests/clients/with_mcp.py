"""The client of the official Python SDK, version 2: `with_mcp.py JOB auto` for the modern era, else `legacy`."""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from client_scenario import Answer, Connection, Target, expect, play

mcp: Any = import_module("mcp")
ERAS = {"auto": "2026-07-28", "legacy": "2025-11-25"}


class SdkConnection:
    def __init__(self, client: Any) -> None:
        self._client = client

    async def instructions(self) -> str:
        return self._client.instructions or ""

    async def tools(self) -> Sequence[dict[str, Any]]:
        listed = await self._client.list_tools(cache_mode="refresh")
        return [tool.model_dump(mode="json", by_alias=True) for tool in listed.tools]

    async def call(self, name: str, arguments: dict[str, Any]) -> Answer:
        result = await self._client.call_tool(name, arguments)
        return Answer(result.content[0].text, result.is_error)


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Connection]:
    mode = sys.argv[2]
    server = target.url or mcp.StdioServerParameters(command=target.command[0], args=list(target.command[1:]))
    async with mcp.Client(server, mode=mode, read_timeout_seconds=60) as client:
        expect(client.protocol_version == ERAS[mode], f"{mode} speaks {client.protocol_version}")
        yield SdkConnection(client)


if __name__ == "__main__":
    play(connect)
