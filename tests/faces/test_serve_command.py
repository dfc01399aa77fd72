"""`toolfold serve` as a process: it starts at once, keeps its wire clean, lets in whom it should, and ends."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp_client_helpers import command, served_over_http, text_of

import fork_server
from toolfold.__main__ import main

MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"


def request(method: str, params: dict[str, Any] | None = None, key: int = 1) -> str:
    meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
    return json.dumps({"jsonrpc": "2.0", "id": key, "method": method, "params": {**(params or {}), "_meta": meta}})


def parameters(home: Path, *options: str) -> StdioServerParameters:
    program, *arguments = command(home, *options)
    return StdioServerParameters(command=program, args=arguments)


@pytest.mark.requirement("G-02")
@pytest.mark.parametrize("mode", ["legacy", MODERN])
def test_the_catalogue_is_read_in_the_background_and_its_tools_can_be_called(tmp_path: Path, mode: str) -> None:
    async def scene() -> None:
        async with (
            asyncio.timeout(60),
            Client(parameters(tmp_path, "--profile", "discovery"), mode=mode, cache=None) as client,
        ):
            assert {"list", "call_tool", "expand_tool"} <= {tool.name for tool in (await client.list_tools()).tools}
            call = {"tool_id": "fixture.test_simple_text", "args": {}}
            answer = await client.call_tool("call_tool", call)
            while answer.is_error:
                assert "NOT_BUILT" in text_of(answer), text_of(answer)
                await asyncio.sleep(0.05)
                answer = await client.call_tool("call_tool", call)
            assert text_of(answer) == "This is a simple text response for testing."

    asyncio.run(scene())


def test_a_handshake_waits_for_no_server_and_the_end_of_input_ends_everything(tmp_path: Path) -> None:
    config = tmp_path / "toolfold.toml"
    mark = f"never-{tmp_path.name}-{os.getpid()}"  # others start such processes at the same time
    config.write_text(
        f'[servers.never]\ncommand = "{sys.executable}"\nargs = ["-c", "import time; time.sleep(600)", "{mark}"]\n'
    )
    started = [sys.executable, "-m", "toolfold", "--config", str(config), "--home", str(tmp_path), "serve"]
    asked = "\n".join([request("server/discover"), request("tools/list", key=2), "nonsense"]) + "\n"
    done = fork_server.run(started, input=asked, capture_output=True, text=True, timeout=60, check=False)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert {answer["id"] for answer in answers} == {1, 2, None}
    assert done.returncode == 0, done.stderr
    assert mark not in subprocess.run(["ps", "axww"], capture_output=True, text=True, check=True).stdout


SLOW = """
import time
def slow(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"
"""


def asks_slow(folder: Path, seconds: float) -> "subprocess.Popen[str]":
    """A gateway that is asked for something slow, and whose input ended then."""
    (folder / "tools.py").write_text(SLOW)
    (folder / "toolfold.toml").write_text('[servers.slow]\nfunctions = "./tools.py"\n')
    started = [sys.executable, "-m", "toolfold", "--config", str(folder / "toolfold.toml"), "--home", str(folder)]
    process = fork_server.Popen(
        [*started, "serve", "--profile", "discovery"], stdin=-1, stdout=-1, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdin is not None
    call = {"name": "call_tool", "arguments": {"tool_id": "slow.slow", "args": {"seconds": seconds}}}
    process.stdin.write(request("tools/list") + "\n" + request("tools/call", call, key=2) + "\n")
    process.stdin.close()
    return process


def test_what_was_asked_before_the_input_ended_is_answered(tmp_path: Path) -> None:
    with asks_slow(tmp_path, 2) as process:
        assert process.stdout is not None
        answers = {line["id"]: line for line in map(json.loads, process.stdout.read().splitlines())}
    assert "slept" in json.dumps(answers[2])
    assert process.returncode == 0


def test_a_signal_ends_it_and_its_servers(tmp_path: Path) -> None:
    with fork_server.Popen(command(tmp_path, "--profile", "transparent"), stdin=-1, stdout=-1, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request("tools/call", {"name": "test_simple_text"}) + "\n")
        process.stdin.flush()
        assert "simple text" in process.stdout.readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert children
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline, f"of {children} some are still there"
        time.sleep(0.05)


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.0.2.1:80"])
def test_an_address_that_others_reach_needs_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    arguments = command(tmp_path, "--http", address)[3:]
    assert main(arguments) == 2
    assert "no caller has a key" in capsys.readouterr().err


def test_several_servers_cannot_be_passed_through_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "two.toml"
    config.write_text('[servers.a]\ncommand = "a"\n[servers.b]\ncommand = "b"\n')
    options = ["--config", str(config), "--home", str(tmp_path), "serve", "--http", "127.0.0.1:0"]
    assert main([*options, "--profile", "transparent"]) == 2
    assert "--server NAME" in capsys.readouterr().err


@pytest.mark.requirement("G-02")
def test_one_port_serves_mcp_json_and_figures_to_those_with_a_key(tmp_path: Path) -> None:
    key = "a-key-of-enough-characters"
    callers = f'[callers.ann]\nkey = "{key}"\n'
    with served_over_http(tmp_path, extra=callers) as url, httpx2.Client(timeout=20) as client:
        body = json.loads(request("tools/list"))
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list", "Accept": "application/json"}
        assert client.post(url, json=body, headers=headers).status_code == 401
        wrong = {**headers, "Authorization": "Bearer wrong"}
        assert client.post(url, json=body, headers=wrong).status_code == 401
        right = {"Authorization": f"Bearer {key}"}
        assert client.post(url, json=body, headers={**headers, **right}).json()["result"]["tools"]
        metrics = url.replace("/mcp", "/metrics")
        assert client.get(metrics).status_code == 401
        assert "toolfold_" in client.get(metrics, headers=right).text
        assert client.get(url.replace("/mcp", "/openapi.json"), headers=right).status_code == 200


@pytest.mark.requirement("G-05")
def test_a_caller_sees_and_calls_only_what_its_policy_allows_of_a_server_that_is_passed_through(tmp_path: Path) -> None:
    callers = """
[callers.ann]
key = "a-key-of-enough-characters"
policy = "narrow"
[policy.narrow]
allow = ["fixture.test_simple_text", "fixture.test_image_content"]
"""
    key = {"Authorization": "Bearer a-key-of-enough-characters"}
    with (
        served_over_http(tmp_path, "--profile", "transparent", extra=callers) as url,
        httpx2.Client(timeout=20, headers=key) as client,
    ):

        def ask(method: str, params: dict[str, Any] | None = None) -> Any:
            name = {"Mcp-Name": params["name"]} if params and "name" in params else {}
            headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, **name}
            return client.post(url, json=json.loads(request(method, params)), headers=headers).json()

        names = {tool["name"] for tool in ask("tools/list")["result"]["tools"]}
        while "test_simple_text" not in names:  # the catalogue is read in the background
            names = {tool["name"] for tool in ask("tools/list")["result"]["tools"]}
        assert names - {"tool_output"} == {"test_simple_text", "test_image_content"}
        assert "result" in ask("tools/call", {"name": "test_simple_text"})
        refused = ask("tools/call", {"name": "test_error_handling"})["error"]
        unknown = ask("tools/call", {"name": "no_such_tool_here"})["error"]
        assert refused["message"].replace("test_error_handling", "X") == unknown["message"].replace(
            "no_such_tool_here", "X"
        )
        assert ask("resources/list")["error"]["code"] == -32601
        assert set(ask("server/discover")["result"]["capabilities"]) == {"tools"}


def test_a_client_is_pointed_at_toolfold_alone_with_a_backup_of_what_it_had(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = tmp_path / "mcp.json"
    theirs.write_text(json.dumps({"mcpServers": {"git": {"command": "mcp-server-git"}}, "other": 1}))
    ours = tmp_path / "toolfold.toml"
    options = ["import", str(theirs), "--to", str(ours), "--replace", "--even-failed"]
    assert main(options) == 0
    assert "git" in json.loads(theirs.read_text())["mcpServers"]
    assert main([*options, "--yes"]) == 3  # `mcp-server-git` is not there: it is told, and written all the same
    now = json.loads(theirs.read_text())
    assert list(now["mcpServers"]) == ["toolfold"]
    assert now["mcpServers"]["toolfold"]["args"][-3:] == ["--config", str(ours), "serve"]
    assert now["other"] == 1
    assert "[servers.git]" in ours.read_text()
    assert "the file as it was" in capsys.readouterr().out
    assert main([*options, "--yes"]) == 0
    assert json.loads(theirs.read_text()) == now


INTERRUPTED = """
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "toolfold.faces.cli.parser":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Finder())
from toolfold.__main__ import main
sys.exit(main(["tree"]))
"""


def test_15_18_an_interrupt_while_modules_load_prints_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_15_18_a_client_that_sends_all_at_once_is_answered(tmp_path: Path) -> None:
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    sent = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list", "arguments": {}}},
    ]
    asked = "".join(json.dumps(message) + "\n" for message in sent)
    with fork_server.Popen(command(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(asked)
        process.stdin.flush()
        answers: dict[int, Any] = {}
        while len(answers) < 2:  # notifications may stand between them
            message = json.loads(process.stdout.readline())
            answers |= {message["id"]: message} if "id" in message else {}
        process.stdin.close()
        assert process.wait(60) == 0
    assert answers[1]["result"]["serverInfo"]["name"] == "toolfold"
    assert "result" in answers[2]


def test_15_18_every_profile_that_is_offered_can_be_served(tmp_path: Path) -> None:
    asked = request("tools/list") + "\n"
    done = fork_server.run(
        command(tmp_path, "--profile", "live"), input=asked, capture_output=True, text=True, timeout=60, check=False
    )
    assert "eval_expr" in done.stdout, done.stderr


def test_17_toolfold_behind_toolfold_says_which_one_wants_a_key_and_where_to_set_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    with served_over_http(inner, extra='[callers.ann]\nkey = "a-key-of-enough-characters"\n') as url:
        config = tmp_path / "outer.toml"
        config.write_text(f'[servers.inner]\nurl = "{url}"\n')
        assert main(["--config", str(config), "--home", str(tmp_path / "home"), "build"]) == 3
    shown = capsys.readouterr()
    assert url.removesuffix("/mcp") in shown.out + shown.err
    assert "refused access (HTTP 401)" in shown.out + shown.err
    told = " ".join((shown.out + shown.err).split())
    assert "toolfold login inner --header HEADER" in told
    assert "or write it in `headers` of this server" in told
