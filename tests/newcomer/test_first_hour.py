"""The first hour of somebody new, through the real command line: six clients' servers taken over, used, and given back.

The servers are real: those that come with the package, one made with the official SDK, and, where `.ci/run` installed
them, public ones (`TOOLFOLD_TEST_MCP_SERVER_GIT` names one, its neighbours are used, too).
"""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

pytestmark = pytest.mark.requirement("G-19")

PYTHON = sys.executable
PUBLIC_GIT = os.environ.get("TOOLFOLD_TEST_MCP_SERVER_GIT", "")

# A server of the official SDK that needs a variable, writes to standard error and knows its environment.
WEATHER = """
import os, sys
from mcp.server import MCPServer

server = MCPServer("weather")
sys.stderr.write("weather: warming up\\n")


@server.tool()
def forecast(city: str) -> str:
    "The weather in a city tomorrow."
    return f"sunny in {city}, by {os.environ['WEATHER_KEY']} through {os.environ.get('HTTPS_PROXY', 'no proxy')}"


server.run()
"""
PROGRAM = """
import asyncio
from toolfold import Gateway, Settings


async def main() -> None:
    async with Gateway(Settings.load()) as gateway:
        page = await gateway.search_tool_by_category("the weather tomorrow")
        outcome = await gateway.call_tool(page["results"][0]["tool_id"], {"city": "Oslo"})
        print(bytes(outcome.result).decode())


asyncio.run(main())
"""


class Newcomer:
    """A clean home, a project in it, and a shell that knows little."""

    def __init__(self, root: Path) -> None:
        self.home, self.project = root, root / "shop"
        self.project.mkdir()
        self.env = {
            "HOME": str(root),
            "PATH": os.environ["PATH"],
            "HTTPS_PROXY": "http://proxy.example:3128",
            "WEATHER_KEY": "key-of-mine",
        }

    def shell(self, *command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command, cwd=self.project, env=self.env, capture_output=True, text=True, timeout=90, check=False
        )

    def toolfold(self, *words: str, code: int = 0) -> str:
        done = self.shell(PYTHON, "-m", "toolfold", *words)
        assert done.returncode == code, f"toolfold {' '.join(words)}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def write(self, name: str, content: Any) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((content if isinstance(content, str) else json.dumps(content, indent=2)).encode())
        return path

    def clients(self) -> dict[Path, bytes]:
        """Six clients with what they have: programs, a disabled one, comments, a setting beside them."""
        git = {"command": PYTHON, "args": ["-m", "toolfold.demo.git", str(self.project)]}
        files = {"command": PYTHON, "args": ["-m", "toolfold.demo.files", str(self.project)]}
        weather = {
            "command": PYTHON,
            "args": [str(self.write("shop/weather.py", WEATHER))],
            "env": {"WEATHER_KEY": "${env:WEATHER_KEY}"},
        }
        shop = {"command": PYTHON, "args": ["-m", "toolfold.demo.sqlite", str(self.project / "shop.db")]}
        git_command, git_args = json.dumps(PYTHON), json.dumps(git["args"])
        broken = {"command": "no-such-server-here"}
        public = {}
        if PUBLIC_GIT:
            public = {"public-git": {"command": PUBLIC_GIT, "args": ["--repository", str(self.project)]}}
            if (clock := Path(PUBLIC_GIT).with_name("mcp-server-time")).exists():
                public["time"] = {"command": str(clock), "args": []}
        made = [
            self.write(".config/Claude/claude_desktop_config.json", {"mcpServers": {"files": files, **public}}),
            self.write(".claude.json", {"numStartups": 3, "mcpServers": {"weather": weather}}),
            self.write(
                ".cursor/mcp.json",
                '{\n  "mcpServers": {\n    // history\n'
                f'    "git": {{"command": {git_command}, "args": {git_args}}}\n  }}\n}}\n',
            ),
            self.write(".config/Code/User/mcp.json", {"servers": {"shop": {"type": "stdio", **shop}}, "inputs": []}),
            self.write(
                ".codex/config.toml",
                f'model = "o3" # fast\n\n[mcp_servers.git]\ncommand = {git_command}\nargs = {git_args}\n',
            ),
            self.write(".gemini/settings.json", {"theme": "x", "mcpServers": {"files": files, "old": broken}}),
        ]
        return {path: path.read_bytes() for path in made}


@pytest.fixture
def newcomer(tmp_path: Path) -> Newcomer:
    person = Newcomer(tmp_path)
    person.write("shop/README.md", "# Shop\n")
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.org")
    for words in (("init", "-q"), ("add", "README.md"), (*identity, "commit", "-qm", "Open the shop")):
        assert person.shell("git", *words).returncode == 0
    with sqlite3.connect(person.project / "shop.db") as database:
        database.execute("create table orders(id)")
    return person


def entry_of(path: Path) -> StdioServerParameters:
    """What a client would start now."""
    ((name, entry),) = json.loads(path.read_text())["mcpServers"].items()
    assert name == "toolfold"
    return StdioServerParameters(command=entry["command"], args=entry["args"])


async def ask(target: StdioServerParameters, env: dict[str, str], tool: str, **arguments: Any) -> str:
    """One call of a client of the official SDK."""
    async with Client(target.model_copy(update={"env": env})) as client:
        result = await client.call_tool(tool, arguments)
        return "".join(getattr(part, "text", "") for part in result.content)


def test_17_the_first_hour(newcomer: Newcomer) -> None:
    before = newcomer.clients()
    toolfold = newcomer.toolfold

    # What is there is shown, and nothing is touched.
    assert "nothing was written" in toolfold("import")
    refused = toolfold("import", "--replace", "--yes", code=2)
    assert ".cursor/mcp.json:3 has comments" in refused
    assert "--drop-comments" in refused
    assert {path: path.read_bytes() for path in before} == before

    # Taken over: one server does not start, which is told, and stays where it was; every client starts toolfold.
    taken = toolfold("import", "--replace", "--yes", "--drop-comments", code=3)
    assert "old: the command 'no-such-server-here' was not found" in taken
    assert "old stays in ~/.gemini/settings.json" in taken
    assert taken.count("now starts toolfold") == 6
    own = newcomer.home / ".toolfold" / "toolfold.toml"
    assert "no server `old`" in toolfold("disable", "old", code=2)

    # The catalogue, and what a person does with it.
    built = toolfold("build")
    assert "failed" not in built
    assert "git.log" in toolfold("search", "list the latest commits")
    assert "Open the shop" in toolfold("call", "git.log", '{"limit": 1}')
    told = toolfold("call", "weather.forecast", '{"city": "Oslo"}')
    assert "sunny in Oslo" in told
    assert "http://proxy.example:3128" in told
    toolfold("add", "notes", "--", PYTHON, "-m", "toolfold.demo.files", str(newcomer.home / ".codex"))
    toolfold("build", "--server", "notes")
    assert "config.toml" in toolfold("call", "notes.list", '{"path": "."}')

    # A client that was pointed here finds and calls a tool.
    target = entry_of(newcomer.home / ".cursor/mcp.json")
    answer = asyncio.run(ask(target, newcomer.env, "call_tool", tool_id="git.log", args={"limit": 1}))
    assert "Open the shop" in answer

    # A policy, and a program.
    own.write_text(own.read_text() + '\n[policy.default]\ndeny = ["notes.*"]\n')
    assert "notes.list" in toolfold("call", "notes.list", '{"path": "."}', code=4)
    program = newcomer.shell(PYTHON, "-c", PROGRAM)
    assert "sunny in Oslo" in program.stdout, program.stderr

    # And back: every client as it was, to the byte, and nothing left beside them.
    undone = toolfold("import", "--undo")
    assert f"restored: {own}: what the import added is gone" in undone.replace("~", str(newcomer.home))
    assert "[servers.notes]" in own.read_text()
    assert "[servers.git]" not in own.read_text()
    assert {path: path.read_bytes() for path in before} == before
    assert not [path for folder in {path.parent for path in before} for path in folder.glob("*.bak")]
