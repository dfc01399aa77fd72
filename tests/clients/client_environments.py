"""The clients and servers that are tried, and environments for them: each its own, made with pip or npm when needed."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

INSTALL_S = 300.0
NODE_PACKAGES = (
    "node@22",
    "@modelcontextprotocol/inspector",
    "@modelcontextprotocol/server-everything",
    "@modelcontextprotocol/server-filesystem",
    "@modelcontextprotocol/server-memory",
    "@modelcontextprotocol/server-sequential-thinking",
    "@cyanheads/git-mcp-server",
)
NODE_PROGRAMS = {
    "everything": "mcp-server-everything",
    "filesystem": "mcp-server-filesystem",
    "memory": "mcp-server-memory",
    "thinking": "mcp-server-sequential-thinking",
    "cyanheads": "git-mcp-server",
}


@dataclass(frozen=True)
class Client:
    """A client library: what brings it, and the script beside this file that connects with it."""

    name: str
    environment: str
    packages: tuple[str, ...]
    script: str
    arguments: tuple[str, ...] = ()


CLIENTS = (
    Client("mcp, modern", "mcp", ("mcp>=2",), "with_mcp.py", ("auto",)),
    Client("mcp, legacy", "mcp", ("mcp>=2",), "with_mcp.py", ("legacy",)),
    Client("first start, mcp", "mcp", ("mcp>=2",), "first_start.py", ("auto",)),
    Client("mcp, version 1", "mcp-old", ("mcp<2",), "with_old_mcp.py"),
    Client("fastmcp", "fastmcp", ("fastmcp",), "with_fastmcp.py"),
    Client("pydantic-ai", "pydantic-ai", ("pydantic-ai-slim[mcp]",), "with_pydantic_ai.py"),
    Client("langchain-mcp-adapters", "langchain", ("langchain-mcp-adapters",), "with_langchain.py"),
    Client("openai-agents", "openai-agents", ("openai-agents",), "with_openai_agents.py"),
)


@dataclass(frozen=True)
class RealServer:
    """A server, how it is started, and one call with a part of its result. Without packages it is one of npm's."""

    name: str
    program: str
    tool: str
    call: Mapping[str, Any]
    result: str
    query: str
    environment: str = ""
    packages: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


SERVERS = (
    RealServer(
        "git",
        "mcp-server-git",
        "git.git_log",
        {"repo_path": "{data}/repository", "max_count": 1},
        "Aylin",
        "show the latest commits",
        "server-reference",
        ("mcp-server-git", "mcp-server-time"),
        ("--repository", "{data}/repository"),
    ),
    RealServer(
        "time",
        "mcp-server-time",
        "time.get_current_time",
        {"timezone": "Europe/Berlin"},
        "Europe/Berlin",
        "what time is it in Berlin",
        "server-reference",
        ("mcp-server-git", "mcp-server-time"),
        ("--local-timezone", "UTC"),
    ),
    RealServer(
        "sqlite",
        "mcp-server-sqlite",
        "sqlite.list_tables",
        {},
        "customers",
        "which tables does the database have",
        "server-sqlite",
        ("mcp-server-sqlite", "mcp<2"),
        ("--db-path", "{data}/shop.db"),
    ),
    RealServer(
        "calculator",
        "mcp-server-calculator",
        "calculator.calculate",
        {"expression": "6*7"},
        "42",
        "calculate a sum",
        "server-calculator",
        ("mcp-server-calculator",),
    ),
    RealServer(
        "excel",
        "excel-mcp-server",
        "excel.create_workbook",
        {"path": "{work}/book.xlsx"},
        "book.xlsx",
        "create a new Excel file",
        "server-excel",
        ("excel-mcp-server",),
        ("stdio",),
        {"EXCEL_FILES_PATH": "{work}"},
    ),
    RealServer(
        "everything", "everything", "everything.get-sum", {"a": 40, "b": 2}, "42", "add two numbers", args=("stdio",)
    ),
    RealServer(
        "filesystem",
        "filesystem",
        "filesystem.list_directory",
        {"path": "{data}/files"},
        "prices.csv",
        "list what is in a directory",
        args=("{data}/files",),
    ),
    RealServer(
        "memory",
        "memory",
        "memory.create_entities",
        {"entities": [{"name": "Mara", "entityType": "person", "observations": ["orders tide tables"]}]},
        "Mara",
        "remember a person in the knowledge graph",
        env={"MEMORY_FILE_PATH": "{work}/memory.json"},
    ),
    RealServer(
        "thinking",
        "thinking",
        "thinking.sequentialthinking",
        {"thought": "one", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
        "thoughtNumber",
        "think through a problem step by step",
    ),
    RealServer(
        "cyanheads",
        "cyanheads",
        "cyanheads.git_log",
        {"path": "{data}/repository", "maxCount": 1},
        "Aylin",
        "show the latest commits",
        env={"GIT_BASE_DIR": "{data}", "LOGS_DIR": "{work}/logs"},
    ),
)


class Environments:
    """Environments under one folder. Every method may be called from several threads; each is made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locks: dict[str, threading.Lock] = {}
        self._problems: dict[str, str] = {}
        self._guard = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def node_programs(self) -> Path:
        return self._folder / "npm" / "node_modules" / ".bin"

    def program(self, environment: str, name: str) -> Path:
        return self._folder / environment / "bin" / name

    def python(self, name: str, packages: Sequence[str]) -> str:
        """Makes an environment with these packages. Why it could not be made, or an empty text."""
        return self._made(name, lambda: self._with_pip(name, packages))

    def node(self) -> str:
        """The same for everything from npm, which shares one folder."""
        return self._made("npm", self._with_npm)

    def version(self, environment: str, packages: Sequence[str]) -> str:
        """The version of the first of the packages."""
        wanted = packages[0].partition("[")[0].partition("<")[0].partition(">")[0].replace("-", "_")
        found = (self._folder / environment / "lib").glob(f"python*/site-packages/{wanted}-*.dist-info")
        return next((path.name.removesuffix(".dist-info").rpartition("-")[2] for path in found), "")

    def node_version(self, package: str) -> str:
        about = json.loads((self._folder / "npm" / "node_modules" / package / "package.json").read_text())
        return str(about["version"])

    def node_server(self, name: str, args: Sequence[str]) -> dict[str, Any]:
        """How to start a server from npm, with the Node from there."""
        program = self.node_programs / NODE_PROGRAMS[name]
        return {"command": str(self.node_programs / "node"), "args": [str(program), *args]}

    def _made(self, name: str, make: Callable[[], str]) -> str:
        with self._guard:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            if name not in self._problems:
                self._problems[name] = "" if (self._folder / name / "made").exists() else make()
            return self._problems[name]

    def _with_pip(self, name: str, packages: Sequence[str]) -> str:
        target = self._folder / name
        python = self.program(name, "python")
        commands = [
            [sys.executable, "-m", "venv", "--without-pip", "--clear", str(target)],
            [
                *(sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-compile"),
                *("--disable-pip-version-check", *packages),
            ],
        ]
        return self._run(commands, target)

    def _with_npm(self) -> str:
        target = self._folder / "npm"
        target.mkdir(exist_ok=True)
        quiet = ("--silent", "--no-audit", "--no-fund")
        return self._run([["npm", "install", *quiet, "--prefix", str(target), *NODE_PACKAGES]], target)

    def _run(self, commands: Sequence[Sequence[str]], target: Path) -> str:
        for command in commands:
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
            except (OSError, subprocess.TimeoutExpired) as error:
                return str(error)[:300]
            if done.returncode:
                return (done.stderr or done.stdout).strip()[-300:] or f"{command[0]} ended with {done.returncode}"
        (target / "made").touch()
        return ""
