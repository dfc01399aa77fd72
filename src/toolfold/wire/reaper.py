"""The reaper: a tiny process that ends the servers toolfold started when toolfold itself is killed.

It runs as a script of its own (`python -I -S reaper.py OWNER PARENT`), uses the standard library only, and reads
lines from stdin: `+GROUP` registers a process group, `-GROUP` forgets it. When the pipe closes or its parent is gone,
it ends every registered group and, on Linux, every process whose environment carries `TOOLFOLD_OWNER=OWNER…`, also
those in a session of their own. `process.py` starts it and uses `kill_tagged` itself.
"""

import os
import select
import signal
import sys
import time

OWNER_VARIABLE = "TOOLFOLD_OWNER"
_GRACE_S = 1.0
_PROC = "/proc"


def _tagged(owner: str) -> list[int]:
    """The processes whose environment says that `owner` started them. Empty where there is no `/proc`."""
    needles = (b"\0" + f"{OWNER_VARIABLE}={owner}".encode(), f"{OWNER_VARIABLE}={owner}".encode())
    try:
        names = os.listdir(_PROC)  # noqa: PTH208 - pathlib would double the size of this process
    except OSError:
        return []
    return [int(name) for name in names if name.isdigit() and int(name) != os.getpid() and _carries(name, needles)]


def _carries(pid: str, needles: tuple[bytes, bytes]) -> bool:
    try:
        with open(f"{_PROC}/{pid}/environ", "rb") as file:  # noqa: PTH123 - as above
            environment = file.read()
    except OSError:
        return False
    return needles[0] in environment or environment.startswith(needles[1])


def _signal_tagged(owner: str, number: int = signal.SIGKILL) -> int:
    """Signals every process that carries the tag, and says how many there were."""
    pids = _tagged(owner)
    for pid in pids:
        _signal(os.kill, pid, number)
    return len(pids)


def kill_tagged(owner: str) -> None:
    """Kills every process with the tag, until two scans in a row find none."""
    # A process may fork, or be between two programs (its environment is empty then), while it is scanned for.
    quiet = 0
    for _ in range(200):
        quiet = 0 if _signal_tagged(owner) else quiet + 1
        if quiet == 2:
            return
        time.sleep(0.01)


def _signal(send: object, target: int, number: int) -> bool:
    try:
        send(target, number)  # type: ignore[operator]  # os.kill or os.killpg; typing would be imported for this alone
    except OSError:
        return False
    return True


def _watch(parent: int) -> list[int]:
    """Descriptors that become readable when stdin closes or the parent ends."""
    watched = [0]
    if hasattr(os, "pidfd_open"):
        try:
            watched.append(os.pidfd_open(parent))
        except OSError:
            return watched  # gone already, or forbidden: the pipe tells it, too
    return watched


def _read_groups(parent: int) -> set[int]:
    """Follows the register until the parent is gone."""
    groups: set[int] = set()
    watched = _watch(parent)
    pending = b""
    while True:
        ready = select.select(watched, [], [])[0]
        if 0 not in ready:
            return groups
        data = os.read(0, 65536)
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            change = groups.add if line.startswith(b"+") else groups.discard
            change(int(line[1:]))
        if not data:
            return groups


def _end(groups: set[int], owner: str) -> None:
    for group in groups:
        _signal(os.killpg, group, signal.SIGTERM)
    _signal_tagged(owner, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_S
    while time.monotonic() < deadline and (_alive(groups) or _tagged(owner)):
        time.sleep(0.02)
    for group in groups:
        _signal(os.killpg, group, signal.SIGKILL)
    kill_tagged(owner)


def _alive(groups: set[int]) -> bool:
    return any(_signal(os.killpg, group, 0) for group in groups)


def main() -> None:
    owner, parent = sys.argv[1], int(sys.argv[2])
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    _end(_read_groups(parent), owner)


if __name__ == "__main__":
    main()
