"""Forks a child of the session that looks or evaluates, and keeps a deadline on it.

What a child sends are frames on a pipe of its own, so that nothing it writes can confuse the session. A child that
looks leaves by `os._exit`: no exit handler, no finaliser, nothing of the session runs twice.
"""

import builtins
import gc
import mmap
import os
import resource
import select
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

from toolfold.live.worker.frames import FrameError, FrameReader, write_frame
from toolfold.live.worker.originals import (
    BUILTINS,
    FORK_WARNS,
    SIGCHLD,
    SIGINT,
    SIGKILL,
    SIGNAL_NAMES,
    Attempt,
    fork,
    getpid,
    kill,
    signal_functions,
    waitpid,
)

globals()["__builtins__"] = BUILTINS

_EXTRA_MEMORY_BYTES = 512 * 1024 * 1024
"""What a looking child may use beyond what the session has."""
_CHILD_BYTES_MAX = 1024 * 1024
_RECURSION_LIMIT = 2000
_PARENT_POLL_S = 0.02
"""How often a snapshot looks whether its session still lives."""

_Send = Callable[[dict[str, Any]], None]
_pipe, _read, _close, _dup2 = os.pipe, os.read, os.close, os.dup2
_monotonic = time.monotonic
_poll, _select = select.poll, select.select
_getppid = os.getppid
_sigmask = signal_functions.pthread_sigmask
_sigwait = signal_functions.sigtimedwait
_IGNORE_FILTER = ("ignore", None, DeprecationWarning, None, 0)
_setlimit, _getlimit = resource.setrlimit, resource.getrlimit


class ChildOutcome:
    """What a child sent, and how it ended: `status` is what `waitpid` said, `None` while it lives on."""

    def __init__(self, frames: list[dict[str, Any]], status: int | None, *, timed_out: bool) -> None:
        self.frames, self.status, self.timed_out = frames, status, timed_out

    def ending(self) -> str:
        """How it died, in words."""
        if self.status is None:
            return "ended"
        if os.WIFSIGNALED(self.status):
            number = os.WTERMSIG(self.status)
            return f"was ended by {SIGNAL_NAMES.get(number, f'signal {number}')}"
        return f"left with exit code {os.WEXITSTATUS(self.status)}"


class _ForkWarningsOff:
    """Python warns of forks where there are threads. What that means for a session is written in its manual.

    The list of filters is changed and changed back as it stands: `warnings.catch_warnings` needs the builtins.
    """

    def __enter__(self) -> None:
        with Attempt():
            if FORK_WARNS:
                warnings.filters.insert(0, _IGNORE_FILTER)  # type: ignore[attr-defined]  # it is a list, declared a sequence

    def __exit__(self, *exc_info: object) -> None:
        with Attempt():
            if FORK_WARNS:
                warnings.filters.remove(_IGNORE_FILTER)  # type: ignore[attr-defined]  # as above


def _fork() -> int:
    """Forks, with SIGCHLD held back in the parent: `settle` ends that. Raises whatever keeps the session from it."""
    mask = _sigmask(signal_functions.SIG_BLOCK, {SIGCHLD})
    attempt = Attempt()
    pid = -1
    with _ForkWarningsOff(), attempt:
        pid = fork()
    if pid <= 0:
        _sigmask(signal_functions.SIG_SETMASK, mask)
    if attempt.error is not None and pid < 0:
        raise attempt.error
    return pid


def _restore_sigchld(before: bool) -> None:
    """The session's own handler must not hear of our child. `before`: SIGCHLD was held back by the session itself."""
    _sigwait({SIGCHLD}, 0)
    if not before:
        _sigmask(signal_functions.SIG_UNBLOCK, {SIGCHLD})


def _sigchld_blocked() -> bool:
    return SIGCHLD in _sigmask(signal_functions.SIG_BLOCK, ())


class InspectionChild:
    """A forked child that looks at an object and tells what it sees. `pid` is 0 in the child itself."""

    def __init__(self) -> None:
        self._held_back = _sigchld_blocked()
        self._reading, self._writing = _pipe()
        attempt = Attempt()
        with attempt:
            self.pid = _fork()
            _close(self._reading if self.pid == 0 else self._writing)
        if attempt.error is not None:
            _close(self._reading)
            _close(self._writing)
            raise attempt.error

    def send(self, frame: dict[str, Any]) -> None:
        """In the child."""
        write_frame(self._writing, frame)

    def watch(self, deadline_s: float) -> ChildOutcome:
        """In the parent: everything the child sends until it ends."""
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
        _restore_sigchld(self._held_back)
        return ChildOutcome(frames, status, timed_out=timed_out)


def _reap(pid: int, until: float) -> tuple[int, bool]:
    """Waits for the child's end to the deadline, then ends it. It may have closed its pipe and live on."""
    while True:
        try:
            found, status = waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return 0, False  # the session ignores SIGCHLD: the system reaped it
        if found == pid:
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
    """A fork of the session that stands by while the session evaluates, and takes its place if it dies of that.

    `pid` is 0 in the snapshot itself, once it has taken over.
    """

    def __init__(self) -> None:
        """Raises whatever keeps the session from forking. In the snapshot it returns only when the session is dead."""
        restore = _random_restorer()
        session = getpid()
        self._held_back = _sigchld_blocked()
        self.pid = _fork()
        if self.pid == 0:
            while _getppid() == session:
                _select([], [], [], _PARENT_POLL_S)
            restore()
        elif not self._held_back:
            _sigmask(signal_functions.SIG_UNBLOCK, {SIGCHLD})  # the evaluation may wait for children of its own

    def end(self) -> None:
        """In the session: it went well, and what it did stays."""
        _sigmask(signal_functions.SIG_BLOCK, {SIGCHLD})
        _kill_child(self.pid)
        _restore_sigchld(self._held_back)


def prepare_inspection_child(null: int) -> None:
    """Makes the forked child fit to run a broken object's code: quiet, bounded, with Python's own names in place."""
    gc.disable()
    for descriptor in (0, 1, 2):
        _dup2(null, descriptor)
    for name, value in BUILTINS.items():
        vars(builtins).setdefault(name, value)
    sys.setrecursionlimit(_RECURSION_LIMIT)
    sys.settrace(None)
    sys.setprofile(None)
    signal_functions.signal(SIGINT, signal_functions.SIG_IGN)
    attempt = Attempt()
    with attempt:
        soft, hard = _getlimit(resource.RLIMIT_AS)
        wanted = _address_space() + _EXTRA_MEMORY_BYTES
        if soft == resource.RLIM_INFINITY or wanted < soft:
            _setlimit(resource.RLIMIT_AS, (wanted, hard))


def _address_space() -> int:
    """Bytes of address space in use. Where the system does not tell, the limit below which nothing can be mapped."""
    attempt = Attempt()
    with attempt:
        return _statm(0)
    soft, hard = _getlimit(resource.RLIMIT_AS)
    low, high = 0, 64 * 1024**3 if soft == resource.RLIM_INFINITY else soft
    while high - low > 32 * 1024**2:
        middle = (low + high) // 2
        _setlimit(resource.RLIMIT_AS, (middle, hard))
        attempt = Attempt()
        with attempt:
            mmap.mmap(-1, 4096).close()
        low, high = (middle, high) if attempt.failed else (low, middle)
    _setlimit(resource.RLIMIT_AS, (soft, hard))
    return high


def resident_bytes() -> int:
    """Bytes that the session holds, where the system tells; else its peak."""
    attempt = Attempt()
    with attempt:
        return _statm(1)
    unit = 1 if sys.platform == "darwin" else 1024
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def _statm(field: int) -> int:
    descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    data = _read(descriptor, 200)
    _close(descriptor)
    return int(data.split()[field]) * os.sysconf("SC_PAGE_SIZE")


def thread_count() -> int:
    """Threads of this process, those of libraries included where the system tells."""
    attempt = Attempt()
    with attempt:
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - a path object is a person's to patch
    import _thread

    return 1 + _thread._count()  # noqa: SLF001 - the only count there is without `/proc`


def has_children() -> bool:
    """Whether the session started processes that it may still wait for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _random_restorer() -> Callable[[], None]:
    """`random` seeds itself anew in a forked child; a session that goes on there must not notice."""
    module = sys.modules.get("random")
    source = getattr(module, "_inst", None)
    attempt = Attempt()
    with attempt:
        if source is not None:
            state = source.getstate()
            return lambda: source.setstate(state)
    return lambda: None
