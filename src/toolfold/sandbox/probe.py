"""Real attacks on a real child: what confines children on this machine, and whether it holds.

`execute` is an entry that runs whatever source it is sent; the attack tests use it, too. `probe` runs a short list of
attacks against canaries of its own. Above: `toolfold doctor`. Below: `zygote.py`.
"""

import contextlib
import json
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

from msgspec import Struct

from toolfold.sandbox.base import MIB, ChildLimits
from toolfold.sandbox.child import REMEDY
from toolfold.sandbox.frames import read_frame, write_frame

__all__ = ["Confinement", "_AttackResult", "probe"]

_FRAME_BYTES = 64 * 1024 * 1024
_ENTRY = "toolfold.sandbox.probe:execute"
_LIMITS = ChildLimits(wall_s=10, memory_bytes=256 * MIB, scratch_bytes=4 * MIB, scratch_files=100, threads=16)

_ATTACKS: tuple[tuple[str, str], ...] = (
    ("read a secret file of the same user", "result = open(canary['secret']).read()"),
    ("write outside its folder", "result = open(canary['folder'] + '/new', 'w').write('x')"),
    ("change the mode of a file", "os.chmod(canary['secret'], 0o777); result = 1"),
    ("read the host's environment", "result = open(f'/proc/{canary[\"host\"]}/environ').read()"),
    ("connect over TCP", "socket.create_connection(('127.0.0.1', canary['tcp']), 2); result = 1"),
    (
        "send over UDP",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', canary['tcp'])); result = 1",
    ),
    ("connect to a socket by its path", "socket.socket(socket.AF_UNIX).connect(canary['unix']); result = 1"),
    ("signal the host", "os.kill(canary['host'], 0); result = 1"),
    ("start a program", "os.execv('/bin/sh', ['sh', '-c', 'true'])"),
    ("fork", "result = os.fork() or os._exit(0)"),
    ("make a namespace", "result = ctypes.CDLL(None).unshare(0x10000000) + 1"),
    (
        "start 1,000 threads",
        "import threading\nhold = threading.Event()\n"
        "for result in range(1000): threading.Thread(target=hold.wait, daemon=True).start()",
    ),
    ("take 4 GB of memory", "result = len([bytearray(2**20) for _ in range(4096)])"),
    ("fill the disk", "for result in range(10**4): open(str(result), 'wb').write(bytes(2**17))"),
)
# What an attack is defeated by. Anything else, such as MemoryError, ends its process.
_ORDINARY_ERRORS = (
    *(ArithmeticError, AssertionError, AttributeError, EOFError, ImportError, LookupError, NameError, OSError),
    *(RuntimeError, SyntaxError, TypeError, ValueError),
)
_PRELUDE = "import ctypes, os, socket, sys\ncanary = {canary!r}\n"


class _AttackResult(Struct, frozen=True):
    """One attack. `outcome` is what stopped it, in the words of the system."""

    name: str
    held: bool
    outcome: str


class Confinement(Struct, frozen=True):
    """What confines children here. `missing` are layers that could not be had, and why. Without `layers`, `refusal` and
    `next_action` say why and what to do."""

    layers: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    attacks: tuple[_AttackResult, ...] = ()
    refusal: str = ""
    next_action: str = ""

    @property
    def holds(self) -> bool:
        return bool(self.layers) and all(attack.held for attack in self.attacks)


def execute(channel: socket.socket) -> None:
    """Runs each frame `{"code": …}` and answers what it left in `result`, or the error it raised."""
    while (frame := read_frame(channel, _FRAME_BYTES)) is not None:
        names: dict[str, object] = {"channel": channel}
        try:
            exec(json.loads(frame)["code"], names)  # noqa: S102 - this is what a sandbox is for
            answer: dict[str, object] = {"result": names.get("result")}
        except _ORDINARY_ERRORS as error:
            answer = {"error": type(error).__name__, "errno": getattr(error, "errno", None), "text": str(error)}
        write_frame(channel, json.dumps(answer, default=str).encode())


async def probe(*, namespaces: bool = True) -> Confinement:
    """Runs every attack for real, in a second or so, and leaves nothing. `namespaces=False` tries the rest alone."""
    from toolfold.errors import SandboxError
    from toolfold.sandbox.zygote import Zygote

    with contextlib.ExitStack() as stack:
        canary = _canaries(stack)
        zygote = Zygote(_ENTRY, limits=_LIMITS, ready=1, namespaces=namespaces)
        try:
            async with zygote:
                results = [await _run_attack(zygote, name, code, canary) for name, code in _ATTACKS]
                async with await zygote.take() as child:
                    return Confinement(child.layers, zygote.problems, tuple(results))
        except SandboxError as error:
            # Whoever reads this has asked the doctor.
            next_action = REMEDY if "toolfold doctor" in error.next_action else error.next_action
            return Confinement(missing=zygote.problems, refusal=error.message, next_action=next_action)


def _canaries(stack: contextlib.ExitStack) -> dict[str, Any]:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="toolfold-canary-"))
    secret, path = Path(folder, "secret"), f"{folder}/socket"
    secret.write_text("a secret", encoding="utf-8")
    tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    unix = stack.enter_context(socket.socket(socket.AF_UNIX))
    unix.bind(path)
    unix.listen()
    return {"secret": str(secret), "folder": folder, "unix": path, "tcp": tcp.getsockname()[1], "host": os.getpid()}


async def _run_attack(zygote: Any, name: str, code: str, canary: dict[str, Any]) -> _AttackResult:
    async with await zygote.take() as child:
        await child.send(json.dumps({"code": _PRELUDE.format(canary=canary) + code}).encode())
        frame = await child.receive()
        child.close_input()
        end = await child.wait()
    if frame is None:
        return _AttackResult(name, end.ending != "finished", f"its process ended: {end.ending}")
    answer = json.loads(frame)
    if "error" in answer:
        return _AttackResult(name, True, answer["text"] or answer["error"])
    return _AttackResult(name, not answer["result"], "nothing gained" if not answer["result"] else "it worked")
