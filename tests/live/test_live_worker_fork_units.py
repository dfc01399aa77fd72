"""Forks without forking: the system calls are replaced, and what the worker makes of their answers is checked."""

import builtins
import os
import random
import resource
import sys
import time
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from toolfold.live.worker import fork, session_process
from toolfold.live.worker.frames import encode_frame
from toolfold.live.worker.originals import SIGCHLD, SIGINT, SIGKILL, signal_functions

KIND = {"type": {"name": "X"}, "kind": "object"}


@pytest.mark.parametrize(
    ("frames", "status", "timed_out", "expected"),
    [
        ([KIND, {"whole": True}], 0, False, {"kind": "object"}),
        ([KIND, {"at": "len_error"}], SIGKILL, False, {"len_error": "the inspecting process was ended by SIGKILL"}),
        ([KIND], 3 << 8, False, {"repr_error": "the inspecting process left with exit code 3"}),
        ([KIND, {"at": "dir_error"}], SIGKILL, True, {"dir_error": "no answer within 2 s"}),
    ],
)
def test_what_a_child_sent_before_it_ended_stays_true(
    frames: list[dict[str, Any]], status: int, timed_out: bool, expected: dict[str, Any]
) -> None:
    answer = session_process._inspection_answer(frames, status, timed_out, 2.0)
    assert answer["ok"] is True
    assert expected.items() <= answer["result"].items()


@pytest.mark.parametrize(
    ("frames", "timed_out", "code"),
    [
        ([{"error": {"code": "python_exception"}}], False, "python_exception"),
        ([], True, "inspect_timeout"),
        ([KIND, {"at": "repr_error"}], True, "inspect_timeout"),
        ([], False, "eval_crashed"),
    ],
)
def test_a_child_that_told_too_little_is_an_error(frames: list[dict[str, Any]], timed_out: bool, code: str) -> None:
    answer = session_process._inspection_answer(frames, SIGKILL, timed_out, 2.0)
    assert answer["ok"] is False
    assert answer["error"]["code"] == code
    assert ("partial" in answer["error"]) == (timed_out and bool(frames))


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (None, "ended"),
        (SIGKILL, "was ended by SIGKILL"),
        (50, "was ended by signal 50"),
        (0, "left with exit code 0"),
        (7 << 8, "left with exit code 7"),
    ],
)
def test_a_status_is_put_in_words(status: int | None, text: str) -> None:
    assert fork.exit_text(status) == text


class System:
    """Stands for the kernel: the mask of signals, the children, and what was asked of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.masked: set[int] = set()
        self.forked: Any = 77
        self.killed: list[tuple[int, int]] = []
        self.waits: list[Any] = []
        self.consumed = 0
        monkeypatch.setattr(fork, "_sigmask", self.mask)
        monkeypatch.setattr(fork, "_sigwait", self.wait_signal)
        monkeypatch.setattr(fork, "fork", lambda: self.raised(self.forked))
        monkeypatch.setattr(fork, "kill", lambda pid, number: self.killed.append((pid, number)))
        monkeypatch.setattr(fork, "waitpid", lambda pid, flags: self.raised(self.waits.pop(0)))

    def raised(self, answer: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def mask(self, how: int, signals: Any) -> set[int]:
        before = set(self.masked)
        kinds = signal_functions
        if how == kinds.SIG_BLOCK:
            self.masked |= set(signals)
        elif how == kinds.SIG_UNBLOCK:
            self.masked -= set(signals)
        else:
            self.masked = set(signals)
        return before

    def wait_signal(self, signals: set[int], seconds: float) -> None:
        assert signals == {SIGCHLD}
        self.consumed += 1


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    return System(monkeypatch)


@pytest.mark.parametrize("warns", [True, False])
@pytest.mark.parametrize(("answer", "masked"), [(77, {SIGCHLD}), (0, set())])
def test_a_fork_blocks_the_childs_signal_in_the_parent_alone(
    system: System, monkeypatch: pytest.MonkeyPatch, warns: bool, answer: int, masked: set[int]
) -> None:
    filters = list(warnings.filters)
    monkeypatch.setattr(fork, "FORK_WARNS", warns)
    system.forked = answer
    assert fork._fork() == answer
    assert system.masked == masked
    assert list(warnings.filters) == filters


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names alone


def test_a_fork_that_fails_leaves_no_mask_and_no_pipe_behind(system: System) -> None:
    system.forked = BlockingIOError("no more processes")
    before = open_descriptors()
    with pytest.raises(BlockingIOError):
        fork.InspectionChild()
    assert system.masked == set()
    assert open_descriptors() == before


def collected(system: System, data: bytes, deadline: float = 5.0) -> tuple[list[dict[str, Any]], int, bool]:
    """What a parent collects from a child that wrote these bytes and closed its pipe."""
    child = fork.InspectionChild()
    assert child.pid == 77
    os.close(child._reading)
    child._reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    return child.collect(deadline)


def test_a_parent_collects_frames_until_the_child_ends(system: System) -> None:
    system.waits = [(0, 0), (77, 3 << 8)]
    data = encode_frame({"a": 1}) + encode_frame({"b": 2}) + b"\0\0"
    assert collected(system, data) == ([{"a": 1}, {"b": 2}], 3 << 8, False)
    assert system.masked == set()
    assert system.consumed == 2


def test_a_child_that_sends_no_frames_is_not_believed(system: System) -> None:
    system.waits = [(77, 0)]
    assert collected(system, b"\xff\xff\xff\xff no frame") == ([], 0, False)


def test_a_child_that_sends_too_much_is_cut_off(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork, "_CHILD_BYTES_MAX", 10)
    system.waits = [(77, 0)]
    assert collected(system, encode_frame({"a": "long enough"})) == ([], 0, False)


def test_a_silent_child_is_killed_at_the_deadline(system: System) -> None:
    child = fork.InspectionChild()
    os.close(child._reading)
    child._reading, writing = os.pipe()
    system.waits = [(0, 0), (77, SIGKILL)]
    assert child.collect(0.01) == ([], SIGKILL, True)
    os.close(writing)
    assert system.killed == [(77, SIGKILL)]


def test_a_signal_that_the_session_blocked_itself_stays_blocked(system: System) -> None:
    system.masked = {SIGCHLD}
    system.waits = [(77, 0)]
    collected(system, b"")
    assert system.masked == {SIGCHLD}


def test_a_child_that_the_system_reaped_has_no_status(system: System) -> None:
    system.waits = [ChildProcessError()]
    assert fork._reap(77, time.monotonic() + 5) == (0, False)
    system.waits = [ChildProcessError()]
    assert fork._kill_child(77) == SIGKILL


def test_a_child_sends_frames_on_its_pipe(system: System) -> None:
    system.forked = 0
    child = fork.InspectionChild()
    reading, writing = os.pipe()
    os.close(child._writing)
    child._writing = writing
    child.send({"repr": "x" * 100})
    os.close(writing)
    assert os.read(reading, 1000) == encode_frame({"repr": "x" * 100})
    os.close(reading)


@pytest.mark.parametrize(
    ("soft", "limited"), [(resource.RLIM_INFINITY, True), (2**60, True), (1, False)], ids=["none", "wide", "tight"]
)
def test_a_child_is_made_silent_and_bounded(
    system: System, monkeypatch: pytest.MonkeyPatch, soft: int, limited: bool
) -> None:
    calls: list[tuple[Any, ...]] = []

    def noting(name: str) -> Callable[..., None]:
        return lambda *arguments: calls.append((name, *arguments))

    names = ("setrecursionlimit", "settrace", "setprofile")
    signals = types.SimpleNamespace(signal=noting("signal"), SIG_IGN="ignored")
    monkeypatch.setattr(fork, "gc", types.SimpleNamespace(disable=noting("gc.disable")))
    monkeypatch.setattr(fork, "sys", types.SimpleNamespace(**{name: noting(name) for name in names}))
    monkeypatch.setattr(fork, "_dup2", noting("dup2"))
    monkeypatch.setattr(fork, "_getlimit", lambda _: (soft, 2**62))
    monkeypatch.setattr(fork, "_setlimit", noting("setlimit"))
    monkeypatch.setattr(fork, "_address_space", lambda: 1000)
    child = fork.InspectionChild()
    os.close(child._reading)
    monkeypatch.setattr(fork, "signal_functions", signals)
    monkeypatch.delitem(vars(builtins), "aiter")
    child.prepare(9)
    assert "aiter" in vars(builtins)
    assert calls[:7] == [
        *(("gc.disable",), ("dup2", 9, 0), ("dup2", 9, 1), ("dup2", 9, 2), ("setrecursionlimit", 2000)),
        *(("settrace", None), ("setprofile", None)),
    ]
    assert calls[7] == ("signal", SIGINT, "ignored")
    bound = [("setlimit", resource.RLIMIT_AS, (1000 + 512 * 1024 * 1024, 2**62))]
    assert calls[8:] == (bound if limited else [])


@pytest.mark.parametrize("blocked", [set(), {SIGCHLD}])
def test_a_snapshot_is_killed_after_the_evaluation_and_the_mask_is_as_before(system: System, blocked: set[int]) -> None:
    system.masked = set(blocked)
    snapshot = fork.Snapshot()
    assert system.masked == blocked
    system.waits = [(77, SIGKILL)]
    snapshot.discard()
    assert system.killed == [(77, SIGKILL)]
    assert system.masked == blocked


def test_a_snapshot_waits_for_the_death_of_its_session(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    parents = [os.getpid(), os.getpid(), 1]
    naps: list[float] = []
    system.forked = 0
    monkeypatch.setattr(fork, "_getppid", lambda: parents.pop(0))
    monkeypatch.setattr(fork, "_select", lambda *arguments: naps.append(arguments[3]))
    assert fork.Snapshot().pid == 0
    assert naps == [0.02, 0.02]


def test_chance_continues_in_a_snapshot_where_it_stood(monkeypatch: pytest.MonkeyPatch) -> None:
    state = random.getstate()
    restore = fork._random_restorer()
    expected = random.random()
    random.seed(1)
    restore()
    assert random.random() == expected
    random.setstate(state)
    monkeypatch.delitem(sys.modules, "random")
    fork._random_restorer()()
    monkeypatch.setitem(sys.modules, "random", types.SimpleNamespace(_inst=object()))
    fork._random_restorer()()


@pytest.mark.parametrize(
    ("threads", "children", "resident", "possible"),
    [(1, False, 10, True), (2, False, 10, False), (1, True, 10, False), (1, False, 11, False)],
)
def test_a_snapshot_needs_one_thread_no_children_and_little_memory(
    monkeypatch: pytest.MonkeyPatch, threads: int, children: bool, resident: int, possible: bool
) -> None:
    monkeypatch.setattr(fork, "_thread_count", lambda: threads)
    monkeypatch.setattr(fork, "_has_children", lambda: children)
    monkeypatch.setattr(fork, "_resident_bytes", lambda: resident)
    assert fork.can_snapshot(10) is possible


def test_children_are_seen_without_reaping_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: Any) -> None:
        raise ChildProcessError

    monkeypatch.setattr(os, "waitid", lambda *_: None)
    assert fork._has_children() is True
    monkeypatch.setattr(os, "waitid", none_left)
    assert fork._has_children() is False


def test_memory_and_threads_are_measured_with_and_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fork._thread_count() >= 1
    assert 2**20 < fork._resident_bytes() < fork._address_space()

    def missing(*_: Any) -> Any:
        raise FileNotFoundError

    monkeypatch.setattr(fork, "_statm", missing)
    monkeypatch.setattr(os, "listdir", missing)
    assert fork._thread_count() >= 1
    peak = fork._resident_bytes()
    assert peak > 2**20
    monkeypatch.setattr(fork, "sys", types.SimpleNamespace(platform="darwin"))
    assert fork._resident_bytes() <= peak


@pytest.mark.parametrize("soft", [resource.RLIM_INFINITY, 8 * 1024**3])
def test_without_proc_the_address_space_is_found_by_bisection(monkeypatch: pytest.MonkeyPatch, soft: int) -> None:
    in_use = 3 * 1024**3
    limits: list[tuple[int, int]] = []

    def missing(_: int) -> int:
        raise FileNotFoundError

    def map_page(*_: int) -> Any:
        if limits[-1][0] < in_use:
            raise OSError("no room")
        return types.SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(fork, "_statm", missing)
    monkeypatch.setattr(fork, "_getlimit", lambda _: (soft, 2**62))
    monkeypatch.setattr(fork, "_setlimit", lambda _, pair: limits.append(pair))
    monkeypatch.setattr(fork, "mmap", types.SimpleNamespace(mmap=map_page))
    assert in_use <= fork._address_space() <= in_use + 32 * 1024**2
    assert limits[-1] == (soft, 2**62)
