"""The configuration is followed while `toolfold serve` runs: what changes in it takes effect, and clients are told."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp_client_helpers import RecordingClient, text_of

SERVER = """
import os, sys, time
from toolfold.demo.server import serve

def tool(name):
    def work(seconds: float = 0.0) -> str:
        time.sleep(seconds)
        return f"{name} {os.getpid()}"
    work.__name__, work.__doc__ = name, f"Does {name} of {sys.argv[1]}."
    return work

print("ready to", *sys.argv[2:], file=sys.stderr, flush=True)
serve(sys.argv[1], [tool(name) for name in sys.argv[2:]])
"""


class Served:
    """A `toolfold serve` that reads `toolfold.toml` of its own folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.config = home / "toolfold.toml"
        self.program = home / "server.py"
        self.program.write_text(SERVER)
        self.said: list[str] = []

    def table(self, name: str, *tools: str, more: str = "") -> str:
        args = json.dumps([str(self.program), name, *tools])
        return f'[servers.{name}]\ncommand = "{sys.executable}"\nargs = {args}\n{more}\n'

    def write(self, *tables: str) -> None:
        # In one step, as editors do: the program must never read half of it.
        new = self.config.with_suffix(".new")
        new.write_text("".join(tables))
        new.replace(self.config)

    def command(self, *options: str) -> list[str]:
        return [
            *(sys.executable, "-m", "toolfold", "--config", str(self.config), "--home", str(self.home)),
            *("serve", "--profile", "direct", *options),
        ]

    @contextmanager
    def over_http(self, *options: str) -> Iterator[str]:
        with subprocess.Popen(
            self.command("--http", "127.0.0.1:0", *options), stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            self.process = process
            listening = threading.Thread(target=lambda: self.said.extend(process.stderr or ()), daemon=True)
            url = process.stderr.readline().split("serving on ")[1].strip()
            listening.start()
            try:
                yield url
            finally:
                process.terminate()
                assert process.wait(20) == 0
                listening.join(5)

    def wait_for(self, text: str, count: int = 1) -> str:
        deadline = time.monotonic() + 20
        while len(found := [line for line in self.said if text in line]) < count:
            assert time.monotonic() < deadline, f"{text!r} not in {self.said}"
            time.sleep(0.02)
        return found[-1]


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


def parameters(command: list[str], home: Path) -> StdioServerParameters:
    return StdioServerParameters(command=command[0], args=command[1:], env={**os.environ, "HOME": str(home)})


@asynccontextmanager
async def told_of_changes(
    client: Client, recorder: RecordingClient, era: str
) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """How a client of either era waits to be told that the tools changed."""
    if era == "legacy":
        while not recorder.changes.empty():
            recorder.changes.get_nowait()
        yield lambda: recorder.wait_for("notifications/tools/list_changed")
    else:
        async with client.listen(tools_list_changed=True) as subscription:
            yield subscription.__anext__


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_17_watch_servers_come_change_and_go_on_stdio_and_the_client_is_told(served: Served, era: str) -> None:
    served.write(served.table("kept", "stay"), served.table("other", "before"))
    recorder = RecordingClient()

    async def scene() -> None:
        async with (
            asyncio.timeout(60),
            recorder.client(parameters(served.command(), served.home), era) as client,
        ):

            async def names() -> set[str]:
                return {tool.name for tool in (await client.list_tools()).tools} - {"tool_output"}

            async def wait_until(wanted: set[str]) -> None:
                while await names() != wanted:
                    await asyncio.sleep(0.05)

            await wait_until({"kept_stay", "other_before"})
            kept = text_of(await client.call_tool("kept_stay", {}))
            async with told_of_changes(client, recorder, era) as wait_for_change:
                served.write(served.table("kept", "stay"), served.table("other", "after"), served.table("new", "more"))
                await wait_for_change()
            await wait_until({"kept_stay", "other_after", "new_more"})
            assert text_of(await client.call_tool("new_more", {})).startswith("more ")
            served.write(served.table("kept", "stay"), served.table("new", "more", more="enabled = false"))
            await wait_until({"kept_stay"})
            # Its process is the one of before: only what changed was started anew.
            assert text_of(await client.call_tool("kept_stay", {})) == kept

    asyncio.run(scene())


def test_17_watch_a_call_that_runs_when_its_server_changes_ends_by_itself(served: Served) -> None:
    served.write(served.table("a", "slow"))
    with served.over_http() as url:
        served.wait_for("a: started")
        answers: list[Any] = []
        calling = threading.Thread(target=lambda: answers.append(call(url, "a.slow", {"seconds": 2.0})))
        calling.start()
        time.sleep(0.3)  # the call is on its way; whether it began before or after the change, it must succeed
        served.write(served.table("a", "slow", "quick"))
        served.wait_for("a: changed in the configuration")
        quick = wait_for_call(url, "a.quick")
        calling.join(20)
        assert answers[0]["content"][0]["text"].split()[0] == "slow"
        assert answers[0]["content"][0]["text"].split()[1] != quick["content"][0]["text"].split()[1]


def call(url: str, tool_id: str, args: dict[str, Any], key: str = "") -> Any:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with httpx2.Client(timeout=20, headers=headers) as client:
        answer = client.post(url.replace("/mcp", "/v1/call_tool"), json={"tool_id": tool_id, "args": args})
    data = answer.json()
    return data.get("result", data)


def wait_for_call(url: str, tool_id: str) -> Any:
    deadline = time.monotonic() + 20
    while "content" not in (answer := call(url, tool_id, {})):
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
    return answer


def test_17_watch_a_broken_file_keeps_what_was_and_says_so_once_with_its_line(served: Served) -> None:
    served.write(served.table("a", "one"))
    with served.over_http() as url:
        wait_for_call(url, "a.one")
        served.write(served.table("a", "one"), "[servers.b]\ncomand = 'x'\n")
        said = served.wait_for("the earlier one stays")
        assert f"{served.config}:6:1" in said, said
        assert "content" in call(url, "a.one", {})
        os.utime(served.config)  # touched, and broken as before: nothing new to say
        served.process.send_signal(signal.SIGHUP)
        served.wait_for("the earlier one stays", 2)  # asked by a person, it says so again
        served.write(served.table("a", "one"), served.table("b", "two"))
        wait_for_call(url, "b.two")
        assert len([line for line in served.said if "the earlier one stays" in line]) == 2


def test_17_watch_callers_and_policies_change_for_sessions_that_are_open(served: Served) -> None:
    def callers(policy: str, *names: str) -> str:
        tables = [f'[callers.{name}]\nkey = "{name}-{"k" * 20}"\npolicy = "{policy}"\n' for name in names]
        return "".join(tables) + '[policy.narrow]\nallow = ["a.one"]\n[policy.wide]\n'

    ann, bob = "ann-" + "k" * 20, "bob-" + "k" * 20
    table = served.table("a", "one", "two")
    served.write(table, callers("wide", "ann"))
    with served.over_http() as url:
        served.wait_for("a: started")
        assert "content" in call(url, "a.two", {}, ann)
        assert call(url, "a.one", {}, bob)["error"]["code"] == "NOT_AUTHENTICATED"
        served.write(table, callers("narrow", "ann", "bob"))
        served.wait_for("the configuration was read again")
        assert call(url, "a.two", {}, ann)["error"]["code"] == "TOOL_NOT_FOUND"
        assert "content" in call(url, "a.one", {}, bob)
        served.write(table, callers("narrow", "bob"))
        served.wait_for("the configuration was read again", 2)
        assert call(url, "a.one", {}, ann)["error"]["code"] == "NOT_AUTHENTICATED"
        # Without any key everybody would be let in: that is refused, and said.
        served.write(table)
        served.wait_for("the earlier one stays: no caller has a key any more")
        assert call(url, "a.one", {}, ann)["error"]["code"] == "NOT_AUTHENTICATED"


def test_17_watch_what_cannot_change_while_it_serves_is_named(served: Served) -> None:
    served.write(served.table("a", "one"))
    with served.over_http():
        served.write(served.table("a", "one"), "[outputs]\nlifetime_s = 60\n[tools.'a.*']\ncost = 2\n")
        said = served.wait_for("the configuration was read again")
        assert "[outputs], [tools] takes effect when toolfold is started anew" in said
