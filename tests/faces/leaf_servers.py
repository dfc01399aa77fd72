"""`toolfold serve` in front of servers with resources, templates and prompts, met by the official client."""

import asyncio
import contextlib
import json
import os
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp_client_helpers import RecordingClient
from served_config import Served

SERVER = Path(__file__).parents[1] / "servers" / "leaves_stdio.py"

DOCS: dict[str, Any] = {
    "resources": [
        {
            "uri": "file:///docs/install guide.md",
            "name": "Install guide",
            "description": "How to install it on Linux.",
            "size": 7,
        },
        {"uri": "file:///docs/oauth.md", "name": "OAuth", "mimeType": "text/markdown", "_meta": {"a/b": 1}},
        {"uri": "test:same", "name": "Same"},
    ],
    "templates": [
        {"uriTemplate": "file:///logs/{+day}{?level}", "name": "Logs", "description": "The log of one day."},
    ],
    "prompts": [
        {
            "name": "review",
            "description": "Review a pull request thoroughly.",
            "arguments": [{"name": "branch", "description": "Which one.", "required": True}, {"name": "tone"}],
        },
    ],
    "texts": {
        "file:///docs/install guide.md": "pip install",
        "file:///docs/oauth.md": {
            "contents": [
                {"uri": "file:///docs/oauth.md", "text": "tokens"},
                {"uri": "file:///docs/oauth.png", "mimeType": "image/png", "blob": "AAAA"},
            ],
            "ttlMs": 5000,
            "cacheScope": "public",
        },
        "test:same": "of docs",
        "test:linked": "linked text",
        "file:///logs/2026/a%20b?level=x%26y": "one log",
        "file:///logs/2026": "a day",
    },
}
WIKI: dict[str, Any] = {
    "resources": [{"uri": "test:same", "name": "Same"}, {"uri": "wiki:home", "name": "Home"}],
    "texts": {"test:same": "of wiki", "wiki:home": "x" * 200_000},
}


class Leaves(Served):
    """Servers `docs` and `wiki`, each with a file that says what it has."""

    def __init__(self, home: Path, profile: str = "discovery", **made: Any) -> None:
        super().__init__(home)
        self.profile = profile
        tables = []
        for name, what in (made or {"docs": DOCS, "wiki": WIKI}).items():
            self.put(name, what)
            args = json.dumps([str(SERVER), str(self.file(name))])
            tables.append(f'[servers.{name}]\ncommand = "{sys.executable}"\nargs = {args}\n')
        self.tables = tables
        self.write(*tables)

    def file(self, name: str) -> Path:
        return self.home / f"{name}.json"

    def put(self, name: str, what: Any) -> None:
        new = self.file(name).with_suffix(".new")
        new.write_text(json.dumps(what))
        new.replace(self.file(name))

    def more(self, text: str) -> "Leaves":
        self.write(*self.tables, text)
        return self

    def command(self, *options: str) -> list[str]:
        return [
            *(sys.executable, "-m", "toolfold", "--config", str(self.config), "--home", str(self.home)),
            *("serve", "--profile", self.profile, *options),
        ]


@contextlib.asynccontextmanager
async def met(
    leaves: Leaves, era: str, transport: str = "stdio", **more: Any
) -> AsyncIterator[tuple[Client, RecordingClient]]:
    """An official client of that era, and what it was told."""
    recorder = RecordingClient()
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore")  # the official client warns of what the modern era has not
        command = leaves.command()
        server: Any = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
        if transport == "http":
            server = stack.enter_context(leaves.over_http())
        async with asyncio.timeout(90), recorder.client(server, era, **more) as client:
            yield client, recorder


def play(
    leaves: Leaves, era: str, scene: Callable[[Client, RecordingClient], Awaitable[None]], transport: str = "stdio"
) -> None:
    async def main() -> None:
        async with met(leaves, era, transport) as (client, recorder):
            await scene(client, recorder)

    asyncio.run(main())


async def operate(client: Client, name: str, **args: Any) -> Any:
    """The answer of an operation, decoded where it is JSON."""
    result = await client.call_tool(name, args)
    text = result.content[0].text  # type: ignore[union-attr]
    return json.loads(text) if text[:1] in "{[" else text


FIXTURE = Path(__file__).parents[1] / "conformance" / "fixture_server.py"


def fixture_table() -> str:
    """The official SDK's server, of the modern era."""
    return f'[servers.fixture]\ncommand = "{sys.executable}"\nargs = ["{FIXTURE}"]\n'
