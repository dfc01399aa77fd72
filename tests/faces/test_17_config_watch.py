"""The configuration is followed while `toolfold serve` runs: what changes in it takes effect, and clients are told."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_client_helpers import RecordingClient, text_of
from msgspec.structs import replace
from served_config import Served, call, parameters, wait_for_call

from toolfold import Gateway, Settings
from toolfold.__main__ import main
from toolfold.config import Policy
from toolfold.containers import TaskSet
from toolfold.faces.config_watch import ConfigWatch

pytestmark = pytest.mark.requirement("G-11")


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


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
                while await names() != wanted:  # noqa: ASYNC110 - another process brings it about
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
        served.wait_until_called("slow")
        served.write(served.table("a", "slow", "quick"))
        served.wait_for("a: changed in the configuration")
        quick = wait_for_call(url, "a.quick")
        calling.join(20)
        assert answers[0]["content"][0]["text"].split()[0] == "slow"
        assert answers[0]["content"][0]["text"].split()[1] != quick["content"][0]["text"].split()[1]


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
        more = "[outputs]\nlifetime_s = 60\n[limits]\nmax_frame_bytes = 70000\ncall_timeout_s = 9\n"
        served.write(served.table("a", "one"), more, "[tools.'a.*']\ncost = 2\n")
        said = served.wait_for("the configuration was read again")
        assert "what changed in [outputs], limits.max_frame_bytes takes effect when toolfold is started anew" in said


def test_17_watch_tools_trust_and_limits_take_effect_and_no_server_is_started_anew(served: Served) -> None:
    table = served.table("a", "one", "two")
    served.write(table)
    with served.over_http() as url:
        process = wait_for_call(url, "a.one")
        served.write(
            table, "[tools.'a.one']\nname = 'first'\n[tools.'a.two']\nhide = true\n[limits]\nstart_timeout_s = 9\n"
        )
        assert wait_for_call(url, "a.first") == process
        assert call(url, "a.two", {})["error"]["code"] == "TOOL_NOT_FOUND"
        served.write(table, "[limits]\ncall_timeout_s = 0.4\n")
        wait_for_call(url, "a.two")
        assert call(url, "a.two", {"seconds": 2.0})["error"]["code"] == "SERVER_TIMEOUT"
        served.write(table, "[trust]\naccept_new = false\nhold_changed = true\n")
        served.wait_for("the configuration was read again", 3)
        served.write(table, served.table("b", "more"), "[trust]\naccept_new = false\nhold_changed = true\n")
        served.wait_for("b: started")
        served.wait_for("held back")
        assert "held back" in call(url, "b.more", {})["error"]["message"]
        assert "started anew" not in "".join(served.said)


async def test_17_watch_goes_on_after_a_fault_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """Of whatever kind: a caller that was taken out of the file must not stay let in for good."""
    policies = (Policy(name="default", deny=("a.*",)),)
    failures = iter([IndexError("a fault of toolfold"), OSError("no descriptor is left")])

    def load() -> Settings:
        if failure := next(failures, None):
            raise failure
        return replace(gateway.settings, policies=policies)

    tasks = TaskSet(logging.getLogger("toolfold.serve"))
    async with asyncio.timeout(60), Gateway(Settings()) as gateway:
        changed = asyncio.Event()
        gateway.events.subscribe(lambda event: changed.set() if event.name == "config.changed" else None)
        tasks.keep(ConfigWatch(gateway, load).run, name="watching the configuration")
        await changed.wait()
        await tasks.cancel()
        assert gateway.settings.policies == policies
    said = [record.getMessage() for record in caplog.records if record.exc_info]
    assert len(said) == 2
    assert all("watching the configuration failed, and is not done until it begins anew" in line for line in said)


def test_17_watch_a_file_that_was_emptied_changes_nothing_and_says_how_to_serve_none(served: Served) -> None:
    table = served.table("a", "stay")
    served.write(table)
    with served.over_http() as url:
        wait_for_call(url, "a.stay")
        served.write("")
        assert "names no servers any more" in served.wait_for("the earlier one stays")
        assert "content" in call(url, "a.stay", {})
        served.write(table)
        served.wait_for("the configuration is as it was")
        assert main(["--config", str(served.config), "--home", str(served.home), "remove", "a"]) == 0
        served.wait_for("a: taken out of the configuration")
    assert not any("the earlier one stays" in line for line in served.said[-3:])
