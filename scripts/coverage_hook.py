"""Started in every interpreter by `run_coverage.py`: measures this process and adds what it saw to the table.

The table is a file of 8-byte cells that all processes map, behind the names of the sources. A branch is one number
(file, from, to) at the place that its hash says, or at the next free one. Writing one twice changes nothing, and two
processes rarely want one cell at the same moment, so no lock is needed.

PYTEST_DONT_REWRITE: it is loaded long before it is named as a plugin.
"""

import atexit
import mmap
import os
import sys
from collections.abc import Iterator
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120 - pathlib costs each process 5 ms
SOURCE = os.path.join(ROOT, "src", "toolfold")  # noqa: PTH118
TABLE = os.path.join(ROOT, ".coverage.table")  # noqa: PTH118
HEAD = 1 << 18  # the names of the sources, one a line, padded with line ends
CELLS = 1 << 19
LINE_BITS = 20
OFFSET = 1 << (LINE_BITS - 1)
# How coverage's tracer writes two lines into one number, and where their signs are.
PAIR_BITS = 28
PAIR_MASK = (1 << PAIR_BITS) - 1
START_NEGATIVE, END_NEGATIVE = 1 << 56, 1 << 57


def make_table(names: list[str]) -> None:
    """An empty table that knows the sources: their numbers are the same in all processes."""
    head = "\n".join(names).encode()
    if len(head) > HEAD:
        raise ValueError(f"the names of the sources take {len(head)} bytes; make HEAD larger than {HEAD}")
    with open(TABLE, "wb") as table:  # noqa: PTH123
        table.write(head.ljust(HEAD, b"\n"))
        table.truncate(HEAD + 8 * CELLS)


def read_table() -> Iterator[tuple[str, int, int]]:
    """What all processes together took: file, from, to."""
    mask = (1 << LINE_BITS) - 1
    with open(TABLE, "rb") as table:  # noqa: PTH123
        names = table.read(HEAD).decode().split("\n")
        for value in memoryview(table.read()).cast("Q"):
            if value:
                start, end = (value >> LINE_BITS & mask) - OFFSET, (value & mask) - OFFSET
                yield names[(value >> (2 * LINE_BITS)) - 1], start, end


def packed(file: int, pair: int) -> int:
    """One number, never 0, from the tracer's: it counts entries and exits of functions as lines below zero."""
    start = -(pair & PAIR_MASK) if pair & START_NEGATIVE else pair & PAIR_MASK
    end = -(pair >> PAIR_BITS & PAIR_MASK) if pair & END_NEGATIVE else pair >> PAIR_BITS & PAIR_MASK
    return (file + 1) << (2 * LINE_BITS) | (start + OFFSET) << LINE_BITS | (end + OFFSET)


def tracer_module() -> Any:
    """Coverage's tracer in C without the package around it, which takes a tenth of a second to import."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    package = PathFinder.find_spec("coverage")
    spec = PathFinder.find_spec("coverage.tracer", package.submodule_search_locations) if package else None
    if spec is None or spec.loader is None:
        raise ImportError("coverage has no tracer in C here: install it from a wheel")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Hook:
    """The measurement of this process."""

    def __init__(self) -> None:
        # A process that was started with closed standard streams would get the table as one of them, and print into it.
        held = [os.open(os.devnull, os.O_RDWR)]
        while held[-1] < 3:
            held.append(os.open(os.devnull, os.O_RDWR))
        with open(TABLE, "r+b") as table:  # noqa: PTH123
            self._table = mmap.mmap(table.fileno(), 0)
        for descriptor in held:
            os.close(descriptor)
        self._cells = memoryview(self._table)[HEAD:].cast("Q")
        names = self._table[:HEAD].decode().rstrip("\n").split("\n")
        self._numbers = {name: number for number, name in enumerate(names)}
        self._module = tracer_module()
        self._data: dict[str, set[int]] = {}
        self._dispositions: dict[str, Any] = {}
        self._tracers: list[Any] = []
        self._leave = os._exit

    def start(self) -> None:
        import threading

        tracer = self._trace()
        threading.settrace(self._trace_thread)
        atexit.register(self.save)
        os._exit = self.leave  # type: ignore[assignment]
        os.register_at_fork(after_in_child=self._forget)
        # A live session takes every tracer off the children that look into it, and puts a person's own back.
        set_trace, get_trace = sys.settrace, sys.gettrace
        sys.settrace = lambda function: _insist(set_trace, tracer if function is None else function)
        sys.gettrace = lambda: None if get_trace() is tracer else get_trace()

    def leave(self, status: int) -> None:
        self.save()
        self._leave(status)

    def save(self) -> None:
        try:
            for name, pairs in self._data.copy().items():
                number = self._numbers[name]
                for pair in pairs.copy():
                    self._put(packed(number, pair))
        except BaseException:  # noqa: BLE001 - whatever is left of a process must not change how it ends
            return

    def _trace(self) -> Any:
        """Traces this thread."""
        tracer = self._module.CTracer()
        tracer.data = self._data
        tracer.trace_arcs = True
        tracer.should_trace = self._disposition
        tracer.should_trace_cache = self._dispositions
        tracer.lock_data = tracer.unlock_data = lambda: None  # `save` works on copies
        # What it calls only for coverage's plugins and contexts must be there all the same.
        tracer.warn = tracer.check_include = tracer.switch_context = tracer.disable_plugin = print
        tracer.concur_id_func = tracer.should_start_context = None
        tracer.file_tracers = {}
        tracer.start()
        self._tracers.append(tracer)  # one that is freed ends the tracing of whichever thread frees it
        return tracer

    def _trace_thread(self, *event: Any) -> Any:
        """The first event of a new thread."""
        return self._trace()(*event)

    def _disposition(self, name: str, _: object) -> Any:
        """Whether a file is traced, and as which."""
        answer = self._module.CFileDisposition()
        answer.original_filename = name
        if name not in self._numbers and "toolfold" in name:
            name = os.path.realpath(name)  # the checkout may have been installed through a link
        answer.canonical_filename = answer.source_filename = name
        answer.trace = name in self._numbers
        answer.reason, answer.file_tracer, answer.has_dynamic_filename = "", None, False
        return answer

    def _forget(self) -> None:
        """A forked child reports what it did itself: some have a deadline of a few hundred milliseconds in all."""
        for pairs in self._data.values():
            pairs.clear()

    def _put(self, value: int) -> None:
        at = value * 0x9E3779B97F4A7C15 % (1 << 64) % CELLS
        for _ in range(CELLS):
            there = self._cells[at]
            if there == value:
                return
            if not there:
                self._cells[at] = value
                return
            at = (at + 1) % CELLS


def _insist(set_trace: Any, function: Any) -> None:
    """Python refuses while another thread is being given one."""
    for _ in range(1000):
        try:
            set_trace(function)
        except RuntimeError:
            os.sched_yield()
        else:
            return
    set_trace(function)


_hook: Hook | None = None


def _measure() -> None:
    global _hook  # noqa: PLW0603 - one process, one measurement
    _hook = Hook()
    _hook.start()


def pytest_sessionfinish() -> None:
    """As a plugin: a worker of xdist that is slow to end is killed, so its share is saved before it says it is done."""
    if _hook is not None:
        _hook.save()


class Trigger:
    """Stands among the finders of modules until the package is imported: other processes lose no time."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "toolfold":
            sys.meta_path.remove(self)
            _measure()


if os.path.isfile(TABLE):  # noqa: PTH113
    arguments = sys.orig_argv[1:]
    # `sys.argv` is not set yet. A script of the package itself runs before it imports anything. A test that asks which
    # modules a process loads must not get coverage's among them.
    if any(argument.startswith(SOURCE) for argument in arguments):
        _measure()
    elif not any("sys.modules" in argument or "importtime" in argument for argument in arguments):
        sys.meta_path.insert(0, Trigger())
