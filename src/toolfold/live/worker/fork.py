"""Forked children of the session: one that inspects an object, and a snapshot that stands by during an evaluation.

What a child sends are frames on a pipe of its own, so that nothing it writes can confuse the session. A child that
inspects leaves by `os._exit`: no exit handler, no finaliser, nothing of the session runs twice.
"""

import builtins
import ctypes
import gc
import mmap
import os
import resource
import select
import sys
import time
import warnings
from _thread import allocate_lock, get_ident
from collections.abc import Callable
from typing import Any

from toolfold.live.worker.frames import FrameError, FrameReader, encode_frame
from toolfold.live.worker.introspection import instance_dict
from toolfold.live.worker.originals import (
    BUILTINS,
    FORK_WARNS,
    SIGCHLD,
    SIGINT,
    SIGKILL,
    SIGNAL_NAMES,
    Attempt,
    exit_process,
    fork,
    getpid,
    kill,
    signal_functions,
    waitpid,
)

globals()["__builtins__"] = BUILTINS

_EXTRA_MEMORY_BYTES = 512 * 1024 * 1024  # what an inspecting child may use beyond what the session has
_CHILD_BYTES_MAX = 1024 * 1024
_RECURSION_LIMIT = 2000
_PARENT_POLL_S = 0.02  # how often a snapshot looks whether its session still lives
_PR_SET_PDEATHSIG = 1
_END_S = 1.0  # how long a fork may take to report itself and to end

_pipe, _read, _write, _close, _dup2 = os.pipe, os.read, os.write, os.close, os.dup2
_monotonic = time.monotonic
_poll, _select = select.poll, select.select
_getppid = os.getppid
_sigmask = signal_functions.pthread_sigmask
_sigwait = signal_functions.sigtimedwait
_IGNORE_FILTER = ("ignore", None, DeprecationWarning, None, 0)
_setlimit, _getlimit = resource.setrlimit, resource.getrlimit
_waitid = os.waitid
_prctl: Any = getattr(ctypes.CDLL(None), "prctl", None)  # on Linux


def exit_text(status: int | None) -> str:
    """A status of `waitpid` in words."""
    if status is None:
        return "ended"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return f"was ended by {SIGNAL_NAMES.get(number, f'signal {number}')}"
    return f"left with exit code {os.WEXITSTATUS(status)}"


class SessionForks:
    """The processes that a session's code forks. They end when `end` is called, and at the latest with the session."""

    ours = False  # whether the fork that happens now is the worker's own

    def __init__(self) -> None:
        self._reading, self._writing = _pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        os.register_at_fork(after_in_child=self._on_forked)

    def _on_forked(self) -> None:
        """In the new process. Below it, this holds again: none outlives the one that forked it."""
        if not SessionForks.ours:
            with Attempt():
                _prctl(_PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
            with Attempt():
                _write(self._writing, getpid().to_bytes(4, "big"))

    def end(self) -> None:
        """Ends what the session has forked; what ended by itself is reaped."""
        blocked_before = _sigchld_blocked()
        _sigmask(signal_functions.SIG_BLOCK, {SIGCHLD})
        until = _monotonic() + _END_S
        with Attempt():  # `ChildProcessError`: there are none, or none any more
            while _monotonic() < until:
                if _waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG) is None:
                    _select([self._reading], [], [], _PARENT_POLL_S)
                    self._kill_reported()
        _restore_sigchld(blocked_before)

    def _kill_reported(self) -> None:
        data = b""
        with Attempt():
            data = _read(self._reading, 65536)
        for at in range(0, len(data) - 3, 4):
            with Attempt():  # a child's child is none here: it ends with its parent
                pid = int.from_bytes(data[at : at + 4], "big")
                _waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                kill(pid, SIGKILL)


def _fork() -> int:
    """Forks, with SIGCHLD blocked in the parent until `_restore_sigchld`. Raises whatever prevents the fork."""
    mask = _sigmask(signal_functions.SIG_BLOCK, {SIGCHLD})
    pid = -1
    SessionForks.ours = True
    # Python warns of forks in a process with threads; what that means for a session is documented. The filters are
    # changed in place, because `warnings.catch_warnings` is written in Python and needs the builtins.
    with Attempt():
        if FORK_WARNS:
            warnings.filters.insert(0, _IGNORE_FILTER)  # type: ignore[attr-defined]  # a list, declared a sequence
    with Attempt() as attempt:
        pid = fork()
    SessionForks.ours = False
    with Attempt():
        if FORK_WARNS:
            warnings.filters.remove(_IGNORE_FILTER)  # type: ignore[attr-defined]  # as above
    if pid <= 0:
        _sigmask(signal_functions.SIG_SETMASK, mask)
    if attempt.error is not None and pid < 0:
        raise attempt.error
    return pid


def _restore_sigchld(blocked_before: bool) -> None:
    """Consumes the signal of the worker's child, which the session's own handler must not see."""
    _sigwait({SIGCHLD}, 0)
    if not blocked_before:
        _sigmask(signal_functions.SIG_UNBLOCK, {SIGCHLD})


def _sigchld_blocked() -> bool:
    return SIGCHLD in _sigmask(signal_functions.SIG_BLOCK, ())


class InspectionChild:
    """A forked child that inspects an object and sends what it reads. `pid` is 0 in the child itself."""

    def __init__(self) -> None:
        self._blocked_before = _sigchld_blocked()
        self._restore_threads = _thread_restorer()
        self._own_pid = 0
        self._reading, self._writing = _pipe()
        with Attempt() as attempt:
            self.pid = _fork()
            _close(self._reading if self.pid == 0 else self._writing)
        if attempt.error is not None:
            _close(self._reading)
            _close(self._writing)
            raise attempt.error

    def prepare(self, null: int) -> None:
        """In the child: makes it fit to run a broken object's code: silent, bounded, with Python's own builtins."""
        gc.disable()
        self._own_pid = getpid()
        with Attempt():
            self._restore_threads()
        for descriptor in (0, 1, 2):
            _dup2(null, descriptor)
        for name, value in BUILTINS.items():
            vars(builtins).setdefault(name, value)
        sys.setrecursionlimit(_RECURSION_LIMIT)
        sys.settrace(None)
        sys.setprofile(None)
        signal_functions.signal(SIGINT, signal_functions.SIG_IGN)
        with Attempt():
            soft, hard = _getlimit(resource.RLIMIT_AS)
            wanted = _address_space() + _EXTRA_MEMORY_BYTES
            if soft == resource.RLIM_INFINITY or wanted < soft:
                _setlimit(resource.RLIMIT_AS, (wanted, hard))

    def send(self, frame: dict[str, Any]) -> None:
        """In the child. One that the inspected object forked off says nothing, and ends here."""
        if getpid() != self._own_pid:
            exit_process(0)
        data = memoryview(encode_frame(frame))
        while data:
            data = data[_write(self._writing, data) :]

    def collect(self, deadline_s: float) -> tuple[list[dict[str, Any]], int, bool]:
        """In the parent: the frames that the child sends until it ends, its status, and whether it timed out."""
        until = _monotonic() + deadline_s
        frames: list[dict[str, Any]] = []
        reader, room = FrameReader(_CHILD_BYTES_MAX), _CHILD_BYTES_MAX
        poller = _poll()
        poller.register(self._reading, select.POLLIN)
        while (left := until - _monotonic()) > 0:
            if not poller.poll(min(left, 0.5) * 1000 + 1):
                continue
            data = _read(self._reading, 65536)
            room -= len(data)
            if not data or room < 0:
                break
            try:
                frames += reader.feed(data)
            except FrameError:
                break
        _close(self._reading)
        status, timed_out = _reap(self.pid, until)
        _restore_sigchld(self._blocked_before)
        return frames, status, timed_out


def _reap(pid: int, until: float) -> tuple[int, bool]:
    """Waits for the child to the deadline, then kills it: it may have closed its pipe and live on."""
    while True:
        try:
            reaped, status = waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return 0, False  # the session ignores SIGCHLD: the system reaped it
        if reaped == pid:
            return status, False
        left = until - _monotonic()
        if left <= 0:
            return _kill_child(pid), True
        _sigwait({SIGCHLD}, min(left, 0.02))


def _kill_child(pid: int) -> int:
    try:
        kill(pid, SIGKILL)
        return waitpid(pid, 0)[1]
    except (ChildProcessError, ProcessLookupError):
        return SIGKILL


class Snapshot:
    """A fork of the session that stands by while the session evaluates, and takes its place if that ends the process.

    `pid` is 0 in the snapshot itself, once it has taken over.
    """

    def __init__(self) -> None:
        """Raises whatever prevents the fork. In the snapshot it returns only when the session is dead."""
        restore_random = _random_restorer()
        session = getpid()
        blocked_before = _sigchld_blocked()
        self.pid = _fork()
        if self.pid == 0:
            while _getppid() == session:
                _select([], [], [], _PARENT_POLL_S)
            restore_random()
        elif not blocked_before:
            _sigmask(signal_functions.SIG_UNBLOCK, {SIGCHLD})  # the evaluation may wait for children of its own

    @staticmethod
    def is_possible(max_bytes: int) -> bool:
        """Whether a fork could take the session's place: no other threads, no children to wait for, not too large."""
        return _thread_count() == 1 and not _has_children() and _resident_bytes() <= max_bytes

    def discard(self) -> None:
        """In the session, after the evaluation: its effects stay, on the signal mask, too."""
        blocked_before = _sigchld_blocked()
        _sigmask(signal_functions.SIG_BLOCK, {SIGCHLD})
        _kill_child(self.pid)
        _restore_sigchld(blocked_before)


def _address_space() -> int:
    """Bytes of address space in use."""
    with Attempt():
        return _statm(0)
    # Without `/proc`: the lowest limit under which a page can still be mapped, by bisection.
    soft, hard = _getlimit(resource.RLIMIT_AS)
    low, high = 0, 64 * 1024**3 if soft == resource.RLIM_INFINITY else soft
    while high - low > 32 * 1024**2:
        middle = (low + high) // 2
        _setlimit(resource.RLIMIT_AS, (middle, hard))
        with Attempt() as attempt:
            mmap.mmap(-1, 4096).close()
        low, high = (middle, high) if attempt.failed else (low, middle)
    _setlimit(resource.RLIMIT_AS, (soft, hard))
    return high


def _resident_bytes() -> int:
    """Memory of the session; its peak where there is no `/proc`."""
    with Attempt():
        return _statm(1)
    unit = 1 if sys.platform == "darwin" else 1024
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def _statm(field: int) -> int:
    descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    data = _read(descriptor, 200)
    _close(descriptor)
    return int(data.split()[field]) * os.sysconf("SC_PAGE_SIZE")


def _thread_count() -> int:
    """Threads of this process, with those of libraries where there is `/proc`."""
    with Attempt():
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - a session may patch `Path`
    import _thread

    return 1 + _thread._count()  # noqa: SLF001 - the only count there is without `/proc`


def _has_children() -> bool:
    """Whether the session started processes that it may still wait for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


class _AliveHandle:
    """Stands for the system's handle of a thread that runs, which a fork marks as done (since Python 3.13)."""

    @staticmethod
    def is_done() -> bool:
        return False


def _thread_restorer() -> Callable[[], None]:
    """Python marks all other threads as ended in a forked child; there they shall look as they do in the session."""
    module = sys.modules.get("threading")
    active: dict[Any, Any] = {}
    states: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
    with Attempt():
        active = dict(vars(module)["_active"])
        own = [instance_dict(thread) for ident, thread in active.items() if ident != get_ident()]
        states = [(names, dict(names)) for names in own if names is not None]

    def restore() -> None:
        for names, before in states:
            names.update(before)
            if "_handle" in before:
                names["_handle"] = _AliveHandle()
            elif before.get("_tstate_lock") is not None:  # up to Python 3.12: held as long as the thread runs
                names["_tstate_lock"] = lock = allocate_lock()
                lock.acquire()
        if states:
            vars(module)["_active"].update(active)

    return restore


def _random_restorer() -> Callable[[], None]:
    """`random` seeds itself anew in a forked child; a session that continues there must not notice."""
    module = sys.modules.get("random")
    source = getattr(module, "_inst", None)
    with Attempt():
        if source is not None:
            state = source.getstate()
            return lambda: source.setstate(state)
    return lambda: None
