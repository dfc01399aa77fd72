"""The processes of a bench: started until they listen, and what they cost. CPU seconds and memory are Linux only."""

import os
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from toolfold.errors import ConfigError

START_S = 60.0
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def descendants(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:
                continue  # it ended meanwhile
    return found


def find(pid: int, marker: str, *, without: str = "") -> int | None:
    """The last process below `pid` whose command line holds `marker`."""
    chosen = None
    for one in descendants(pid):
        try:
            line = Path(f"/proc/{one}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if marker in line and not (without and without in line):
            chosen = one
    return chosen


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mb(pid: int, key: str = "VmRSS") -> float:
    """`VmRSS` is what it holds now, `VmHWM` the most it ever held."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) / 1024
    return 0.0


def started(command: list[str], port: int, stack: ExitStack) -> "subprocess.Popen[bytes]":
    """A service, once it listens; `stack` ends it."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    stack.callback(_ended, process)
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process
        time.sleep(0.05)
    raise ConfigError(f"{' '.join(command[:4])} did not start", next_action="run it by hand to see why")


def _ended(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
