"""Peers that a bench compares with: programs of other projects, each in an environment of its own, never ours.

`--peers DIR` names a folder with one environment a peer: `DIR/fastmcp/bin/python`. A peer that is absent is said to be.
"""

import subprocess
from pathlib import Path

SDK_SERVER = """\
import sys
from mcp.server.mcpserver import MCPServer

server = MCPServer("sdk")
TEXTS = {}


@server.tool()
def echo(size: int) -> str:
    if size not in TEXTS:
        TEXTS[size] = ("0123456789abcde\\n" * (size // 16 + 1))[:size]
    return TEXTS[size]


server.run("stdio")
"""
"""A server as people write them, with the official SDK."""

BARE_SERVER = """\
import json
import sys

TEXTS = {}
TAKES = {"size": {"type": "integer"}, "text": {"type": "string"}}
TOOL = {"name": "echo", "inputSchema": {"type": "object", "properties": TAKES}}


def answer(message):
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        info = {"name": "bare", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        given = params["arguments"]
        size = given.get("size", 0)
        if size not in TEXTS:
            TEXTS[size] = ("0123456789abcde\\n" * (size // 16 + 1))[:size]
        return {"content": [{"type": "text", "text": given.get("text") or TEXTS[size]}]}
    return None


for line in sys.stdin.buffer:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = answer(message)
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if result is None:
        reply["error"] = {"code": -32601, "message": "unknown method"}
    else:
        reply["result"] = result
    sys.stdout.buffer.write(json.dumps(reply).encode() + b"\\n")
    sys.stdout.buffer.flush()
"""
"""A server that costs next to nothing: a loop over lines."""

STARLETTE_ECHO = """\
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


async def echo(request: Request) -> JSONResponse:
    body = await request.json()
    return JSONResponse({"content": [{"type": "text", "text": body["args"]["text"]}]})


app = Starlette(routes=[Route("/v1/call_tool", echo, methods=["POST"])])
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", access_log=False)
"""
"""The least that a Python service of this kind can be: reads JSON, writes JSON."""

SDK_CLIENT = """\
import asyncio
import contextlib
import json
import sys
import time

from mcp import Client, StdioServerParameters

work = json.loads(sys.argv[1])


async def main():
    async with contextlib.AsyncExitStack() as stack:
        opened = {}
        for name, (command, args, tool, wrap) in work["routes"].items():
            client = Client(StdioServerParameters(command=command, args=args))
            opened[name] = (await stack.enter_async_context(client), tool, wrap)
        found = {}
        for label, (size, count) in work["sizes"].items():
            times = {name: [] for name in opened}
            warm = min(20, count // 3)
            for number in range(count + warm):
                for name, (client, tool, wrap) in opened.items():
                    given = {"size": size} if not wrap else {"tool_id": wrap, "args": {"size": size}}
                    started = time.perf_counter()
                    result = await client.call_tool(tool, given)
                    taken = time.perf_counter() - started
                    assert not result.is_error and len(result.content[0].text) >= size, result
                    if number >= warm:
                        times[name].append(taken)
            found[label] = times
        print(json.dumps(found))


asyncio.run(main())
"""
"""The client that most programs use, timing the same calls over several ways in turn."""

FASTMCP_PROXY = """\
import sys
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

create_proxy(StdioTransport(sys.argv[1], sys.argv[2:])).run("stdio", show_banner=False)
"""


def peer_python(peers: Path | None, name: str) -> Path | None:
    """The interpreter of a peer's environment, where it is there and works."""
    if peers is None:
        return None
    for folder in ("bin", "Scripts"):
        for program in ("python", "python.exe"):
            found = peers / name / folder / program
            if found.exists():
                return found
    return None


def peer_version(python: Path, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    done = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, check=False, timeout=60)
    return done.stdout.decode().strip()


def can_import(python: str | Path, module: str) -> bool:
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", code], check=False, timeout=60).returncode == 0
