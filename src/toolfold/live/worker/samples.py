"""The size of an object, and the first items of built-in containers, one level deep.

Only built-in containers are walked, through their own slots, so that nothing is advanced and no overridden method runs.
A person's container is asked for its length and nothing else, and only in a forked child.
"""

import array
import collections
import mmap
import types
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from toolfold.live.worker.keep import BUILTINS, NeedsFork
from toolfold.live.worker.limits import ITEM_MAX, SAMPLE_MAX
from toolfold.live.worker.reprs import base_len, in_order, safe_text
from toolfold.live.worker.static import derives, has, module_of

globals()["__builtins__"] = BUILTINS

_SHAPED = frozenset({"numpy", "pandas", "torch", "polars", "xarray", "scipy", "jax", "jaxlib", "cupy", "tensorflow"})
_len = len


def size_of(value: object, *, user_code: bool) -> dict[str, Any] | None:
    """`len` and `shape`, where there are such. Raises whatever a person's `__len__` raises."""
    cls = type(value)
    if derives(cls, range):
        # `len` fails above the machine's word; a range knows its ends.
        return {"len": max(0, -((value.start - value.stop) // value.step))}  # type: ignore[attr-defined]
    found: dict[str, Any] = {}
    shape = _shape(value, user_code=user_code)
    if shape is not None:
        found["shape"] = shape
    length = base_len(value)
    if length is None and has(cls, "__len__") and not (shape is not None and not shape):
        if not user_code:
            raise NeedsFork
        length = int(_len(value))  # type: ignore[arg-type]  # the type has `__len__`: just asked
    if length is not None:
        found["len"] = length
    return dict(sorted(found.items())) or None


def _shape(value: object, *, user_code: bool) -> list[int] | None:
    """Arrays, frames and tensors say their shape; their libraries are known by name and never imported."""
    if module_of(type(value)).partition(".")[0] not in _SHAPED or not has(type(value), "shape"):
        return None
    if not user_code:
        raise NeedsFork
    shape = getattr(value, "shape", None)
    if shape is None or not derives(type(shape), tuple):
        return None
    return [int(number) for number in islice(tuple.__iter__(shape), 32)]


def sample_of(value: object, *, user_code: bool) -> dict[str, Any] | None:
    """The first items as text, each bounded by itself; `None` for what is no built-in container."""
    for base, items in _WALKS:
        if derives(type(value), base):
            shown = [text for text in items(value, user_code)]  # noqa: C416 - `list` may ask a person for a length hint
            total = _total(value)
            return {"items": shown, "shown": len(shown), "total": total, "truncated": total > len(shown)}
    return None


def _total(value: Any) -> int:
    if derives(type(value), range):
        found = size_of(value, user_code=False)
        return int(found["len"]) if found else 0
    known = base_len(value)
    return known if known is not None else int(_len(value))


Walk = Callable[[Any, bool], Iterator[str]]


def _plain(iterate: Callable[[Any], Iterator[Any]]) -> Walk:
    def walk(value: Any, user_code: bool) -> Iterator[str]:
        for item in islice(iterate(value), SAMPLE_MAX):
            yield safe_text(item, ITEM_MAX, user_code=user_code)

    return walk


def _pairs(value: Any, user_code: bool) -> Iterator[str]:
    for key, item in islice(dict.items(value), SAMPLE_MAX):
        left = safe_text(key, ITEM_MAX // 2, user_code=user_code)
        yield f"{left}: {safe_text(item, ITEM_MAX, user_code=user_code)}"


def _proxied(value: Any, user_code: bool) -> Iterator[str]:
    """A mapping proxy may stand before a person's own mapping, so walking it is their code."""
    if not user_code:
        raise NeedsFork
    for key in islice(value, SAMPLE_MAX):
        left = safe_text(key, ITEM_MAX // 2, user_code=user_code)
        yield f"{left}: {safe_text(value[key], ITEM_MAX, user_code=user_code)}"


def _head(value: Any) -> Iterator[Any]:
    return iter(value[:SAMPLE_MAX])


_WALKS: tuple[tuple[type, Walk], ...] = (
    (list, _plain(list.__iter__)),
    (tuple, _plain(tuple.__iter__)),
    (dict, _pairs),
    (set, _plain(lambda value: in_order(set.__iter__(value), set.__len__(value)))),
    (frozenset, _plain(lambda value: in_order(frozenset.__iter__(value), frozenset.__len__(value)))),
    (range, _plain(range.__iter__)),
    (collections.deque, _plain(collections.deque.__iter__)),
    (array.array, _plain(lambda value: iter(array.array.__getitem__(value, slice(0, SAMPLE_MAX))))),
    (memoryview, _plain(_head)),
    (mmap.mmap, _plain(lambda value: iter(mmap.mmap.__getitem__(value, slice(0, SAMPLE_MAX))))),
    (types.MappingProxyType, _proxied),
    (type({}.keys()), _plain(iter)),
    (type({}.values()), _plain(iter)),
    (type({}.items()), _plain(iter)),
)
