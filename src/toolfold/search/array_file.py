"""A file of named arrays: written whole and renamed into place, read by mapping it into memory.

A reader that has a file mapped keeps its contents whatever happens to the name. A file that was cut or changed in its
head is `StoreDamaged`; what stands in the arrays is checked by `verify`, since reading it all would undo the mapping.
"""

import mmap
import os
import struct
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from toolfold.errors import StoreDamaged

# Row numbers.
Rows = NDArray[np.int64]
# One yes or no for each row.
Mask = NDArray[np.bool_]
Floats = NDArray[np.float32]
Numbers = NDArray[np.float64]
Small = NDArray[np.int8]
Hashes = NDArray[np.uint64]
Arrays = Mapping[str, NDArray[Any]]
# The named arrays of one file.
Columns = dict[str, NDArray[Any]]

MAGIC = b"TFARR\x00\x00\x01"
_LEAD = struct.Struct("<8sII")
_ALIGN = 64


class _Slot(Struct, frozen=True, array_like=True):
    dtype: str
    shape: tuple[int, ...]
    offset: int
    checksum: int


class _Head(Struct, frozen=True):
    slots: dict[str, _Slot]
    size: int


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Writes beside the target, flushes, renames: the name holds the old file or the whole new one."""
    slots: dict[str, _Slot] = {}
    offset = 0
    for name, array in arrays.items():
        offset = -(-offset // _ALIGN) * _ALIGN
        flat = np.ascontiguousarray(array)
        slots[name] = _Slot(flat.dtype.str, flat.shape, offset, zlib.crc32(flat.data))
        offset += flat.nbytes
    head = msgspec.msgpack.encode(_Head(slots, offset))
    start = -(-(_LEAD.size + len(head)) // _ALIGN) * _ALIGN

    def fill(file: Any) -> None:
        file.write(_LEAD.pack(MAGIC, len(head), zlib.crc32(head)))
        file.write(head)
        for name, array in arrays.items():
            file.seek(start + slots[name].offset)
            file.write(np.ascontiguousarray(array).data)
        file.truncate(start + offset)

    replace_file(path, fill)


def replace_file(path: Path, fill: Any) -> None:
    """Gives `fill` a new file and puts it in the place of `path` once it is on the disk."""
    # In the same folder, so that the rename stays within one file system and is atomic.
    handle, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
            file.flush()
            # Else the name may point at an empty file after a loss of power.
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_arrays(path: Path, *, verify: bool = False) -> Columns:
    """The arrays as views of the mapped file; they keep it mapped for as long as one of them lives. With `verify`
    everything is read and compared with its checksum."""
    head, start, whole = _open(path)
    arrays: Columns = {}
    for name, slot in head.slots.items():
        dtype = np.dtype(slot.dtype)
        count = int(np.prod(slot.shape, dtype=np.int64))
        if start + slot.offset + count * dtype.itemsize > len(whole):
            raise _damaged(path, "an array reaches behind the end")
        arrays[name] = np.frombuffer(whole, dtype=dtype, count=count, offset=start + slot.offset).reshape(slot.shape)
        if verify and zlib.crc32(arrays[name].data) != slot.checksum:
            raise _damaged(path, f"the contents of {name} changed")
    return arrays


def _open(path: Path) -> tuple[_Head, int, mmap.mmap]:
    with path.open("rb") as file:
        lead = file.read(_LEAD.size)
        if len(lead) < _LEAD.size:
            raise _damaged(path, "it is too short")
        magic, length, checksum = _LEAD.unpack(lead)
        if magic != MAGIC:
            raise _damaged(path, "it is of another kind")
        packed = file.read(length)
        if zlib.crc32(packed) != checksum:
            raise _damaged(path, "its head changed")
        head = msgspec.msgpack.decode(packed, type=_Head)
        start = -(-(_LEAD.size + length) // _ALIGN) * _ALIGN
        if os.fstat(file.fileno()).st_size != start + head.size:
            raise _damaged(path, "it was cut")
        # The mapping outlives the handle and the name: a reader keeps its contents while a writer replaces the file.
        return head, start, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _damaged(path: Path, reason: str) -> StoreDamaged:
    return StoreDamaged(
        f"the search index file {path.name} cannot be used: {reason}",
        next_action="nothing: the index is built anew from the catalogue",
    )
