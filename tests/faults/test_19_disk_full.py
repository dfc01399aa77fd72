"""A disk without room: calls go on, what cannot be kept is told, nothing is damaged, and all of it works again once
there is room. On a small tmpfs where the tests may mount one; everywhere with a limit on the size of files, set from
outside on the running gateway, which fails its writes in the same way."""

import contextlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gateway_process import GatewayProcess, Home, figure, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tmpfs, and limits of another process, are Linux's own")

TABLES = (
    '[limits]\ntool_response_max_bytes = 2048\n[audit]\nvalues = "full"\n',
    Home.server("bad", "misbehaving_stdio.py"),
    Home.server("big", "large_stdio.py"),
    '[servers.key]\nurl = "http://127.0.0.1:9/mcp"\nenabled = false\n',
)
KEY = "a key that is kept in the vault"


@contextlib.contextmanager
def tmpfs(folder: Path, megabytes: int) -> Iterator[None]:
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root; the limit on the size of files is tested instead")
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "toolfold-test", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> None:
    """Until not a byte is free, whatever else writes meanwhile."""
    with (disk / "ballast").open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)


def test_a_full_tmpfs(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with tmpfs(disk, 24):
        home = Home(disk).write(*TABLES)
        with home.serve() as gateway:
            begin(home, gateway)
            fill(disk)
            assert_goes_on(home, gateway)
            assert_vault_says(home)
            (disk / "ballast").unlink()
            assert_recovers(home, gateway)
        fill(disk)
        assert_starts_or_says_why(home)
        (disk / "ballast").unlink()
        with home.serve() as gateway:
            assert_recovers(home, gateway)
        assert home.is_sound()
        assert not list(disk.rglob(".draft-*"))
    figure("full tmpfs", megabytes=24, damaged=0)


def test_files_that_may_not_grow(tmp_path: Path) -> None:
    home = Home(tmp_path).write(*TABLES)
    with home.serve() as gateway:
        begin(home, gateway)
        before = resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (0, before[1]))
        assert_goes_on(home, gateway)
        resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, before)
        assert_recovers(home, gateway)
    assert home.is_sound()
    figure("files that may not grow", damaged=0)


def begin(home: Home, gateway: GatewayProcess) -> None:
    gateway.wait_for("bad.echo")
    assert "results" in gateway.post("search_tool_by_category", query="give the arguments back")
    assert "too large" in gateway.wait_for("big.large", megabytes=0.1)["content"][0]["text"]
    assert login(home).returncode == 0


def login(home: Home) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        home.command("login", "key", "--header", "X-Api-Key"),
        input=KEY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def assert_goes_on(home: Home, gateway: GatewayProcess) -> None:
    """While there is no room."""
    for number in range(20):
        assert gateway.call("bad.echo", number=number)["structuredContent"] == {"number": number}
    for megabytes in (0.1, 6):  # as a whole message, and by way of a file
        refused = gateway.call("big.large", megabytes=megabytes)["error"]
        assert refused["code"] == "OUTPUT_FULL", refused
        assert refused["next_action"]
    assert "results" in gateway.post("search_tool_by_category", query="give the arguments back")
    gateway.call("bad.change")  # a new tool, which the catalogue cannot take in
    home_changed(home, gateway)
    assert gateway.post("expand_tool", tool_id="bad.echo")["tool_id"] == "bad.echo"
    until(lambda: "audit log" in "".join(gateway.said), "nobody was told that the audit log waits")
    assert gateway.process.poll() is None


def home_changed(home: Home, gateway: GatewayProcess) -> None:
    """The configuration's own file may lie on another disk: a server more, of which nothing can be kept."""
    with contextlib.suppress(OSError):
        home.write(*TABLES, Home.server("more", "misbehaving_stdio.py"))
    gateway.call("bad.echo")


def assert_vault_says(home: Home) -> None:
    """No room for a new sign-in is told, and the one that is there is whole."""
    before = sealed(home)
    refused = login(home)
    assert refused.returncode != 0
    assert "Traceback" not in refused.stderr
    assert "space" in refused.stderr.lower() or "room" in refused.stderr.lower(), refused.stderr
    assert sealed(home) == before


def sealed(home: Home) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (home.state / "sign-ins").iterdir() if path.is_file()}


def assert_recovers(home: Home, gateway: GatewayProcess) -> None:
    """With room again, by itself."""
    gateway.wait_for("bad.echo")
    stored = gateway.wait_for("big.large", megabytes=0.1)["content"][0]["text"]
    handle = stored.split('handle = "')[1].split('"')[0]
    assert "INFO worker-7" in gateway.post("tool_output", handle=handle, extract="lines 1-2")["text"]
    gateway.call("bad.change")
    until(lambda: "content" in gateway.call("bad.tool_0"), "a new tool is not taken in", 40)
    until(lambda: found(gateway), "search does not find the new tool")
    # What was completed without room is in the audit log.
    until(lambda: numbers(home) >= set(range(20)), f"not recorded: {set(range(20)) - numbers(home)}")
    assert login(home).returncode == 0


def found(gateway: GatewayProcess) -> bool:
    tools: list[dict[str, Any]] = gateway.post("search_tool_by_category", query="tool_0").get("results", [])
    return any(tool["tool_id"] == "bad.tool_0" for tool in tools)


def numbers(home: Home) -> set[int]:
    found = [step.get("arguments") or {} for step in steps(home)]
    return {arguments["number"] for arguments in found if "number" in arguments}


def steps(home: Home) -> list[dict[str, Any]]:
    done = home.run("audit", "--json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    found: list[dict[str, Any]] = value if isinstance(value, list) else value["steps"]
    return found


def assert_starts_or_says_why(home: Home) -> None:
    """A gateway that is started without any room serves what there is, or says what is wrong."""
    try:
        with home.serve() as gateway:
            assert "content" in gateway.wait_for("bad.echo")
    except AssertionError as error:
        if "no room" not in str(error):
            raise
