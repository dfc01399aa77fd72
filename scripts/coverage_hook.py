"""Started in every interpreter by `run_coverage.py`: measures this process and adds what it saw to the table.

The table is a file of 8-byte cells that all processes map. A branch is one number (file, from, to) at the place that
its hash says, or at the next free one. Writing one twice changes nothing, and two processes rarely want one cell at the
same moment, so no lock is needed.

PYTEST_DONT_REWRITE: it is loaded long before it is named as a plugin.
"""

import atexit
import mmap
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "toolfold"
TABLE = ROOT / ".coverage.table"
LINE_BITS = 20
OFFSET = 1 << (LINE_BITS - 1)
CELL = struct.Struct("<Q")


def files() -> list[str]:
    """All sources, in one order for all processes."""
    return sorted(str(path) for path in SOURCE.rglob("*.py"))


def packed(file: int, start: int, end: int) -> int:
    """One number, never 0: coverage counts entries and exits of functions as lines below zero."""
    return (file + 1) << (2 * LINE_BITS) | (start + OFFSET) << LINE_BITS | (end + OFFSET)


def entries(table: Path) -> Iterator[tuple[int, int, int]]:
    """What all processes together took: file, from, to."""
    mask = (1 << LINE_BITS) - 1
    for (value,) in CELL.iter_unpack(table.read_bytes()):
        if value:
            yield (value >> (2 * LINE_BITS)) - 1, (value >> LINE_BITS & mask) - OFFSET, (value & mask) - OFFSET


class Hook:
    """The measurement of this process."""

    def __init__(self) -> None:
        from coverage import Coverage

        with TABLE.open("r+b") as table:
            self._table = mmap.mmap(table.fileno(), 0)
        self._cells = len(self._table) // CELL.size
        self._numbers = {name: number for number, name in enumerate(files())}
        self._coverage = Coverage(data_file=None, branch=True, source=[str(SOURCE)], config_file=False)
        # A process that runs nothing of the package is no news.
        self._coverage.set_option("run:disable_warnings", ["no-data-collected", "module-not-imported"])
        self._leave = os._exit

    def start(self) -> None:
        self._coverage.start()
        atexit.register(self.save)
        os._exit = self.leave  # type: ignore[assignment]
        os.register_at_fork(after_in_child=self._forget)
        # A live session takes every tracer off the children that look into it, and puts a person's own back.
        tracer, set_trace, get_trace = sys.gettrace(), sys.settrace, sys.gettrace
        sys.settrace = lambda function: set_trace(tracer if function is None else function)
        sys.gettrace = lambda: None if get_trace() is tracer else get_trace()

    def leave(self, status: int) -> None:
        self.save()
        self._leave(status)

    def save(self) -> None:
        try:
            data = self._coverage.get_data()
            for name in data.measured_files() & self._numbers.keys():
                for start, end in data.arcs(name) or ():
                    self._put(packed(self._numbers[name], start, end))
        except BaseException:  # noqa: BLE001 - whatever is left of a process must not change how it ends
            return

    def _forget(self) -> None:
        """A forked child reports what it did itself: some have a deadline of a few hundred milliseconds in all."""
        with suppress(AttributeError):
            self._coverage._collector._clear_data()  # type: ignore[union-attr]  # noqa: SLF001 - there is no public way

    def _put(self, value: int) -> None:
        at = value * 0x9E3779B97F4A7C15 % (1 << 64) % self._cells
        for _ in range(self._cells):
            (there,) = CELL.unpack_from(self._table, at * CELL.size)
            if there == value:
                return
            if not there:
                CELL.pack_into(self._table, at * CELL.size, value)
                return
            at = (at + 1) % self._cells


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


if TABLE.is_file():
    arguments = sys.orig_argv[1:]
    # `sys.argv` is not set yet. A script of the package itself runs before it imports anything. A test that asks which
    # modules a process loads must not get coverage's among them.
    if any(argument.startswith(str(SOURCE)) for argument in arguments):
        _measure()
    elif not any("sys.modules" in argument or "importtime" in argument for argument in arguments):
        sys.meta_path.insert(0, Trigger())
