"""What every client is put through: the same steps, whatever library it is made with.

A script beside this one connects with one library and hands that over to `play`. It runs in the environment of that
library, so this file needs nothing but the standard library, and knows nothing of toolfold but its command line. It
reads from its first argument where everything is, and ends with a line for each way it connected.
"""

import asyncio
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

EIGHT = [
    "list",
    "search_nodes",
    "search_tool_by_category",
    "expand_tool",
    "call_tool",
    "inspect_tool_output",
    "tool_output",
    "run_script",
]
MANY_ROWS = {"sql": "select * from orders join customers on customers.id = orders.customer_id", "limit": 300}
RUN_S = 120.0
END_S = 15.0
SUBREAPER = 36  # of prctl(2): who is orphaned below this process becomes its child


@dataclass(frozen=True)
class Target:
    """How to reach toolfold: a command to start, or an address."""

    command: Sequence[str] = ()
    url: str = ""


@dataclass(frozen=True)
class Answer:
    """What a tool call gave."""

    text: str
    failed: bool = False


class Connection(Protocol):
    """A connected client."""

    async def instructions(self) -> str: ...

    async def tools(self) -> Sequence[dict[str, Any]]:
        """The tools as the library shows them, each with a `name`; asked of the server each time."""

    async def call(self, name: str, arguments: dict[str, Any]) -> Answer: ...


Connect = Callable[[Target], AbstractAsyncContextManager[Connection]]
Steps = Callable[[Connection], Awaitable[None]]
Act = Callable[[], Awaitable[None]]


class Failed(Exception):
    """A step did not give what it should."""


def expect(held: object, said: object) -> None:
    if not held:
        raise Failed(str(said)[:2000])


async def found(connection: Connection) -> None:
    """Eight stable tools, and a tool is found, read and called through them."""
    first, second = await connection.tools(), await connection.tools()
    expect([tool["name"] for tool in first] == EIGHT, f"listed: {[tool['name'] for tool in first]}")
    expect(json.dumps(first) == json.dumps(second), "two lists differ")
    told = await connection.instructions()
    expect("git (7" in told and "sqlite (4" in told, f"instructions: {told}")
    hit = await connection.call("search_tool_by_category", {"query": "who changed a line of a file last"})
    expect(not hit.failed and json.loads(hit.text)["results"][0]["tool_id"] == "git.blame", hit)
    whole = await connection.call("expand_tool", {"tool_id": "git.log"})
    expect(not whole.failed and "limit" in json.loads(whole.text)["args_schema"]["properties"], whole)
    called = await connection.call("call_tool", {"tool_id": "git.log", "args": {"limit": 2}})
    expect(not called.failed and len(json.loads(called.text)["commits"]) == 2, called)


async def helped(connection: Connection) -> None:
    """What is wrong is told together with what would be right."""
    wrong = await connection.call("call_tool", {"tool_id": "git.log", "args": {"limit": "many"}})
    expect(wrong.failed and "INVALID_ARGUMENTS" in wrong.text and "next_action" in wrong.text, wrong)
    unknown = await connection.call("call_tool", {"tool_id": "git.lgo", "args": {}})
    expect(unknown.failed and "TOOL_NOT_FOUND" in unknown.text and "git.log" in unknown.text, unknown)


async def stored(connection: Connection) -> str:
    """A result too large to show comes as a handle."""
    large = await connection.call("call_tool", {"tool_id": "sqlite.query", "args": MANY_ROWS})
    # Some clients give several blocks as one JSON text, where quotes are escaped.
    handle = re.search(r'handle = \\?"([^"\\]+)', large.text)
    expect(not large.failed and handle is not None and len(large.text) < 2000, large)
    assert handle is not None
    return handle[1]


async def shortened(connection: Connection) -> None:
    """A part of such a result is had with its handle."""
    part = await connection.call("tool_output", {"handle": await stored(connection), "extract": "rows[3]"})
    expect(not part.failed and "jonas.okafor@example.org" in part.text, part)


async def forgotten(connection: Connection) -> None:
    """A client that begins a session with each question cannot come back for a stored result, and is told so."""
    part = await connection.call("tool_output", {"handle": await stored(connection), "extract": "rows[3]"})
    expect(part.failed and "UNKNOWN_HANDLE" in part.text and "Next: " in part.text, part)


async def discovery(connection: Connection) -> None:
    await found(connection)
    await helped(connection)
    await shortened(connection)


async def direct(connection: Connection) -> None:
    """Every tool under its own name."""
    names = [tool["name"] for tool in await connection.tools()]
    expect(len(names) == 18 and {"git_log", "files_read", "sqlite_query", "tool_output"} <= set(names), names)
    read = await connection.call("files_read", {"path": "config/shop.json"})
    expect(not read.failed and "currency" in read.text, read)


async def auto(connection: Connection) -> None:
    """Few tools are listed as they are; a script may call them, too."""
    names = [tool["name"] for tool in await connection.tools()]
    expect(len(names) == 19 and {"git_log", "sqlite_query", "tool_output", "run_script"} <= set(names), names)
    read = await connection.call("files_read", {"path": "config/shop.json"})
    expect(not read.failed and "currency" in read.text, read)
    told = await connection.instructions()
    expect("search" not in told and "tool_output" in told, told)


async def one_by_one(connection: Connection) -> None:
    """The steps of `discovery` for a client that begins a session with each question."""
    await found(connection)
    await helped(connection)
    await forgotten(connection)


def play(connect: Connect, *, discovering: Steps = discovery) -> None:
    """All of it with one client, over each transport."""
    profiles = {"discovery": discovering, "direct": direct, "auto": auto}

    def act(way: str, profile: str) -> Act:
        async def acted() -> None:
            serve = [*job()["serve"], "--profile", profile]
            async with opened(way, serve) as target, connect(target) as connection:
                await profiles[profile](connection)

        return acted

    perform({f"{way} {profile}": act(way, profile) for way in ("stdio", "http") for profile in profiles})


def job() -> dict[str, Any]:
    """What the runner says of where things are."""
    said: dict[str, Any] = json.loads(sys.argv[1])
    return said


def perform(acts: Mapping[str, Act]) -> NoReturn:
    """Each of them in turn, a line for each. Exits with 1 where one fails or leaves a process behind."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    failed = False
    for name, act in acts.items():
        started = time.monotonic()
        problem = asyncio.run(acted(act)) or left_behind()
        failed |= bool(problem)
        sys.stdout.write(f"{name}: {problem or 'ok'} ({time.monotonic() - started:.1f} s)\n")
        sys.stdout.flush()
    sys.exit(1 if failed else 0)


async def acted(act: Act) -> str:
    """Why it failed, or nothing."""
    try:
        async with asyncio.timeout(RUN_S):
            await act()
    except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - whatever a library raises is what is reported
        return f"FAILED {told(error)}"
    return ""


def told(error: BaseException) -> str:
    """The first thing that went wrong, out of whatever group it was raised in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


@asynccontextmanager
async def opened(way: str, serve: Sequence[str]) -> AsyncIterator[Target]:
    if way == "stdio":
        yield Target(command=serve)
        return
    with serving(serve) as url:
        yield Target(url=url)


@contextmanager
def serving(serve: Sequence[str]) -> Iterator[str]:
    """toolfold over HTTP on a free port, until the block ends; then it must end by itself when asked to."""
    with subprocess.Popen([*serve, "--http", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            address = re.search(r"http://\S+/mcp", line)
            expect(address, f"serve said {line!r}")
            assert address is not None
            yield address[0]
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                expect(process.wait(END_S) == 0, f"serve ended with {process.returncode}")
            except subprocess.TimeoutExpired:
                process.kill()
                raise Failed("serve did not end when it was asked to") from None


def left_behind() -> str:
    """The processes that outlived the client, or nothing. They get a moment, and are ended."""
    until = time.monotonic() + END_S
    while (alive := children()) and time.monotonic() < until:
        time.sleep(0.05)
    for number in alive:
        os.kill(number, signal.SIGKILL)
    return f"FAILED left behind: {list(alive.values())}" if alive else ""


def children() -> dict[int, str]:
    """What lives right below this process, the orphans of those that ended included."""
    alive = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state != "Z":
                alive[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, ValueError):
            continue
    return alive
