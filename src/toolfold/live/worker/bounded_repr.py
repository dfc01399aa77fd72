"""Writes what `repr` would return, bounded while it is written instead of built whole and cut.

Built-in values, and subclasses that keep the built-in `__repr__`, are written here, without recursion: depth, cycles
and the number of values are all counted. Everything else needs the user's `__repr__`: outside of a forked child that
raises `NeedsFork`.
"""

import collections
import types
from collections.abc import Callable, Iterator
from typing import Any

from toolfold.live.worker.introspection import is_derived, qualified_name, type_attribute, type_module, type_name
from toolfold.live.worker.originals import BUILTINS, Attempt, NeedsFork

globals()["__builtins__"] = BUILTINS

_DEPTH_MAX = 64
_NODES_MAX = 5_000
_ITEM_NODES_MAX = 400
_WHOLE_TEXT_MAX = 100_000  # a text up to this length is measured whole, so that `original_len` is exact
_LARGE = 100_000
_SORT_MAX = 10_000
_INT_BITS_MAX = 13_000  # CPython refuses to convert longer ones: 4300 digits

_repr = repr
_END = object()


class _Text(str):
    """A piece of the output itself, as opposed to a value that is still to be written."""

    __slots__ = ()


_Tokens = Iterator[Any]
_COMMA = _Text(", ")


class _ReprWriter:
    """Writes one value. `user_code` allows the user's `__repr__` to run: true in forked children only."""

    def __init__(self, limit: int, *, user_code: bool, nodes: int = _NODES_MAX) -> None:
        self._left = limit
        self._user_code = user_code
        self._parts: list[str] = []
        self._length = 0
        self._exact = True
        self._truncated = False
        self._nodes = nodes
        self._active: set[int] = set()

    def write(self, value: object) -> dict[str, Any]:
        """The `repr` section of an answer."""
        stack: list[tuple[_Tokens, int]] = []
        self._value(value, stack)
        while stack:
            tokens, identity = stack[-1]
            item = next(tokens, _END)
            if item is _END:
                stack.pop()
                self._active.discard(identity)
            elif type(item) is _Text:
                self._put(item)
            elif self._nodes <= 0:
                self._exact = False
                self._truncated = True
                break
            else:
                self._value(item, stack)
        section = {"text": "".join(self._parts), "truncated": self._truncated, "original_len": self._length}
        return section if self._exact else {**section, "original_len_is_minimum": True}

    def _put(self, text: str) -> None:
        self._length += len(text)
        if len(text) > self._left:
            self._truncated = True
            text = text[: self._left]
        if text:
            self._parts.append(str(text))
            self._left -= len(text)

    def _value(self, value: object, stack: list[tuple[_Tokens, int]]) -> None:
        self._nodes -= 1
        method = id(type_attribute(type(value), "__repr__"))
        if method in _CONTAINERS:
            tokens, recursive = _CONTAINERS[method]
            if id(value) in self._active:
                self._put(recursive)
            elif len(stack) >= _DEPTH_MAX:
                self._put("…")
            else:
                self._active.add(id(value))
                stack.append((tokens(value), id(value)))
        elif method in _ATOMS:
            _ATOMS[method](self, value)
        else:
            self._user_repr(value)

    def _user_repr(self, value: object) -> None:
        if not self._user_code:
            raise NeedsFork
        cls = type(value)
        total = builtin_len(value)
        # `Counter` and `OrderedDict` would write all their items before anything could be cut.
        if total is not None and total > _LARGE and type_module(cls).partition(".")[0] == "collections":
            self._exact = False
            self._put(f"<{qualified_name(cls)} of {total} items>")
            return
        with Attempt() as attempt:
            text = _repr(value)
            # A subclass of `str` may override any method: those of the base are called.
            self._length += str.__len__(text)
            piece = str.__getitem__(text, slice(0, self._left))
            self._truncated = self._truncated or str.__len__(text) > self._left
            self._left -= len(piece)
            self._parts.append(piece)
        if attempt.error is not None:
            if not self._active:
                raise attempt.error
            self._put(f"<{type_name(cls)} with a broken repr: {type_name(type(attempt.error))}>")

    def string(self, value: Any) -> None:
        """A text or bytes: only the head of a long one is written."""
        base = str if is_derived(type(value), str) else bytes
        total = base.__len__(value)
        if total <= _WHOLE_TEXT_MAX:
            self._put(base.__repr__(value))
            return
        head = base.__getitem__(value, slice(0, max(self._left, 0) + 16))
        self._put(base.__repr__(head)[:-1])
        self._length += total - len(head)
        self._exact = False
        self._truncated = True

    def byte_array(self, value: bytearray) -> None:
        self._put("bytearray(")
        self.string(bytes(bytearray.__getitem__(value, slice(0, _WHOLE_TEXT_MAX + 1))))
        self._put(")")

    def integer(self, value: int) -> None:
        bits = int.bit_length(value)
        self._put(int.__repr__(value) if bits <= _INT_BITS_MAX else f"<int of {bits} bits>")

    def plain(self, value: object) -> None:
        """Types whose own `__repr__` is short and runs no other code."""
        self._put(type_attribute(type(value), "__repr__")(value))


_DICT_VIEWS: tuple[Any, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_SIZED: tuple[Any, ...] = (
    *(list, tuple, dict, set, frozenset, collections.deque, str, bytes, bytearray),
    *_DICT_VIEWS,
)


def builtin_len(value: object) -> int | None:
    """The length by the built-in base's own slot; `None` for anything else."""
    for base in _SIZED:
        if is_derived(type(value), base):
            return int(base.__len__(value))
    return None


def set_items(value: Any) -> Iterator[Any]:
    """The items of a set, sorted where all are plain strings or all plain integers, so that the order is stable."""
    base: Any = set if is_derived(type(value), set) else frozenset
    if base.__len__(value) > _SORT_MAX:
        return iter(base.__iter__(value))
    items = list(base.__iter__(value))
    if all(type(item) is str for item in items) or all(type(item) is int for item in items):
        items.sort()
    return iter(items)


def _joined(opening: str, items: Iterator[Any], closing: str) -> _Tokens:
    yield _Text(opening)
    for number, item in enumerate(items):
        if number:
            yield _COMMA
        yield item
    yield _Text(closing)


def _list(value: Any) -> _Tokens:
    return _joined("[", list.__iter__(value), "]")


def _tuple(value: Any) -> _Tokens:
    return _joined("(", tuple.__iter__(value), ",)" if tuple.__len__(value) == 1 else ")")


def _pairs(value: Any) -> _Tokens:
    yield _Text("{")
    for number, (key, item) in enumerate(dict.items(value)):
        if number:
            yield _COMMA
        yield key
        yield _Text(": ")
        yield item
    yield _Text("}")


def _set(value: Any) -> _Tokens:
    if type(value) is set and value:
        return _joined("{", set_items(value), "}")
    name = type_name(type(value))
    opening, closing = (f"{name}({{", "})") if builtin_len(value) else (f"{name}(", ")")
    return _joined(opening, set_items(value), closing)


def _deque(value: Any) -> _Tokens:
    maximum = collections.deque.__dict__["maxlen"].__get__(value)
    closing = "])" if maximum is None else f"], maxlen={maximum})"
    return _joined(f"{type_name(type(value))}([", collections.deque.__iter__(value), closing)


def _defaultdict(value: Any) -> _Tokens:
    yield _Text(f"{type_name(type(value))}(")
    yield collections.defaultdict.__dict__["default_factory"].__get__(value)
    yield _COMMA
    yield from _pairs(value)
    yield _Text(")")


def _view(value: Any) -> _Tokens:
    return _joined(f"{type_name(type(value))}([", iter(value), "])")


def _exception(value: Any) -> _Tokens:
    arguments = BaseException.__dict__["args"].__get__(value)
    return _joined(f"{type_name(type(value))}(", tuple.__iter__(arguments), ")")


def _range(value: Any) -> _Tokens:
    parts = [value.start, value.stop] if value.step == 1 else [value.start, value.stop, value.step]
    return _joined("range(", iter(parts), ")")


def _slice(value: Any) -> _Tokens:
    return _joined("slice(", iter((value.start, value.stop, value.step)), ")")


def _by_repr_slot(entries: Any) -> dict[int, Any]:
    """Keyed by the identity of the type's `__repr__`, so that a subclass that keeps it is written the same way."""
    return {id(cls.__dict__["__repr__"]): entry for cls, entry in entries}


# What each container writes, and what stands for it inside itself.
_CONTAINERS: dict[int, tuple[Callable[[Any], _Tokens], str]] = _by_repr_slot(
    (
        (list, (_list, "[...]")),
        (tuple, (_tuple, "(...)")),
        (dict, (_pairs, "{...}")),
        (set, (_set, "set(...)")),
        (frozenset, (_set, "frozenset(...)")),
        (collections.deque, (_deque, "[...]")),
        (collections.defaultdict, (_defaultdict, "defaultdict(...)")),
        *((view, (_view, "...")) for view in _DICT_VIEWS),
        (BaseException, (_exception, "...")),
        (range, (_range, "...")),
        (slice, (_slice, "...")),
    )
)
_PLAIN_TYPES = (
    *(bool, float, complex, object, type, type(None), type(Ellipsis), type(NotImplemented), memoryview),
    *(types.FunctionType, types.BuiltinFunctionType, types.GeneratorType, types.CoroutineType),
    *(types.AsyncGeneratorType, types.CodeType, types.FrameType),
)
_ATOMS: dict[int, Callable[[_ReprWriter, Any], None]] = _by_repr_slot(
    (
        (str, _ReprWriter.string),
        (bytes, _ReprWriter.string),
        (bytearray, _ReprWriter.byte_array),
        (int, _ReprWriter.integer),
        *((cls, _ReprWriter.plain) for cls in _PLAIN_TYPES),
    )
)


def bounded_repr(value: object, limit: int, *, user_code: bool, nodes: int = _NODES_MAX) -> dict[str, Any]:
    """The `repr` section. Raises `NeedsFork` where user code may not run, and whatever a user's `__repr__` raises."""
    return _ReprWriter(limit, user_code=user_code, nodes=nodes).write(value)


def default_repr(value: object) -> str:
    """For an object whose own `__repr__` is broken."""
    return f"<{qualified_name(type(value))} object at {id(value):#x}>"


def safe_repr(value: object, limit: int, *, user_code: bool) -> str:
    """A bounded repr that reports a broken `__repr__` instead of raising. May raise `NeedsFork`."""
    with Attempt() as attempt:
        nodes = _ITEM_NODES_MAX if limit < 1000 else _NODES_MAX
        section = bounded_repr(value, limit, user_code=user_code, nodes=nodes)
        text: str = section["text"]
        return text[: limit - 1] + "…" if section["truncated"] else text
    if type(attempt.error) is NeedsFork:
        raise attempt.error
    return f"{default_repr(value)[:limit]} (repr failed: {_error_name(attempt.error)})"


def _error_name(error: BaseException | None) -> str:
    return "nothing" if error is None else type_name(type(error))


def error_text(error: BaseException | None, limit: int = 300) -> str:
    """`ValueError: message`, bounded; a message that cannot be read is left out."""
    name = _error_name(error)
    with Attempt():
        message = str.__getitem__(str(error), slice(0, limit))
        return f"{name}: {message}" if message else name
    return name
