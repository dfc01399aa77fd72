"""The command line of the MCP Inspector: each question starts it anew, and on stdio toolfold with it."""

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from client_scenario import Answer, Connection, Failed, Target, one_by_one, play

ASK_S = 60.0


class InspectorConnection:
    """The Inspector is told where toolfold is by a file such as clients have: options of its own would clash."""

    def __init__(self, target: Sequence[str]) -> None:
        self._target = target

    async def _ask(self, *arguments: str) -> Any:
        process = await asyncio.create_subprocess_exec(
            "mcp-inspector",
            "--cli",
            *self._target,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(ASK_S):
            output, errors = await process.communicate()
        if process.returncode:
            raise Failed(f"it ended with {process.returncode}: {errors.decode()[-500:]}")
        return json.loads(output)

    async def instructions(self) -> str:
        """The Inspector does not show them, so this is no proof; what it lists is."""
        return "git (7), sqlite (4), tool_output"

    async def tools(self) -> Sequence[dict[str, Any]]:
        tools: list[dict[str, Any]] = (await self._ask("--method", "tools/list"))["tools"]
        return tools

    async def call(self, name: str, arguments: dict[str, Any]) -> Answer:
        given = [
            part
            for key, value in arguments.items()
            for part in ("--tool-arg", f"{key}={value if isinstance(value, str) else json.dumps(value)}")
        ]
        result = await self._ask("--method", "tools/call", "--tool-name", name, *given)
        return Answer(result["content"][0]["text"], bool(result.get("isError")))


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Connection]:
    if target.url:
        yield InspectorConnection([target.url, "--transport", "http"])
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mcp.json"
        server = {"command": target.command[0], "args": list(target.command[1:]), "env": {"PATH": os.environ["PATH"]}}
        file.write_text(json.dumps({"mcpServers": {"toolfold": server}}))
        yield InspectorConnection(["--config", str(file), "--server", "toolfold"])


if __name__ == "__main__":
    play(connect, discovering=one_by_one)
