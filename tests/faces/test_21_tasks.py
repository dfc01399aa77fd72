"""Calls as tasks through `toolfold serve`: both eras of clients in front of servers of both eras."""

import asyncio
import contextlib
import json
import re
import subprocess
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_client_helpers import mcp_on_port
from served_config import Served
from task_servers import META, TASKS, Jobs, connected, text_of

import fork_server
from toolfold import Gateway, Settings
from toolfold.faces.mcp_server.surface_app import SurfaceApp
from toolfold.faces.mcp_server.task_requests import TaskRequests
from toolfold.faces.surface.direct import DirectSurface
from toolfold.storage.sqlite import SqliteStore
from toolfold.types import Caller
from toolfold.wire.serving import Server
from toolfold.wire.serving.http import McpHttpApp
from toolfold.wire.serving.http_guard import HttpGuard
from toolfold.wire.serving.peers import Peers

each_client = pytest.mark.parametrize("era", ["legacy", "modern"])
each_server = pytest.mark.parametrize("upstream", ["legacy", "modern"])
each_profile = pytest.mark.parametrize("profile", ["direct", "transparent"])


def play(jobs: Served, scene: Callable[[str], Awaitable[None]]) -> None:
    async def main(url: str) -> None:
        async with asyncio.timeout(120):
            await scene(url)

    with jobs.over_http() as url:
        asyncio.run(main(url))


@each_client
@each_server
@each_profile
def test_a_call_becomes_a_task_that_outlives_its_client(era: str, upstream: str, profile: str, tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, upstream, profile)

    async def scene(url: str) -> None:
        async with connected(url, era) as client:
            kept = await client.start(jobs.named("job"))
            dropped = await client.start(jobs.named("job"))
            assert not {kept, dropped} & {"task-1", "task-2"}
            listed = [tool.get("execution") for tool in (await client.ask("tools/list"))["tools"]]
            if era == "legacy":
                assert listed == [{"taskSupport": "optional"}] * len(listed)
            elif upstream == "modern":
                assert not any(listed)
            await jobs.wait_until_asked("tools/call", 2)
            await client.cancel(dropped)
            assert await client.state(dropped) == "cancelled"
            await jobs.wait_until_asked("tasks/cancel")
            assert await client.state(kept) == "working"
            if era == "legacy":
                assert await client.listed() == [kept, dropped]
        # The client is gone, and another of the same caller finds it: of either era.
        for other in ("legacy", "modern"):
            async with connected(url, other) as client:
                assert await client.state(kept) == "working"
        jobs.let_end()
        for other in ("legacy", "modern"):
            async with connected(url, other) as client:
                assert text_of(await client.result(kept)) == "job done"
                assert await client.state(kept) == "completed"
                with pytest.raises(MCPError, match="no such task"):
                    await client.state(kept[:-4] + "AAAA")

    play(jobs, scene)


@each_client
@each_server
def test_a_task_asks_its_caller_and_fails_as_its_server_said(era: str, upstream: str, tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, upstream, "transparent")

    async def scene(url: str) -> None:
        async with connected(url, era) as client:
            both = [await client.start("multi_input"), await client.start("confirm_delete")]
            one, two = await asyncio.gather(*map(client.result, both))
            assert text_of(one).startswith("multi_input done")
            assert text_of(one).count("accept") == 2
            assert text_of(two).startswith("confirm_delete done")
            assert text_of(two).count("accept") == 1
            broken = await client.start("protocol_error_job")
            with pytest.raises(MCPError, match="the job broke") as failed:
                await client.result(broken)
            assert failed.value.error.code == -32050
            failing = await client.result(await client.start("failing_job"))
            assert (text_of(failing), failing["isError"]) == ("it did not work", True)

    play(jobs, scene)


@each_client
@each_server
def test_a_client_without_tasks_gets_the_result_with_progress(era: str, upstream: str, tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, upstream)

    async def scene(url: str) -> None:
        async with connected(url, era) as client:
            client.takes_tasks = False
            assert text_of(await client.call("jobs_slow_compute")) == "slow_compute done"
            told = [message["params"] for message in client.notifications]
            assert told[0]["message"] == "slow_compute is working"
            assert [one["progress"] for one in told] == [*range(1, len(told) + 1)]
            if era == "modern":
                with pytest.raises(MCPError, match="declares the extension") as refused:
                    await client.ask("tasks/get", taskId="x")
                assert refused.value.error.code == -32021
            # Given up by its client: the server is told.
            calling = asyncio.ensure_future(client.call("jobs_hostile", how="never"))
            await jobs.wait_until_asked("tasks/get", 4)
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)
            if era == "legacy":
                await client.give_up()
            await jobs.wait_until_asked("tasks/cancel")

    play(jobs, scene)


@each_client
def test_a_server_behind_http_has_tasks_too(era: str, tmp_path: Path) -> None:
    inner = Jobs(tmp_path, "modern", "transparent")
    (tmp_path / "outer").mkdir()
    outer = Served(tmp_path / "outer")

    async def scene(url: str) -> None:
        async with connected(url, era) as client:
            answered = await client.result(await client.start("jobs_confirm_delete"))
            assert text_of(answered).startswith("confirm_delete done")
            dropped = await client.start("jobs_hostile", how="never")
            while (await client.ask("tasks/get", taskId=dropped)).get("statusMessage") != "hostile is working":
                pass
            await client.cancel(dropped)
            await inner.wait_until_asked("tasks/cancel")

    with inner.over_http() as address:
        outer.write(f'[servers.jobs]\nurl = "{address}"\n')
        play(outer, scene)


IN_TIME = "did not answer within"
# How it misbehaves, within which time limit, and what is said of it.
HOSTILE = {
    "unknown": (60, "its task is 'nearly done'"),
    "another": (60, "told of another"),
    "no text": (60, "cannot be read.*could not be told to end"),
    "no id": (60, "names no task.*could not be told to end"),
    "forgets": (60, "does not know it now"),
    "completed": (60, "sends no result"),
    "dies": (60, "closed|ended|exited"),
    "never": (3, IN_TIME),
    "pollInterval": (3, IN_TIME),
    "silent": (3, IN_TIME),
}
# What only one era can do wrong; and a server that is gone, or said that its task ended, is told nothing more.
ONLY = {"completed": "modern", "silent": "legacy"}
UNTOLD = {"dies", "completed", "silent", "no text", "no id"}


@each_server
@pytest.mark.parametrize("limit_s", [60, 3])
def test_a_task_that_misbehaves_ends_with_an_error_and_is_cancelled(
    limit_s: int, upstream: str, tmp_path: Path
) -> None:
    jobs = Jobs(tmp_path, upstream, more=f"call_timeout_s = {limit_s}")
    cases = {
        how: said for how, (limit, said) in HOSTILE.items() if limit == limit_s and ONLY.get(how, upstream) == upstream
    }

    async def scene(url: str) -> None:
        async with connected(url, "modern") as client:
            client.takes_tasks = False
            told = 0
            for how, said in cases.items():
                result = await client.call("jobs_hostile", how=how)
                assert result["isError"], (how, result)
                assert re.search(said, text_of(result)), (how, result)
                if how not in UNTOLD:
                    told += 1
                    await jobs.wait_until_asked("tasks/cancel", told)

    play(jobs, scene)


@each_client
@each_server
def test_a_task_that_never_stops_to_ask_is_ended(era: str, upstream: str, tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, upstream, more="call_timeout_s = 60")

    async def scene(url: str) -> None:
        async with connected(url, era) as client:
            task = await client.start("jobs_hostile", how="asks")
            ended = await client.result(task)
            assert ended["isError"], ended
            assert re.search("64 times", text_of(ended)), ended
            await jobs.wait_until_asked("tasks/cancel")

    play(jobs, scene)


@each_client
def test_a_task_is_its_callers_alone_and_their_number_is_bounded(era: str, tmp_path: Path) -> None:
    keys = "".join(f'[callers.{name}]\nkey = "{name * 10}"\n' for name in ("ann-1", "bob-2"))
    jobs = Jobs(tmp_path, "legacy", rest=keys)
    jobs.let_end()

    async def scene(url: str) -> None:
        async with connected(url, era, "ann-1" * 10) as ann, connected(url, era, "bob-2" * 10) as bob:
            task = await ann.start("jobs_job")
            for asked in (bob.state, bob.result, bob.cancel):
                with pytest.raises(MCPError, match="no such task") as refused:
                    await asked(task)
                assert refused.value.error.code == -32602
            assert text_of(await ann.result(task)) == "job done"
            if era == "modern":
                return
            assert await bob.listed() == []
            for _ in range(99):
                await ann.start("jobs_greet")
            with pytest.raises(MCPError, match="ann-1 has 100 tasks") as full:
                await ann.start("jobs_greet")
            assert full.value.error.data["code"] == "QUOTA_EXCEEDED"
            await bob.start("jobs_greet")

    play(jobs, scene)


REFUSED: dict[str, list[tuple[str, dict[str, Any], int]]] = {
    "legacy": [
        ("tools/call", {"name": "jobs_greet", "task": "x"}, -32602),
        ("tools/call", {"name": "jobs_greet", "task": {"ttl": "long"}}, -32602),
        ("tasks/get", {}, -32602),
        ("tasks/get", {"taskId": "x" * 100_000}, -32602),
        ("tasks/get", {"taskId": ["x"]}, -32602),
        ("tasks/result", {"taskId": "x"}, -32602),
        ("tasks/list", {"cursor": "x"}, -32602),
        ("tasks/update", {"taskId": "x", "inputResponses": {}}, -32601),
    ],
    "modern": [
        ("tasks/get", {"taskId": "x"}, -32602),
        ("tasks/update", {"taskId": "x", "inputResponses": []}, -32602),
        ("tasks/cancel", {"taskId": "x"}, -32602),
        ("tasks/result", {"taskId": "x"}, -32601),
        ("tasks/list", {}, -32601),
    ],
}


@each_client
def test_requests_that_cannot_be_are_refused(era: str, tmp_path: Path) -> None:
    async def scene(url: str) -> None:
        async with connected(url, era) as client:
            for method, params, code in REFUSED[era]:
                with pytest.raises(MCPError) as refused:
                    await client.ask(method, **params)
                assert refused.value.error.code == code, (method, params)
            if era == "modern":
                # FastMCP's client sends no `Mcp-Name` about tasks.
                for name, code in (("", -32602), ("y", -32020)):
                    client.named = lambda _, name=name: name
                    with pytest.raises(MCPError) as refused:
                        await client.ask("tasks/get", taskId="x")
                    assert refused.value.error.code == code
                return
            for asked, granted in ((10**400, 4_200_000), (-(10**400), 60_000), (90_000.5, 90_000), (None, 4_200_000)):
                made = await client.ask("tools/call", name="jobs_greet", arguments={}, task={"ttl": asked})
                assert made["task"]["ttl"] == granted
            arguments = {"name": "x"}
            told = await client.ask("tools/call", name="jobs_greet", arguments=arguments, task=None)
            assert text_of(told) == "Hello, x!"
            # Of all sessions only those of 2025-11-25 have tasks.
            client.version = "2025-06-18"
            assert "tasks" not in (await client.hello())["capabilities"]
            with pytest.raises(MCPError) as refused:
                await client.ask("tasks/list")
            assert refused.value.error.code == -32601
            told = await client.ask("tools/call", name="jobs_greet", arguments=arguments, task={})
            assert text_of(told) == "Hello, x!"

    play(Jobs(tmp_path, "modern"), scene)


@each_client
def test_whoever_follows_a_task_hears_of_its_end(era: str, tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, "modern")

    async def scene(url: str) -> None:
        async with connected(url, era) as client:
            task = await client.start("jobs_job")
            heard: asyncio.Queue[Any] = asyncio.Queue()
            following = asyncio.create_task(client.follow(heard, [task, "none of mine"]))
            if era == "modern":
                granted = (await heard.get())["params"]["notifications"]
                assert granted == {"taskIds": [task]}
                now = await heard.get()
                assert (now["method"], now["params"]["status"]) == ("notifications/tasks", "working")
            else:
                assert await heard.get() == 200
            jobs.let_end()
            while (last := await heard.get()).get("params", {}).get("status") != "completed":
                pass
            assert last["params"]["taskId"] == task
            following.cancel()
            if era == "modern":
                assert text_of(last["params"]["result"]) == "job done"
                client.takes_tasks = False
                with pytest.raises(MCPError, match="declares the extension"):
                    await client.ask("subscriptions/listen", notifications={"taskIds": [task]})
            else:
                assert last["method"] == "notifications/tasks/status"

    play(jobs, scene)


SCRIPT = 'job = use_tools("wait for the parcel", server="jobs")\nprint(await job())\n'


def test_a_script_that_takes_its_time_becomes_a_task(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, "modern", "discovery")

    async def scene(url: str) -> None:
        async with connected(url, "modern") as client:
            quick = await client.call("run_script", code="print(6 * 7)")
            assert "resultType" in quick
            task = quick["taskId"] if quick["resultType"] == "task" else ""  # on a machine that is busy
            assert "42" in text_of(await client.result(task) if task else quick)
            task = await client.start("run_script", code=SCRIPT)
            jobs.let_end()
            assert "job done" in text_of(await client.result(task))

    play(jobs, scene)


def test_on_stdio_tasks_end_with_their_client(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, "modern")
    meta = {f"{META}protocolVersion": "2026-07-28", f"{META}clientCapabilities": {"extensions": {TASKS: {}}}}
    with fork_server.Popen(jobs.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(number: int, method: str, **params: Any) -> dict[str, Any]:
            body = {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": meta}}
            process.stdin.write(json.dumps(body) + "\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            while (answer := json.loads(process.stdout.readline())).get("id") != number:  # type: ignore[union-attr]
                pass
            return dict(answer["result"])

        task = ask(1, "tools/call", name="jobs_job", arguments={})["taskId"]
        assert ask(2, "tasks/get", taskId=task)["status"] == "working"
        process.stdin.close()
        assert process.wait(60) == 0
    assert "tasks/cancel" in (tmp_path / "asked").read_text()


@contextlib.asynccontextmanager
async def gateway_on(folder: Path, enough: asyncio.Event) -> AsyncIterator[str]:
    """The address of a gateway on a store that others share."""

    async def job() -> str:
        """Does a job."""
        await enough.wait()
        return "job done"

    home = folder / uuid.uuid4().hex
    home.mkdir()
    settings, store = Settings(home=home), SqliteStore(folder / "toolfold.sqlite")
    async with Gateway(settings, functions=[job], store=store) as gateway:
        await gateway.build()
        gateway.peers = Peers(gateway.store)
        await gateway.peers.open()
        tasks = TaskRequests(gateway)
        app = SurfaceApp(DirectSurface(gateway), tasks=tasks)
        guard = HttpGuard(identify=lambda headers: Caller(name=headers.get("authorization", "").partition(" ")[2]))
        try:
            async with mcp_on_port(McpHttpApp(Server(app, peers=gateway.peers), guard)) as url:
                yield url
        finally:
            app.aclose()
            await tasks.aclose()
            await gateway.peers.aclose()


@pytest.mark.requirement("G-18")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_task_is_found_through_any_gateway_of_its_store(era: str, tmp_path: Path) -> None:
    enough = asyncio.Event()
    async with asyncio.timeout(100), gateway_on(tmp_path, enough) as b:
        async with gateway_on(tmp_path, enough) as a:
            async with connected(a, "legacy", "ann") as there:
                kept, dropped = await there.start("functions_job"), await there.start("functions_job")
            async with connected(b, era, "ann") as ann, connected(b, era, "bob") as bob:
                assert await ann.state(kept) == "working"
                with pytest.raises(MCPError, match="no such task") as refused:
                    await bob.state(kept)
                assert refused.value.error.code == -32602
                await ann.cancel(dropped)
                assert await ann.state(dropped) == "cancelled"
                getting = asyncio.ensure_future(ann.result(kept))
                enough.set()
                assert text_of(await getting) == "job done"
        async with connected(b, era, "ann") as ann:
            with pytest.raises(MCPError, match="gateway that ran this task has ended") as gone:
                await ann.state(kept)
            assert gone.value.error.code == -32602
