"""Inside a fresh fork: the shim that watches one child, and the child itself up to its entry. Standard library only.

The shim is the child's parent and, where there is a pid namespace, its pid 1. It runs nothing of the script: it waits,
ends whatever the child left behind, and tells the host how the child ended. The child gives up everything, says that it
is ready, and calls the entry. Above: `zygote_main.py`. Below: `confinement.py`.
"""

import contextlib
import os
import resource
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn

from toolfold.sandbox import confinement
from toolfold.sandbox import control_messages as control
from toolfold.sandbox.exit_status import FAILED, FINISHED, OUT_OF_MEMORY, UNCONFINED
from toolfold.sandbox.frames import CHANNEL_FD
from toolfold.sandbox.isolation import ZygoteDied

_STATUS_FD = 4
_EVENTS_FD = 5
_MAX_FD = 1 << 20
_Entry = Callable[[socket.socket], object]


def run_shim(entry: _Entry, descriptors: list[int], place: Any, message: dict[str, Any]) -> NoReturn:
    """Never returns. `descriptors` are the channel, standard output, standard error and the status socket."""
    code = FAILED
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        status = socket.socket(fileno=os.dup(descriptors[3]))
        try:
            place.join_group(message)
            home, folder = place.prepare_home(message)
        except OSError as error:
            control.send(status, {"event": "unconfined", "why": f"its surroundings could not be made: {error}"})
            os._exit(UNCONFINED)
        if folder is not None:
            control.send(status, {"event": "scratch"}, [folder])
        status.close()
        _arrange_descriptors(descriptors, place.events)
        pid = os.fork()
        if pid == 0:
            _run_child(entry, place, message, home)
        os.closerange(0, _STATUS_FD)
        _watch(pid, socket.socket(fileno=_STATUS_FD), place)
        code = 0
    finally:
        os._exit(code)


def _arrange_descriptors(descriptors: list[int], events: int | None) -> None:
    """Puts the descriptors at 3, 1, 2 and 4, nothing at 0, what only the shim reads at 5, and closes all others."""
    high = [os.dup2(each, 100 + number, inheritable=False) for number, each in enumerate(descriptors)]
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for source, target in zip(high, (CHANNEL_FD, 1, 2, _STATUS_FD), strict=True):
        os.dup2(source, target, inheritable=target in (1, 2))
    first = _STATUS_FD + 1
    if events is not None:
        os.dup2(events, _EVENTS_FD, inheritable=False)
        first = _EVENTS_FD + 1
    os.closerange(first, _MAX_FD)


def _watch(pid: int, status: socket.socket, place: Any) -> None:
    """Waits for the child or for the host to close the line, ends what the child started, tells the host."""
    ended = None
    with contextlib.suppress(ZygoteDied):
        place.settle_shim()
        ended = _wait_for_end(pid, status)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if ended is None:
        os.kill(pid, signal.SIGKILL)  # not yet waited for, so the number is still its own
        os.waitpid(pid, 0)
    place.end_the_rest()
    if ended is not None:
        _, code, usage = ended
        told = {"status": code, "cpu": usage.ru_utime + usage.ru_stime, "starved": place.starved(_EVENTS_FD)}
        with contextlib.suppress(OSError):
            control.send(status, {"event": "ended", **told})


def _wait_for_end(pid: int, status: socket.socket) -> tuple[int, int, resource.struct_rusage] | None:
    """The end of the child; nothing if the host wants it ended first."""
    poll = select.poll()
    poll.register(status, select.POLLIN)
    pause = None
    try:
        poll.register(os.pidfd_open(pid), select.POLLIN)
    except (AttributeError, OSError):
        pause = 20  # milliseconds; no pidfd here, so look again and again
    while True:
        ready = [descriptor for descriptor, _ in poll.poll(pause)]
        ended = os.wait4(pid, os.WNOHANG)
        if ended[0]:
            return ended
        if status.fileno() in ready:
            return None


def _run_child(entry: _Entry, place: Any, message: dict[str, Any], home: str) -> NoReturn:
    """Confines itself, reports, runs the entry and leaves without any of Python's farewells."""
    code = FAILED
    try:
        os.setpgid(0, 0)
        os.closerange(_EVENTS_FD, _EVENTS_FD + 1)
        status = socket.socket(fileno=_STATUS_FD)
        os.chdir(home)
        _reset_environment(home)
        try:
            layers = confinement.confine(place, message, home)
        except confinement.Unconfined as error:
            control.send(status, {"event": "unconfined", "why": str(error)})
            os._exit(UNCONFINED)
        control.send(status, {"event": "ready", "layers": layers, "alone": place.apart})
        status.close()
        code = _run_entry(entry)
    finally:
        os._exit(code)


def _reset_environment(home: str) -> None:
    os.environ.clear()
    os.environ.update({"HOME": home, "TMPDIR": home, "LANG": "C.UTF-8", "PATH": ""})
    sys.argv = [""]
    import tempfile

    tempfile.tempdir = None


def _run_entry(entry: _Entry) -> int:
    """Calls the entry; the number says to the shim how it went."""
    with _ExitGuard() as leaving:
        entry(socket.socket(fileno=CHANNEL_FD))
    _flush()
    return leaving.code


class _ExitGuard:
    """The outermost frame of a child: nothing gets past it, and each way out has a number."""

    code = FINISHED

    def __enter__(self) -> "_ExitGuard":
        return self

    def __exit__(self, _: object, error: BaseException | None, trace: TracebackType | None) -> bool:
        if isinstance(error, SystemExit):
            self.code = _exit_code(error.code)
        elif isinstance(error, MemoryError):
            self.code = OUT_OF_MEMORY
        elif error is not None:
            self.code = FAILED
            _write_stderr("".join(traceback.format_exception(error)))
        return True


def _exit_code(code: object) -> int:
    """What `sys.exit` was given, as the interpreter would take it."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    _write_stderr(f"{code}\n")
    return FAILED


def _write_stderr(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, text.encode(errors="backslashreplace"))


def _flush() -> None:
    """What was printed gets out, unless the script broke its own streams or they block for good."""

    def flush() -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()

    try:
        helper = threading.Thread(target=flush, daemon=True)
        helper.start()
        helper.join(1.0)
    except (RuntimeError, MemoryError):
        flush()
