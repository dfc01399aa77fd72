"""Inside a fresh fork: the shim that watches one child, and the child itself up to its entry. Standard library only.

The shim is the child's parent and, where there is a pid namespace, its pid 1. It runs nothing of the script: it waits,
kills whatever the child left behind, and reports the end to the host. The child gives up everything, says that it is
ready, and calls the entry. Above: `zygote_main.py`. Below: `confinement.py`.
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
from typing import Any, NoReturn

from toolfold.sandbox import confinement
from toolfold.sandbox.control_messages import send
from toolfold.sandbox.exit_status import FAILED, FINISHED, OUT_OF_MEMORY, UNCONFINED
from toolfold.sandbox.frames import CHANNEL_FD
from toolfold.sandbox.isolation import ZygoteDied

_STATUS_FD = 4
_EVENTS_FD = 5
_MAX_FD = 1 << 20
_Entry = Callable[[socket.socket], object]


def run_shim(entry: _Entry, descriptors: list[int], isolation: Any, message: dict[str, Any]) -> NoReturn:
    """Never returns. `descriptors` are the channel, standard output, standard error and the status socket."""
    code = FAILED
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        status = socket.socket(fileno=os.dup(descriptors[3]))
        try:
            isolation.join_cgroup(message)
            home, folder = isolation.prepare_home(message)
        except OSError as error:
            send(status, {"event": "unconfined", "why": f"its surroundings could not be made: {error}"})
            os._exit(UNCONFINED)
        if folder is not None:
            send(status, {"event": "scratch"}, [folder])
        status.close()
        _arrange_descriptors(descriptors, isolation.memory_events)
        pid = os.fork()
        if pid == 0:
            _run_child(entry, isolation, message, home)
        os.closerange(0, _STATUS_FD)
        _watch(pid, socket.socket(fileno=_STATUS_FD), isolation)
        code = 0
    finally:
        os._exit(code)


def _arrange_descriptors(descriptors: list[int], events: int | None) -> None:
    """Puts the descriptors at 3, 1, 2 and 4, `/dev/null` at 0, what only the shim reads at 5, and closes the rest."""
    # First out of the way, so that no target is overwritten before it was moved.
    high = [os.dup2(descriptor, 100 + number, inheritable=False) for number, descriptor in enumerate(descriptors)]
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for source, target in zip(high, (CHANNEL_FD, 1, 2, _STATUS_FD), strict=True):
        os.dup2(source, target, inheritable=target in (1, 2))
    first = _STATUS_FD + 1
    if events is not None:
        os.dup2(events, _EVENTS_FD, inheritable=False)
        first = _EVENTS_FD + 1
    os.closerange(first, _MAX_FD)


def _watch(pid: int, status: socket.socket, isolation: Any) -> None:
    """Waits for the child or for the host to hang up, kills what the child started, reports to the host."""
    ended = None
    with contextlib.suppress(ZygoteDied):
        isolation.enter_shim()
        ended = _wait_for_end(pid, status)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if ended is None:
        os.kill(pid, signal.SIGKILL)  # not yet waited for, so the number is still its own
        os.waitpid(pid, 0)
    isolation.kill_descendants()
    if ended is not None:
        _, code, usage = ended
        report = {
            "status": code,
            "cpu": usage.ru_utime + usage.ru_stime,
            "oom_killed": isolation.oom_killed(_EVENTS_FD),
        }
        with contextlib.suppress(OSError):
            send(status, {"event": "ended", **report})


def _wait_for_end(pid: int, status: socket.socket) -> tuple[int, int, resource.struct_rusage] | None:
    """Returns how the child ended, `None` if the host hangs up first."""
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


def _run_child(entry: _Entry, isolation: Any, message: dict[str, Any], home: str) -> NoReturn:
    """Confines itself, reports, runs the entry and leaves without any of Python's exit handlers."""
    code = FAILED
    try:
        os.setpgid(0, 0)
        os.closerange(_EVENTS_FD, _EVENTS_FD + 1)
        status = socket.socket(fileno=_STATUS_FD)
        os.chdir(home)
        _reset_environment(home)
        try:
            layers = confinement.confine(isolation, message, home)
        except confinement.Unconfined as error:
            send(status, {"event": "unconfined", "why": str(error)})
            os._exit(UNCONFINED)
        ready = {"layers": layers, "alone": isolation.namespaced, "uncounted": isolation.uncounted}
        send(status, {"event": "ready", **ready})
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
    """Calls the entry; the exit code says to the host how it went."""
    code = FINISHED
    try:
        entry(socket.socket(fileno=CHANNEL_FD))
    except SystemExit as leaving:
        code = _exit_code(leaving.code)
    except MemoryError:
        code = OUT_OF_MEMORY
    except BaseException as error:
        _write_stderr("".join(traceback.format_exception(error)))
        _flush()
        raise  # as far as `_run_child`, which exits
    _flush()
    return code


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
    """Flushes what was printed, unless the script broke its own streams or they block for good."""

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
