"""What happens while toolfold serves is told once, in sentences or as JSON; what servers write is kept."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from served_config import Served, call, parameters, wait_for_call

import fork_server
from toolfold.__main__ import main
from toolfold.events import Events
from toolfold.telemetry.logs import EventLog
from toolfold.telemetry.server_logs import MAX_BYTES, ServerLogs


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


SECRET = "sk-abcdefabcdefabcdefabcdef123456"


def broken(served: Served) -> str:
    code = f"import sys; print('cannot start with {SECRET}', file=sys.stderr); sys.exit(3)"
    return f"[servers.broken]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps(['-c', code])}\n"


def test_17_logs_tell_each_thing_once_and_keep_what_servers_write(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    served.write(served.table("a", "one"), broken(served))
    with served.over_http() as url:
        wait_for_call(url, "a.one")
        assert "error" in call(url, "a.one", {"seconds": "many"})
        served.wait_for("call of a.one failed: INVALID_ARGUMENTS")
        served.wait_for("broken: failed")
        call(url, "broken.x", {})
    assert len([line for line in served.said if "a: started" in line]) == 1
    assert len([line for line in served.said if "broken: failed" in line]) == 1
    assert SECRET not in "".join(served.said)
    common = ["--config", str(served.config), "--home", str(served.home)]
    assert main([*common, "logs", "a"]) == 0
    own = capsys.readouterr().out
    assert "a ready to one" in own
    assert "started in" in own
    assert "broken" not in own
    assert main([*common, "logs", "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["lines"]
    assert {line["server"] for line in lines} == {"a", "broken"}
    assert {line["writer"] for line in lines if line["server"] == "broken"} == {"server", "toolfold"}
    files = list((served.home / "logs").iterdir())
    assert SECRET not in "".join(file.read_text() for file in files)
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert main([*common, "logs", "nowhere"]) == 2


def test_17_logs_are_json_where_that_is_asked_for(served: Served) -> None:
    served.write(served.table("a", "one"))
    with served.over_http("--log", "json") as url:
        wait_for_call(url, "a.one")
        told = json.loads(served.wait_for('"upstream.ready"'))
    assert (told["server"], told["level"], told["restarted"]) == ("a", "info", False)


def test_17_logs_say_that_a_server_was_started_again_and_that_a_tool_is_held_back(tmp_path: Path) -> None:
    told: list[str] = []
    events = Events()
    log = EventLog(events, lambda server, text: told.append(f"{server}: {text}"), str)
    ready = {"server": "a", "seconds": 0.1, "pid": 7}
    events.emit("upstream.ready", **ready, restarted=False)
    events.emit("upstream.closed", server="a", reason="exit code 1")
    events.emit("upstream.ready", **ready, restarted=True)
    for _ in range(2):
        events.emit("upstream.failed", server="b", code="X", error="no such program", next_action="")
        events.emit("catalogue.stale", server="b", error="no such program")
    events.emit("trust.changed", server="a", tool_id="a.one", held=True, flags=[])
    log.close()
    events.emit("upstream.closed", server="a", reason="unheard")
    assert told == [
        "a: started in 0.1 s, process 7",
        "a: ended by itself: exit code 1; it is started again",
        "a: started again in 0.1 s, process 7",
        "b: failed: no such program",
        "a: a.one changed since it was accepted; it is held back until you accept it: toolfold trust a.one",
    ]


def test_17_logs_stay_small_whatever_a_server_writes(tmp_path: Path) -> None:
    async def scene() -> None:
        logs = ServerLogs(tmp_path)
        for _ in range(8):
            for _ in range(1_500):  # more than are taken at once: the rest is counted
                logs.write("noisy", "x" * 10_000)
            logs.flush()
        logs.write("noisy", "the last\nword")
        logs.flush()

    asyncio.run(scene())
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 2 * (MAX_BYTES + 1_001 * 2_100)
    lines = ServerLogs(tmp_path).read("noisy", 2)
    assert [line.text for line in lines] == ["500 more lines were left out", "the last word"]


def test_17_logs_follow_a_file_that_was_moved_aside(tmp_path: Path) -> None:
    async def write(text: str) -> None:
        logs = ServerLogs(tmp_path)
        logs.write("a", text)
        logs.flush()

    asyncio.run(write("before"))
    lines = ServerLogs(tmp_path).follow()
    asyncio.run(write("then"))
    assert next(lines).text == "then"
    (tmp_path / "a.log").rename(tmp_path / "a.log.1")
    asyncio.run(write("after"))
    assert next(lines).text == "after"


def printed_while(command: list[str], wanted: str, act: Callable[[], object]) -> str:
    """What a command that never ends prints up to a line with `wanted`, which `act` brings about."""
    with fork_server.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        stop = threading.Event()

        def again() -> None:
            while not stop.wait(0.3):
                act()

        acting = threading.Thread(target=again)
        acting.start()
        try:
            return next(line for line in process.stdout if wanted in line)
        finally:
            stop.set()
            acting.join()
            process.terminate()


def test_17_audit_is_followed_and_filtered(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    served.write(served.table("a", "one", "two"))
    common = ["--config", str(served.config), "--home", str(served.home)]
    with served.over_http() as url:
        wait_for_call(url, "a.one")
        call(url, "a.one", {"seconds": "many"})
        follow = [sys.executable, "-m", "toolfold", *common, "audit", "--follow", "--tool", "a.t*"]
        assert "a.two" in printed_while(follow, "call ", lambda: call(url, "a.two", {}))

    def steps(*options: str) -> list[dict[str, Any]]:
        assert main([*common, "audit", "--json", *options]) == 0
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["steps"]
        return found

    assert {step["tool_id"] for step in steps("--tool", "a.t*")} == {"a.two"}
    assert {step["code"] for step in steps("--status", "failed", "--server", "a")} == {"INVALID_ARGUMENTS"}
    assert all("code" not in step for step in steps("--status", "ok"))
    assert steps("--caller", "nobody") == steps("--since", "2999-01-01") == []
    assert len(steps("--since", "1h")) == len(steps())
    assert main([*common, "audit", "--since", "yesterday"]) == 2


def test_17_clients_on_stdio_have_a_policy_by_the_name_they_give(served: Served) -> None:
    policy = '[callers.desk]\nclient = "mcp"\npolicy = "narrow"\n[policy.narrow]\nallow = ["a.one"]\n'
    served.write(served.table("a", "one", "two"), policy)

    async def names(client_name: str, mode: str) -> set[str]:
        from mcp import Client
        from mcp_types import Implementation

        info = Implementation(name=client_name, version="1")
        spec = parameters(served.command(), served.home)
        async with asyncio.timeout(30), Client(spec, mode=mode, client_info=info, cache=None) as client:
            deadline = time.monotonic() + 20
            while not (found := {tool.name for tool in (await client.list_tools()).tools} - {"tool_output"}):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            return found

    assert asyncio.run(names("mcp", "legacy")) == {"a_one"}
    assert asyncio.run(names("mcp", "2026-07-28")) == {"a_one"}
    assert asyncio.run(names("other", "legacy")) == {"a_one", "a_two"}
