"""Tells what kind of thing an object is, by its real type alone.

The order matters: a class is a class before it is callable, an exception is one before it is an object.
"""

import _collections_abc as abstract
import array
import collections
import io
import mmap
import types
import weakref

from toolfold.live.worker.keep import BUILTINS
from toolfold.live.worker.static import bases_of, derives, has, is_class, qualified

globals()["__builtins__"] = BUILTINS

_FIRST: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("class", (type,)),
    ("module", (types.ModuleType,)),
    ("exception", (BaseException,)),
    ("generator", (types.GeneratorType,)),
    ("coroutine", (types.CoroutineType,)),
    ("async_generator", (types.AsyncGeneratorType,)),
    ("string", (str,)),
    ("bytes", (bytes, bytearray, memoryview, mmap.mmap)),
    ("number", (int, float, complex)),
    ("mapping", (dict, types.MappingProxyType, abstract.Mapping)),
    ("set", (set, frozenset, abstract.Set, type({}.keys()), type({}.items()))),
    ("sequence", (list, tuple, range, collections.deque, array.array, abstract.Sequence)),
)
_NUMBERS = frozenset({"decimal.Decimal", "fractions.Fraction", "numpy.generic"})
_FILE = bases_of(io.StringIO)[-2]
_OTHER = (type(Ellipsis), type(NotImplemented))


def kind_of(value: object) -> str:
    if value is None:
        return "none"
    cls = type(value)
    if cls is bool:
        return "bool"
    for kind, ancestors in _FIRST:
        if derives(cls, *ancestors):
            return kind
    if _is_number(cls):
        return "number"
    if derives(cls, *_OTHER):
        return "other"
    return _behaving(cls)


def _is_number(cls: type) -> bool:
    """Numbers of the library and of numpy, found by name so that nothing is imported for it."""
    return any(qualified(base) in _NUMBERS for base in bases_of(cls))


def _behaving(cls: type) -> str:
    if derives(cls, _FILE, *weakref.ProxyTypes):
        return "object"  # an open file is an iterator too, and nobody looks for it there; a proxy has every method
    if has(cls, "__next__") and has(cls, "__iter__"):
        return "iterator"
    if has(cls, "__call__"):
        return "callable"
    return "object"


def is_exception_class(value: object) -> bool:
    return is_class(value) and derives(value, BaseException)  # type: ignore[arg-type]  # it is a class: just asked


def state_of(value: object) -> str | None:
    """Where a generator or coroutine stands; asking does not move it."""
    cls = type(value)
    for kind, prefix in ((types.GeneratorType, "gi"), (types.CoroutineType, "cr"), (types.AsyncGeneratorType, "ag")):
        if cls is not kind:
            continue
        if getattr(value, f"{prefix}_running"):
            return "running"
        if getattr(value, f"{prefix}_frame") is None:
            return "finished"
        suspended = getattr(value, f"{prefix}_suspended", None)  # async generators tell it from Python 3.12 on
        return None if suspended is None else "suspended" if suspended else "created"
    return None
