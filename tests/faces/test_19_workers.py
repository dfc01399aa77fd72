"""`toolfold serve --workers`: several processes on one address, started again when they die, gone with the first."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp_client_helpers import command

from toolfold.__main__ import main

HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


class Served:
    """A supervisor and its workers."""

    def __init__(self, process: "subprocess.Popen[str]", url: str, log: Path) -> None:
        self.process, self.url, self._log = process, url, log

    @property
    def log(self) -> str:
        return self._log.read_text()

    def workers(self) -> list[int]:
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in text.split()]


@contextmanager
def served(home: Path, count: int = 2, extra: str = "") -> Iterator[Served]:
    log = home / "stderr.txt"
    started = command(home, "--http", "127.0.0.1:0", "--workers", str(count), extra=extra)
    with log.open("w") as said, subprocess.Popen(started, stderr=said, text=True) as process:
        try:
            wait_for(lambda: "serving on " in log.read_text() or process.poll() is not None)
            found = re.search(r"serving on (\S+)", log.read_text())
            assert found is not None, log.read_text()
            yield Served(process, found[1], log)
        finally:
            if process.poll() is None:
                process.terminate()
            assert process.wait(40) in {0, -signal.SIGKILL}, log.read_text()


def wait_for(condition: Callable[[], Any], within_s: float = 40) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid: int) -> set[int]:
    found = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found |= {child, *descendants(child)}
    return found


def ask(url: str, session: str, method: str = "tools/list") -> Any:
    """In a connection of its own, which any worker may take."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method}
    answer = httpx2.post(url, json=body, headers={**ACCEPT, "Mcp-Session-Id": session}, timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


@pytest.mark.requirement("G-18")
def test_19_every_worker_goes_on_with_every_session(tmp_path: Path) -> None:
    with served(tmp_path, 3) as gateway:
        assert len(gateway.workers()) == 3
        opened = httpx2.post(gateway.url, json=HELLO, headers=ACCEPT, timeout=30)
        session = opened.headers["mcp-session-id"]
        for _ in range(30):
            assert ask(gateway.url, session)["tools"]
        # One that dies is started again, and its sessions are known to the others meanwhile.
        lost = gateway.workers()[0]
        os.kill(lost, signal.SIGKILL)
        wait_for(lambda: not running(lost))
        for _ in range(30):
            assert ask(gateway.url, session)["tools"]
        wait_for(lambda: len(gateway.workers()) == 3)
        assert re.search(r"worker \d ended \(status -9\): it is started again in 0\.\d s", gateway.log)
        everybody = descendants(gateway.process.pid)
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(40) == 0
        wait_for(lambda: not any(map(running, everybody)))


def test_19_no_worker_and_no_server_outlives_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    with served(tmp_path) as gateway:
        everybody = descendants(gateway.process.pid)
        assert len(everybody) >= 2
        gateway.process.kill()
        wait_for(lambda: not any(map(running, everybody)))


def test_19_workers_read_a_changed_configuration_again(tmp_path: Path) -> None:
    key = "a-key-of-enough-characters"
    with served(tmp_path, extra=f'[callers.ann]\nkey = "{key}"\n') as gateway:
        config = tmp_path / "toolfold.toml"
        config.write_text(config.read_text() + f'[callers.bob]\nkey = "{key[::-1]}"\n')
        gateway.process.send_signal(signal.SIGHUP)
        headers = {**ACCEPT, "Authorization": f"Bearer {key[::-1]}"}
        in_a_row = 0

        def known_to_all() -> bool:
            nonlocal in_a_row
            answer = httpx2.post(gateway.url, json=HELLO, headers=headers, timeout=30)
            in_a_row = in_a_row + 1 if answer.status_code == 200 else 0
            return in_a_row >= 12

        wait_for(known_to_all)


def test_19_what_is_wrong_is_said_once_and_nothing_is_served(tmp_path: Path) -> None:
    started = command(tmp_path, "--http", "0.0.0.0:0", "--workers", "2")
    done = subprocess.run(started, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.count("no caller has a key") == 1
    assert "Traceback" not in done.stderr


def test_19_workers_need_an_address_and_are_bounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(tmp_path, "--workers", "2")[3:]) == 2
    assert "--http" in capsys.readouterr().err
    assert main(command(tmp_path, "--http", "127.0.0.1:0", "--workers", "1000")[3:]) == 2
    assert "at most 64" in capsys.readouterr().err


def test_19_the_log_says_which_worker_speaks(tmp_path: Path) -> None:
    with served(tmp_path) as gateway:
        wait_for(lambda: re.search(r"INFO worker 1: .*fixture", gateway.log))
        wait_for(lambda: re.search(r"INFO worker 2: .*fixture", gateway.log))
