"""The index on disk: segment files and one table of contents that names them.

An update writes new files and then replaces the table; the old files go last. So a crash leaves the old state or the
new one, and a reader that has files mapped keeps them. One writer at a time, by a lock that ends with its process.
A folder of `None` keeps everything in memory.
"""

import contextlib
import fcntl
import os
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

from toolfold.errors import StoreDamaged
from toolfold.search.array_file import Columns, Rows, read_arrays, replace_file, write_arrays
from toolfold.search.segment import IndexSnapshot, Segment

# Goes up with every change of what is stored or how words are cut: an index of another format is built anew.
FORMAT = 2
TABLE = "contents"
MAX_SEGMENTS = 6


class _Part(Struct, frozen=True, array_like=True):
    file: str
    dead: list[int]


class _Table(Struct, frozen=True):
    format: int
    encoder: str
    next: int
    parts: list[_Part]
    spare: str = ""
    """A file of vectors whose tools are gone, for when they come back."""


class IndexStore:
    """One folder. `snapshot` and `spare` are what the last `load` or `save` read."""

    def __init__(self, folder: Path | None, encoder: str) -> None:
        self.folder = folder
        self._encoder = encoder
        self._loaded_stamp: tuple[int, int, int] | None = None
        self._next = 1
        self.snapshot = IndexSnapshot([], [])
        self.spare: Columns | None = None
        self._spare_file = ""
        # Once it is set, whoever writes gives up.
        self.stopped = threading.Event()
        # Why the index on disk could not be used, if so; it is empty then, and the next update builds it anew.
        self.damage = ""

    def changed(self) -> bool:
        """Whether somebody replaced the table since it was last read."""
        return self.folder is not None and self._stamp() != self._loaded_stamp

    def load(self) -> None:
        """Reads the table and maps its files. What cannot be used leaves an empty snapshot and a reason in `damage`."""
        if self.folder is None:
            return
        # Another process may replace the table between reading it and mapping its files; a few tries are enough.
        for _ in range(8):
            stamp = self._stamp()
            try:
                self._read()
            except FileNotFoundError:
                if self._stamp() != stamp:  # replaced while we read
                    continue
                self._forget("a file that the table names is gone" if stamp else "")
            except StoreDamaged as error:
                self._forget(error.message)
            self._loaded_stamp = stamp
            return

    def _stamp(self) -> tuple[int, int, int] | None:
        assert self.folder is not None  # noqa: S101  callers have checked
        try:
            status = (self.folder / TABLE).stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _read(self) -> None:
        assert self.folder is not None  # noqa: S101  callers have checked
        table = _read_table(self.folder / TABLE)
        if table.format != FORMAT or table.encoder != self._encoder:
            self._forget("it was made by another version")
            return
        segments = [Segment(part.file, read_arrays(self.folder / part.file)) for part in table.parts]
        dead = [np.array(part.dead, dtype=np.int64) for part in table.parts]
        self.spare = read_arrays(self.folder / table.spare) if table.spare else None
        self._spare_file = table.spare
        self.snapshot = IndexSnapshot(segments, dead)
        self._next = table.next
        self.damage = ""

    def _forget(self, reason: str) -> None:
        self.snapshot, self.spare, self._spare_file = IndexSnapshot([], []), None, ""
        self.damage = reason

    def add(self, arrays: Columns) -> Segment:
        """A new segment, on disk and mapped; nobody sees it before `save`."""
        name = self._new_name("rows")
        return Segment(name, self._written(name, arrays))

    def _new_name(self, kind: str) -> str:
        """Never used before, even by a state that was lost: whoever has an old file open must not meet a new one."""
        self._next += 1
        return f"{kind}-{self._next - 1:08d}-{os.urandom(4).hex()}"

    def _written(self, name: str, arrays: Columns) -> Columns:
        if self.folder is None:
            return dict(arrays)
        write_arrays(self.folder / name, arrays)
        return read_arrays(self.folder / name)

    def set_spare(self, arrays: Columns | None) -> None:
        if arrays is None:
            self.spare, self._spare_file = None, ""
            return
        self._spare_file = self._new_name("spare")
        self.spare = self._written(self._spare_file, arrays)

    def save(self, segments: Sequence[Segment], dead: Sequence[Rows]) -> None:
        """Makes the given state the one that everybody sees, and removes the files it no longer names."""
        self.snapshot = IndexSnapshot(segments, dead)
        self.damage = ""
        if self.folder is None:
            return
        parts = [_Part(segment.name, rows.tolist()) for segment, rows in zip(segments, dead, strict=True)]
        table = _Table(FORMAT, self._encoder, self._next, parts, self._spare_file)
        _write_table(self.folder / TABLE, table)
        self._loaded_stamp = self._stamp()
        # After the table: a crash before this leaves files that nobody names, and the next save removes them.
        named = {part.file for part in parts} | {self._spare_file}
        for file in self.folder.iterdir():
            if file.name.startswith(("rows-", "spare-", ".new-")) and file.name not in named:
                file.unlink(missing_ok=True)

    def verify(self) -> None:
        """Reads every file in full. Raises `StoreDamaged`."""
        if self.folder is not None:
            for segment in self.snapshot.segments:
                read_arrays(self.folder / segment.name, verify=True)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Holds the writers' lock, and sees first what others wrote."""
        if self.folder is None:
            yield
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # A lock of the system ends with its process, however that ends: no stale lock has to be broken.
            fcntl.flock(handle, fcntl.LOCK_EX)
            if self.changed():
                self.load()
            yield
        finally:
            os.close(handle)


def _write_table(path: Path, table: _Table) -> None:
    packed = msgspec.msgpack.encode(table)
    replace_file(path, lambda file: file.write(zlib.crc32(packed).to_bytes(4, "little") + packed))


def _read_table(path: Path) -> _Table:
    whole = path.read_bytes()
    if len(whole) < 5 or zlib.crc32(whole[4:]) != int.from_bytes(whole[:4], "little"):
        raise StoreDamaged("the search index's table of contents is damaged", next_action="nothing: it is built anew")
    try:
        return msgspec.msgpack.decode(whole[4:], type=_Table)
    except msgspec.DecodeError as error:
        raise StoreDamaged(
            f"the search index cannot be read: {error}", next_action="nothing: it is built anew"
        ) from error
