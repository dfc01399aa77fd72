"""A place to run attacks: real confined children, and canaries on the host that must never be touched.

The zygotes live in one event loop on a thread of its own, so that a hundred attacks share them.
"""

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from toolfold.sandbox.base import ChildLimits, Exit
from toolfold.sandbox.zygote import Zygote

T = TypeVar("T")
ENTRY = "toolfold.sandbox.probe:execute"
WAYS: dict[str, dict[str, Any]] = {
    "namespaces": {},
    "plain": {"namespaces": False},
    "bubblewrap": {"prefer": "bubblewrap"},
    "unsafe": {"unsafe": True},
}
"""`plain` is Landlock, seccomp and limits alone, as on a machine that allows no namespaces."""
CONFINED = [way for way in WAYS if way != "unsafe" and (way != "bubblewrap" or shutil.which("bwrap"))]
QUICK = ChildLimits(wall_s=20, cpu_s=20)

PRELUDE = """
import ctypes, errno, os, socket, sys
canary = {canary!r}
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    libc.syscall.restype = ctypes.c_long
    got = libc.syscall(ctypes.c_long(number), *words)
    if got < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return got
"""


@dataclass
class Canaries:
    """Things of worth on the host. The token must reach no child; nobody may knock at a door."""

    folder: Path
    token: str = field(default_factory=lambda: "can" + "ary-" + secrets.token_hex(12))

    def __post_init__(self) -> None:
        self.secret = self.folder / "secret.txt"
        self.secret.write_text(self.token)
        self.secret.chmod(0o600)
        os.environ["TOOLFOLD_TEST_SECRET"] = self.token
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.unix.bind(str(self.folder / "stream"))
        self.unix.listen()
        self.datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.datagrams.bind(str(self.folder / "datagrams"))
        for name in ("stream", "datagrams"):
            (self.folder / name).chmod(0o777)
        self.doors = [self.tcp, self.udp, self.unix, self.datagrams]
        self.abstract_name = "toolfold-test-" + secrets.token_hex(4)
        if sys.platform == "linux":
            self.abstract = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.abstract.bind("\0" + self.abstract_name)
            self.abstract.listen()
            self.doors.append(self.abstract)
        for door in self.doors:
            door.setblocking(False)
        self.victim = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)", self.token], start_new_session=True
        )

    def addresses(self) -> dict[str, Any]:
        """What an attacker knows: where everything is, and nothing that is in it."""
        return {
            "secret": str(self.secret),
            "folder": str(self.folder),
            "tcp": self.tcp.getsockname()[1],
            "udp": self.udp.getsockname()[1],
            "unix": str(self.folder / "stream"),
            "datagrams": str(self.folder / "datagrams"),
            "abstract": self.abstract_name,
            "victim": self.victim.pid,
            "host": os.getpid(),
            "tests": str(Path(__file__).parent),
            "home": str(Path.home()),
        }

    def knocked(self) -> list[str]:
        """Which doors somebody came to."""
        visitors = []
        for door in self.doors:
            with contextlib.suppress(BlockingIOError):
                if door.type == socket.SOCK_DGRAM:
                    visitors.append(f"datagram {door.recv(100)!r}")
                else:
                    door.accept()[0].close()
                    visitors.append(f"connection at {door.getsockname()!r}")
        return visitors

    def assert_whole(self) -> None:
        assert self.knocked() == []
        assert self.victim.poll() is None
        assert self.secret.read_text() == self.token
        assert self.secret.stat().st_mode & 0o777 == 0o600
        assert sorted(each.name for each in self.folder.iterdir()) == ["datagrams", "secret.txt", "stream"]

    def close(self) -> None:
        for door in self.doors:
            door.close()
        self.victim.send_signal(signal.SIGKILL)
        self.victim.wait()
        os.environ.pop("TOOLFOLD_TEST_SECRET", None)


@dataclass(frozen=True)
class Outcome:
    """What the child answered to each piece of code, what confined it, and how it ended."""

    answers: list[dict[str, Any] | None]
    layers: tuple[str, ...]
    exit: Exit

    @property
    def answer(self) -> dict[str, Any] | None:
        return self.answers[0]


class Lab:
    """Runs code in children, confined in one of `WAYS`."""

    def __init__(self, canaries: Canaries) -> None:
        self.canaries = canaries
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._zygotes: dict[tuple[str, ChildLimits], Zygote] = {}

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=60)

    def attack(self, way: str, *codes: str, limits: ChildLimits = QUICK) -> Outcome:
        """Runs each piece of code in one and the same child."""
        return self.do(self._attack(way, codes, limits))

    async def _attack(self, way: str, codes: tuple[str, ...], limits: ChildLimits) -> Outcome:
        key = (way, limits)
        if key not in self._zygotes:
            self._zygotes[key] = Zygote(ENTRY, limits=limits, ready=1 if limits is QUICK else 0, **WAYS[way])
        answers: list[dict[str, Any] | None] = []
        prelude = PRELUDE.format(canary=self.canaries.addresses())
        async with await self._zygotes[key].take() as child:
            for code in codes:
                await child.send(json.dumps({"code": prelude + code}).encode())
                frame = await child.receive()
                answers.append(None if frame is None else json.loads(frame))
            child.close_input()
            outcome = Outcome(answers, child.layers, await child.wait())
        await self._zygotes[key].start()  # its next child is ready: nothing goes on while other tests look
        return outcome

    def close(self) -> None:
        for zygote in self._zygotes.values():
            self.do(zygote.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
