"""Writes what `repr` would say, bounded while it is written instead of built whole and cut.

Exact built-in values, and subclasses that keep the built-in form, are written here, without recursion: depth, cycles
and the number of values are all counted. Everything else needs a person's `__repr__`: outside of a forked child that
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
_WHOLE_TEXT_MAX = 100_000
"""A text up to this length is measured whole, so that `original_len` is exact."""
_LARGE = 100_000
_SORT_MAX = 10_000
_INT_BITS_MAX = 13_000

_repr = repr


class _Text(str):
    """A piece of the output itself, as against a value that is still to be written."""

    __slots__ = ()


_Tokens = Iterator[Any]
_COMMA = _Text(", ")


class _BoundedRepr:
    """A written form: `text` has at most the limit; `length` is the whole, or a minimum where `exact` is false."""

    __slots__ = ("exact", "length", "text", "truncated")

    def __init__(self, text: str, length: int, *, truncated: bool, exact: bool) -> None:
        self.text, self.length, self.truncated, self.exact = text, length, truncated, exact

    def section(self) -> dict[str, Any]:
        found: dict[str, Any] = {"text": self.text, "truncated": self.truncated, "original_len": self.length}
        if not self.exact:
            found["original_len_is_minimum"] = True
        return found


class _ReprWriter:
    """Writes one value. `user_code` says that a person's `__repr__` may run: true in forked children only."""

    def __init__(self, limit: int, *, user_code: bool, nodes: int = _NODES_MAX) -> None:
        self._left = limit
        self._user_code = user_code
        self._parts: list[str] = []
        self._length = 0
        self._exact = True
        self._cut = False
        self._nodes = nodes
        self._active: set[int] = set()

    def write(self, value: object) -> _BoundedRepr:
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
                self._cut = True
                break
            else:
                self._value(item, stack)
        return _BoundedRepr("".join(self._parts), self._length, truncated=self._cut, exact=self._exact)

    def _put(self, text: str) -> None:
        self._length += len(text)
        if len(text) > self._left:
            self._cut = True
            text = text[: self._left]
        if text:
            self._parts.append(str(text))
            self._left -= len(text)

    def _value(self, value: object, stack: list[tuple[_Tokens, int]]) -> None:
        self._nodes -= 1
        cls = type(value)
        how = type_attribute(cls, "__repr__")
        container = _CONTAINERS.get(id(how))
        if container is not None:
            opened = container[1]
            if id(value) in self._active:
                self._put(opened)
            elif len(stack) >= _DEPTH_MAX:
                self._put("…")
            else:
                self._active.add(id(value))
                stack.append((container[0](value), id(value)))
            return
        atom = _ATOMS.get(id(how))
        if atom is not None:
            atom(self, value)
        else:
            self._user(value)

    def _user(self, value: object) -> None:
        if not self._user_code:
            raise NeedsFork
        cls = type(value)
        total = builtin_len(value)
        if total is not None and total > _LARGE and type_module(cls).partition(".")[0] == "collections":
            self._exact = False
            self._put(f"<{qualified_name(cls)} of {total} items>")
            return
        attempt = Attempt()
        with attempt:
            said = _repr(value)
            # A subclass of `str` may have methods of its own: the base's are called.
            self._length += str.__len__(said)
            piece = str.__getitem__(said, slice(0, self._left))
            self._cut = self._cut or str.__len__(said) > self._left
            self._left -= len(piece)
            self._parts.append(piece)
        if attempt.error is not None:
            if not self._active:
                raise attempt.error
            self._put(f"<{type_name(cls)} with a broken repr: {type_name(type(attempt.error))}>")

    def string(self, value: Any) -> None:
        """A text or bytes: only its head is written where it is long."""
        base = str if is_derived(type(value), str) else bytes
        total = base.__len__(value)
        if total <= _WHOLE_TEXT_MAX:
            self._put(base.__repr__(value))
            return
        head = base.__getitem__(value, slice(0, max(self._left, 0) + 16))
        self._put(base.__repr__(head)[:-1])
        self._length += total - len(head)
        self._exact = False
        self._cut = True

    def byte_array(self, value: bytearray) -> None:
        self._put("bytearray(")
        self.string(bytes(bytearray.__getitem__(value, slice(0, _WHOLE_TEXT_MAX + 1))))
        self._put(")")

    def integer(self, value: int) -> None:
        bits = int.bit_length(value)
        self._put(int.__repr__(value) if bits <= _INT_BITS_MAX else f"<int of {bits} bits>")

    def plain(self, value: object) -> None:
        """Types whose own `__repr__` is short and runs nobody else's code."""
        self._put(type_attribute(type(value), "__repr__")(value))


_END = object()


def builtin_len(value: object) -> int | None:
    """The length by the built-in base's own slot; `None` for anything else."""
    for base in _SIZED:
        if is_derived(type(value), base):
            return int(base.__len__(value))
    return None


_SIZED: tuple[Any, ...] = (
    list,
    tuple,
    dict,
    set,
    frozenset,
    collections.deque,
    str,
    bytes,
    bytearray,
    type({}.keys()),
    type({}.values()),
    type({}.items()),
)


def stable_order(values: Any, total: int) -> Iterator[Any]:
    """The items of a set, sorted where they are all plain strings or all plain numbers, so that order is stable."""
    if total > _SORT_MAX:
        return iter(values)
    items = list(values)
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
    total = set.__len__(value)
    exact = type(value) is set
    name = type_name(type(value))
    opening, closing = ("{", "}") if exact and total else (f"{name}({{", "})") if total else (f"{name}(", ")")
    return _joined(opening, stable_order(set.__iter__(value), total), closing)


def _frozenset(value: Any) -> _Tokens:
    total = frozenset.__len__(value)
    name = type_name(type(value))
    opening, closing = (f"{name}({{", "})") if total else (f"{name}(", ")")
    return _joined(opening, stable_order(frozenset.__iter__(value), total), closing)


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


def _view(name: str) -> Callable[[Any], _Tokens]:
    return lambda value: _joined(f"{name}([", iter(value), "])")


def _exception(value: Any) -> _Tokens:
    arguments = BaseException.__dict__["args"].__get__(value)
    return _joined(f"{type_name(type(value))}(", tuple.__iter__(arguments), ")")


def _range(value: Any) -> _Tokens:
    parts = [value.start, value.stop] if value.step == 1 else [value.start, value.stop, value.step]
    return _joined("range(", iter(parts), ")")


def _slice(value: Any) -> _Tokens:
    return _joined("slice(", iter((value.start, value.stop, value.step)), ")")


def _by_repr_slot(entries: Any) -> dict[int, Any]:
    """Keyed by the identity of the type's `__repr__`: a subclass that keeps the built-in form is found, too."""
    return {id(cls.__dict__["__repr__"]): entry for cls, entry in entries}


# What each container writes, and what stands for it inside itself.
_CONTAINERS: dict[int, tuple[Callable[[Any], _Tokens], str]] = _by_repr_slot(
    (
        (list, (_list, "[...]")),
        (tuple, (_tuple, "(...)")),
        (dict, (_pairs, "{...}")),
        (set, (_set, "set(...)")),
        (frozenset, (_frozenset, "frozenset(...)")),
        (collections.deque, (_deque, "[...]")),
        (collections.defaultdict, (_defaultdict, "defaultdict(...)")),
        (type({}.keys()), (_view("dict_keys"), "...")),
        (type({}.values()), (_view("dict_values"), "...")),
        (type({}.items()), (_view("dict_items"), "...")),
        (BaseException, (_exception, "...")),
        (range, (_range, "...")),
        (slice, (_slice, "...")),
    )
)
_ATOMS: dict[int, Callable[[_ReprWriter, Any], None]] = _by_repr_slot(
    (
        (str, _ReprWriter.string),
        (bytes, _ReprWriter.string),
        (bytearray, _ReprWriter.byte_array),
        (int, _ReprWriter.integer),
        *(
            (cls, _ReprWriter.plain)
            for cls in (
                bool,
                float,
                complex,
                object,
                type,
                type(None),
                type(Ellipsis),
                type(NotImplemented),
                memoryview,
                types.FunctionType,
                types.BuiltinFunctionType,
                types.GeneratorType,
                types.CoroutineType,
                types.AsyncGeneratorType,
                types.CodeType,
                types.FrameType,
            )
        ),
    )
)


def bounded_repr(value: object, limit: int, *, user_code: bool, nodes: int = _NODES_MAX) -> _BoundedRepr:
    """Raises `NeedsFork` where a person's code would have to run and may not, and whatever their `__repr__` raises."""
    return _ReprWriter(limit, user_code=user_code, nodes=nodes).write(value)


def default_repr(value: object) -> str:
    """What can be said of an object whose own form is broken."""
    return f"<{qualified_name(type(value))} object at {id(value):#x}>"


def safe_repr(value: object, limit: int, *, user_code: bool) -> str:
    """A bounded form that never fails: a broken one says so."""
    attempt = Attempt()
    with attempt:
        nodes = _ITEM_NODES_MAX if limit < 1000 else _NODES_MAX
        written = bounded_repr(value, limit, user_code=user_code, nodes=nodes)
        return written.text[: limit - 1] + "…" if written.truncated else written.text
    if type(attempt.error) is NeedsFork:
        raise attempt.error
    return f"{default_repr(value)[:limit]} (repr failed: {_error_name(attempt.error)})"


def _error_name(error: BaseException | None) -> str:
    return "nothing" if error is None else type_name(type(error))


def error_text(error: BaseException | None, limit: int = 300) -> str:
    """`ValueError: message`, bounded; a message that cannot be had is left out."""
    name = _error_name(error)
    attempt = Attempt()
    with attempt:
        said = str(error)
        message = str.__getitem__(said, slice(0, limit))
        return f"{name}: {message}" if message else name
    return name
