"""One catalogue, four faces: Python, the command line, HTTP on loopback, MCP. Each asks the same way.

`Face.ask("list", path=["Coding"])` gives the decoded answer or the error, whatever is in between. The catalogue is the
one of the discovery note's example, built once from real stdio servers.
"""

import asyncio
import json
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct

import fork_server
from toolfold import BlockingGateway, Gateway, Settings
from toolfold.errors import ToolfoldError
from toolfold.faces.http_api import make_app
from toolfold.faces.identity import Identities

HERE = Path(__file__).parent
GROUPS = ("refactor", "render", "storage", "user", "data")
ONTOLOGY = """
[[move]]
tools = ["refactor.*"]
to = ["Coding", "Refactoring"]
summary = "Change the structure of code and keep what it does"
[[move]]
tools = ["render.*"]
to = ["Rendering"]
[[move]]
tools = ["storage.*"]
to = ["Storage", "Buckets"]
summary = "Create and manage object storage buckets"
tags = ["storage", "objects"]
[[move]]
tools = ["user.*"]
to = ["User", "Auth"]
summary = "Authentication and authorization workflows"
[[move]]
tools = ["data.*"]
to = ["Data"]
[[hide]]
path = ["Servers"]
"""
TAGS = """
[tools."refactor.rename_symbol"]
tags = ["refactor", "rename"]
[tools."storage.put_object"]
tags = ["storage", "upload"]
"""


class Answer(Struct, frozen=True):
    """`data` is the operation's answer; `error` is the error's `code`, `message`, `hints`, `next_action`."""

    data: Any = None
    error: Any = None


class Face(Protocol):
    def ask(self, operation: str, **arguments: Any) -> Answer: ...


def make_project(folder: Path) -> Path:
    """A project with the note's tools, built."""
    lines = [
        f"[servers.{group}]\ncommand = {json.dumps(sys.executable)}\n"
        f"args = {json.dumps([str(HERE / 'example_server.py'), group])}\n"
        for group in GROUPS
    ]
    (folder / "ontology.toml").write_text(ONTOLOGY, encoding="utf-8")
    text = "\n".join([*lines, TAGS, '[ontology]\nfile = "ontology.toml"\n'])
    (folder / "toolfold.toml").write_text(text, encoding="utf-8")
    done = run_command(folder, "build", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def settings_of(folder: Path) -> Settings:
    return Settings.load(folder / "toolfold.toml", home=folder / "state", environ=environment(folder), cwd=folder)


def environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "TOOLFOLD_TRUST_PROJECT": "1",
        "HOME": str(folder / "person"),
        "TOOLFOLD_HOME": str(folder / "state"),
    }


def run_command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return fork_server.run(
        [sys.executable, "-m", "toolfold", *arguments],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


class PythonFace:
    """The gateway's own methods, in their blocking form."""

    def __init__(self, gateway: BlockingGateway) -> None:
        self._gateway = gateway

    def ask(self, operation: str, **arguments: Any) -> Answer:
        try:
            answer = getattr(self._gateway, operation)(**arguments)
        except ToolfoldError as error:
            return Answer(error=json.loads(msgspec.json.encode(error.as_dict())))
        return Answer(json.loads(bytes(answer.result) if operation == "call_tool" else msgspec.json.encode(answer)))


class CommandLineFace:
    """A process a question, with `--json`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def ask(self, operation: str, **arguments: Any) -> Answer:
        done = run_command(self._folder, *command_line(operation, arguments), "--json")
        answer = json.loads(done.stdout)
        if isinstance(answer, dict) and set(answer) == {"error"}:
            assert done.returncode > 1
            return Answer(error=answer["error"])
        assert done.returncode == 0, done.stderr
        return Answer(answer)


def command_line(operation: str, given: dict[str, Any]) -> list[str]:
    options = [f"--{name}={given[name]}" for name in ("limit", "cursor") if given.get(name) is not None]
    if operation == "list":
        query = ["--query", given["query"]] if "query" in given else []
        tags = [word for tag in given.get("tags", ()) for word in ("--tag", tag)]
        return ["list", *given.get("path", ()), *tags, *query, *options]
    if operation == "search_tool_by_category":
        return ["search", given["query"], "--in", "/".join(given.get("category_path", ())), *options]
    if operation == "search_nodes":
        return ["nodes", given["query"], *options]
    if operation == "expand_tool":
        return ["expand", given["tool_id"]]
    if operation == "inspect_tool_output":
        return ["inspect-output", given["tool_id"], given.get("field_path", "")]
    assert operation == "call_tool"
    version = [f"--expect-version={given['expect_version']}"] if "expect_version" in given else []
    return ["call", given["tool_id"], json.dumps(given.get("args", {})), *version]


class HttpFace:
    """POST requests to a real server."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def ask(self, operation: str, **arguments: Any) -> Answer:
        answer = self._client.post(f"/v1/{operation}", json=arguments)
        body = answer.json()
        return Answer(body) if answer.status_code == 200 else Answer(error=body["error"])


class McpFace:
    """A client of the official SDK against `toolfold serve`, over its pipes."""

    def __init__(self, ask: Callable[[str, dict[str, Any]], Any]) -> None:
        self._ask = ask

    def ask(self, operation: str, **arguments: Any) -> Answer:
        result = self._ask(operation, arguments)
        if operation == "call_tool" and not result.is_error:
            return Answer(result.model_dump(mode="json", by_alias=True, exclude_none=True))
        assert result.structured_content is None, "the same data never goes twice"
        answer = json.loads(result.content[0].text)
        return Answer(error=answer["error"]) if result.is_error else Answer(answer)


@contextmanager
def gateways_of(folder: Path, count: int) -> Iterator[str]:
    """The address of a proxy before so many gateways on one store, of which each request gets the next."""
    command = [sys.executable, "-m", "toolfold", "serve", "--profile", "discovery"]
    started = [sys.executable, str(HERE.parent / "round_robin.py"), str(count), *command, "--http", "127.0.0.1:0"]
    with subprocess.Popen(started, cwd=folder, env=environment(folder), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert "serving on " in said, said + process.stderr.read()
        try:
            yield said.split("serving on ")[1].strip().removesuffix("/mcp")
        finally:
            process.terminate()
            assert process.wait(60) == 0, process.stderr.read()


@contextmanager
def mcp_client(folder: Path, address: str = "", mode: str = "auto") -> Iterator[McpFace]:
    """A client and its server process, or the address of one. It lives in one task of one thread, as it must."""
    from mcp import Client, StdioServerParameters

    asked: queue.Queue[tuple[str, dict[str, Any], Future[Any]] | None] = queue.Queue()

    async def main() -> None:
        command = StdioServerParameters(
            command=sys.executable, args=["-m", "toolfold", "serve"], env=environment(folder), cwd=str(folder)
        )
        server = f"{address}/mcp" if address else command
        async with Client(server, mode=mode, read_timeout_seconds=60) as client:
            while (one := await asyncio.to_thread(asked.get)) is not None:
                name, arguments, answer = one
                try:
                    answer.set_result(await client.call_tool(name, arguments))
                except Exception as error:  # noqa: BLE001 - whoever asked gets it
                    answer.set_exception(error)

    def ask(name: str, arguments: dict[str, Any]) -> Any:
        answer: Future[Any] = Future()
        asked.put((name, arguments, answer))
        return answer.result(60)

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        yield McpFace(ask)
    finally:
        asked.put(None)
        thread.join(30)


@contextmanager
def http_server(settings: Settings, upstreams: Iterable[Any] = (), *, build: bool = False) -> Iterator[str]:
    """The HTTP face behind a real uvicorn on a free port of this machine."""
    import uvicorn

    stop = threading.Event()

    async def main(listening: socket.socket) -> None:
        async with Gateway(settings, upstreams=upstreams) as gateway:
            if build:
                await gateway.build()
            app = make_app(gateway, Identities(settings).guard)
            server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
            serving = asyncio.ensure_future(server.serve([listening]))
            await asyncio.to_thread(stop.wait)
            server.should_exit = True
            await serving

    # Who connects before the server runs waits in the socket's queue.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        thread = threading.Thread(target=lambda: asyncio.run(main(listening)))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            stop.set()
            thread.join(30)
