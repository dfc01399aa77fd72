"""Keeps a whole answer below its bound, whatever the object: the longest text is halved until all fits."""

import array
import collections
import inspect
import mmap
import sys
import types
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from toolfold.live.worker import introspection as members
from toolfold.live.worker.bounded_repr import (
    bounded_repr,
    builtin_len,
    default_repr,
    error_text,
    safe_repr,
    stable_order,
)
from toolfold.live.worker.exceptions import exception_section
from toolfold.live.worker.frames import dumps
from toolfold.live.worker.introspection import (
    MISSING,
    class_dict,
    generator_state,
    has_method,
    instance_dict,
    is_class,
    is_derived,
    is_exception_class,
    kind_of,
    plain_name,
    type_attribute,
    type_module,
    type_name,
    type_section,
)
from toolfold.live.worker.limits import (
    DOC_HEAD,
    DOC_MAX,
    ITEM_MAX,
    LIMITS,
    PAYLOAD_MAX,
    REPR_MAX,
    SAMPLE_MAX,
    SIGNATURE_MAX,
)
from toolfold.live.worker.originals import BUILTINS, Attempt, NeedsFork
from toolfold.live.worker.sources import SOURCE_PREFIX, SourceCache, source_preview

globals()["__builtins__"] = BUILTINS

# Where long texts stand, and the mark that one was cut: (section, field, mark).
_LONG_TEXTS = (
    ("repr", "text", "truncated"),
    ("doc", "text", "truncated"),
    ("callable", "source_preview", "source_truncated"),
    ("callable", "doc", "doc_truncated"),
    ("callable", "signature", "signature_truncated"),
    ("exception", "message", "message_truncated"),
    ("exception", "traceback", "traceback_truncated"),
)
_LONG_LISTS = (
    ("sample", "items"),
    ("members", "data"),
    ("members", "callables"),
    ("exception", "causes"),
    ("exception", "exceptions"),
)


def _fit_payload(result: dict[str, Any]) -> dict[str, Any]:
    """The same result, with texts halved and lists shortened until it fits."""
    while len(dumps(result)) > PAYLOAD_MAX:
        places: list[tuple[int, str, str, str]] = []
        for section, field, mark in _LONG_TEXTS:
            held = result.get(section)
            if type(held) is dict and type(held.get(field)) is str:
                places.append((len(dumps(held[field])), section, field, mark))
        for section, field in _LONG_LISTS:
            held = result.get(section)
            if type(held) is dict and held.get(field):
                places.append((len(dumps(held[field])), section, field, "truncated"))
        if not places:
            return {key: result[key] for key in ("type", "kind")}
        _, section, field, mark = max(places)
        held = result[section]
        held[field] = held[field][: len(held[field]) // 2]
        held[mark] = True
        if field == "items":
            held["shown"] = len(held[field])
    return result


# --- The documentation of an object: read as it stands where it is a plain string, asked for in the forked child el

globals()["__builtins__"] = BUILTINS

_WITH_OWN_DOC = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_UNDOCUMENTED = (type(None), bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, range)


class _DocNotText(Exception):
    """`__doc__` is neither a string nor `None`."""


def _doc_of(value: object, *, user_code: bool) -> str | None:
    """Raises whatever a property in its place raises. Plain data has none: the text would be that of its type."""
    cls = type(value)
    if any(cls is plain for plain in _UNDOCUMENTED):
        return None
    found = _static_doc(value)
    if found is None or type(found) is str:
        return found
    if not user_code:
        raise NeedsFork
    told = getattr(value, "__doc__", None)
    if told is None:
        return None
    if not is_derived(type(told), str):
        raise _DocNotText(f"__doc__ is of type {type(told).__name__}")
    return str.__getitem__(told, slice(None))


def _static_doc(value: Any) -> Any:
    cls = type(value)
    if any(cls is known for known in _WITH_OWN_DOC):
        return value.__doc__
    if is_class(value):
        return class_dict(value).get("__doc__")
    own = instance_dict(value)
    if own is not None and all(type(name) is str for name in own) and "__doc__" in own:
        return own["__doc__"]
    found = type_attribute(cls, "__doc__")
    return None if found is MISSING else found


def _doc_section(text: str) -> dict[str, Any]:
    return {"text": text[:DOC_MAX], "truncated": len(text) > DOC_MAX, "original_len": len(text)}


# --- The size of an object, and the first items of built-in containers, one level deep.

globals()["__builtins__"] = BUILTINS

_SHAPED = frozenset({"numpy", "pandas", "torch", "polars", "xarray", "scipy", "jax", "jaxlib", "cupy", "tensorflow"})
_len = len


def _size_of(value: object, *, user_code: bool) -> dict[str, Any] | None:
    """`len` and `shape`, where there are such. Raises whatever a person's `__len__` raises."""
    cls = type(value)
    if is_derived(cls, range):
        # `len` fails above the machine's word; a range knows its ends.
        return {"len": max(0, -((value.start - value.stop) // value.step))}  # type: ignore[attr-defined]
    found: dict[str, Any] = {}
    shape = _shape(value, user_code=user_code)
    if shape is not None:
        found["shape"] = shape
    length = builtin_len(value)
    if length is None and has_method(cls, "__len__") and not (shape is not None and not shape):
        if not user_code:
            raise NeedsFork
        length = int(_len(value))  # type: ignore[arg-type]  # the type has `__len__`: just asked
    if length is not None:
        found["len"] = length
    return dict(sorted(found.items())) or None


def _shape(value: object, *, user_code: bool) -> list[int] | None:
    """Arrays, frames and tensors say their shape; their libraries are known by name and never imported."""
    if type_module(type(value)).partition(".")[0] not in _SHAPED or not has_method(type(value), "shape"):
        return None
    if not user_code:
        raise NeedsFork
    shape = getattr(value, "shape", None)
    if shape is None or not is_derived(type(shape), tuple):
        return None
    return [int(number) for number in islice(tuple.__iter__(shape), 32)]


def _sample_of(value: object, *, user_code: bool) -> dict[str, Any] | None:
    """The first items as text, each bounded by itself; `None` for what is no built-in container."""
    for base, items in _WALKS:
        if is_derived(type(value), base):
            shown = [text for text in items(value, user_code)]  # noqa: C416 - `list` may ask a person for a length hint
            total = _total_of(value)
            return {"items": shown, "shown": len(shown), "total": total, "truncated": total > len(shown)}
    return None


def _total_of(value: Any) -> int:
    if is_derived(type(value), range):
        found = _size_of(value, user_code=False)
        return int(found["len"]) if found else 0
    known = builtin_len(value)
    return known if known is not None else int(_len(value))


_Walk = Callable[[Any, bool], Iterator[str]]


def _walk_items(iterate: Callable[[Any], Iterator[Any]]) -> _Walk:
    def walk(value: Any, user_code: bool) -> Iterator[str]:
        for item in islice(iterate(value), SAMPLE_MAX):
            yield safe_repr(item, ITEM_MAX, user_code=user_code)

    return walk


def _walk_pairs(value: Any, user_code: bool) -> Iterator[str]:
    for key, item in islice(dict.items(value), SAMPLE_MAX):
        left = safe_repr(key, ITEM_MAX // 2, user_code=user_code)
        yield f"{left}: {safe_repr(item, ITEM_MAX, user_code=user_code)}"


def _walk_proxy(value: Any, user_code: bool) -> Iterator[str]:
    """A mapping proxy may stand before a person's own mapping, so walking it is their code."""
    if not user_code:
        raise NeedsFork
    for key in islice(value, SAMPLE_MAX):
        left = safe_repr(key, ITEM_MAX // 2, user_code=user_code)
        yield f"{left}: {safe_repr(value[key], ITEM_MAX, user_code=user_code)}"


def _first_items(value: Any) -> Iterator[Any]:
    return iter(value[:SAMPLE_MAX])


_WALKS: tuple[tuple[type, _Walk], ...] = (
    (list, _walk_items(list.__iter__)),
    (tuple, _walk_items(tuple.__iter__)),
    (dict, _walk_pairs),
    (set, _walk_items(lambda value: stable_order(set.__iter__(value), set.__len__(value)))),
    (frozenset, _walk_items(lambda value: stable_order(frozenset.__iter__(value), frozenset.__len__(value)))),
    (range, _walk_items(range.__iter__)),
    (collections.deque, _walk_items(collections.deque.__iter__)),
    (array.array, _walk_items(lambda value: iter(array.array.__getitem__(value, slice(0, SAMPLE_MAX))))),
    (memoryview, _walk_items(_first_items)),
    (mmap.mmap, _walk_items(lambda value: iter(mmap.mmap.__getitem__(value, slice(0, SAMPLE_MAX))))),
    (types.MappingProxyType, _walk_proxy),
    (type({}.keys()), _walk_items(iter)),
    (type({}.values()), _walk_items(iter)),
    (type({}.items()), _walk_items(iter)),
)


# --- The `callable` section: module, signature, doc and source preview, each of which may be missing.

globals()["__builtins__"] = BUILTINS

_signature = inspect.signature
_LAZY_ANNOTATIONS = sys.version_info >= (3, 14)
_PLAIN_DEFAULTS = (type(None), bool, int, float, str, bytes)


class _DefaultValue:
    """A default value in a signature, with a bounded form."""

    def __init__(self, value: object) -> None:
        self._text = safe_repr(value, ITEM_MAX, user_code=True)

    def __repr__(self) -> str:
        return self._text


def _is_callable(value: object) -> bool:
    return has_method(type(value), "__call__")


def _is_plain_function(value: Any) -> bool:
    """Whether nothing of a person's runs when this is described: a function typed here, with plain defaults."""
    if (
        type(value) is not types.FunctionType
        or value.__dict__
        or not value.__code__.co_filename.startswith(SOURCE_PREFIX)
    ):
        return False
    annotated: Any = getattr(value, "__annotate__", None) if _LAZY_ANNOTATIONS else value.__annotations__
    if annotated:
        return False
    defaults = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    return all(any(type(one) is plain for plain in _PLAIN_DEFAULTS) for one in defaults)


def _callable_section(value: Any, sources: SourceCache) -> dict[str, Any]:
    found: dict[str, Any] = {"module": _callable_module(value), "signature": None, "doc": None}
    attempt = Attempt()
    with attempt:
        found["signature"] = _signature_text(value)
    attempt = Attempt()
    with attempt:
        doc = _doc_of(value, user_code=True)
        found["doc"] = None if doc is None else doc[:DOC_HEAD]
    text: str | None = None
    truncated = False
    attempt = Attempt()
    with attempt:
        text, truncated = source_preview(value, sources)
    found["source_preview"] = text
    found["source_truncated"] = truncated
    return found


def _signature_text(value: Any) -> str | None:
    """As a person would write it; raises where there is none, as for some built-in functions."""
    made = _signature(value)
    parameters = [
        parameter
        if parameter.default is inspect.Parameter.empty
        else parameter.replace(default=_DefaultValue(parameter.default))
        for parameter in made.parameters.values()
    ]
    text = str(made.replace(parameters=parameters))
    if not is_derived(type(text), str):
        return None
    return str.__getitem__(text, slice(0, SIGNATURE_MAX))


def _callable_module(value: Any) -> str | None:
    if is_class(value):
        return type_module(value) or None
    own = instance_dict(value)
    if own is not None and type(own.get("__module__")) is str:
        return plain_name(own["__module__"])
    slot = type_attribute(type(value), "__module__")
    if type(slot) is str:
        return plain_name(slot)
    attempt = Attempt()
    with attempt:
        return plain_name(value.__module__) or None
    return None


# --- Puts the answer of `inspect` together, section by section, the safe ones first.

globals()["__builtins__"] = BUILTINS

_SECTION_ORDER = (
    "type",
    "kind",
    "state",
    "repr",
    "repr_error",
    "size",
    "len_error",
    "sample",
    "sample_error",
    "members",
    "dir_error",
    "doc",
    "doc_error",
    "callable",
    "callable_error",
    "exception",
    "exception_error",
    "limits",
)
_Section = tuple[str, Any]


def sections(value: object, sources: SourceCache, *, user_code: bool) -> Iterator[_Section]:
    """The sections as they become known. `("at", …)` says which one comes next, by the name of its failure."""
    kind = kind_of(value)
    yield "type", type_section(value)
    yield "kind", kind
    state = generator_state(value)
    if state is not None:
        yield "state", state
    names = members.static_names(value)
    yield "members", members.members_section(names)
    if _is_callable(value):
        if not user_code and not _is_plain_function(value):
            raise NeedsFork
        yield from _guarded_section("callable", lambda: _callable_section(value, sources))
    if kind == "exception":
        if not user_code:
            raise NeedsFork
        yield from _guarded_section("exception", lambda: exception_section(value))  # type: ignore[arg-type]  # its kind says so
    elif is_exception_class(value):
        yield "exception", {"exc_type": type_name(value), "message": None, "traceback": None}  # type: ignore[arg-type]
    yield from _guarded_section("size", lambda: _size_of(value, user_code=user_code), error="len_error")
    yield from _guarded_section("sample", lambda: _sample_of(value, user_code=user_code))
    yield from _doc_sections(value, user_code=user_code)
    yield from _repr_sections(value, user_code=user_code)
    if members.has_own_dir(value):
        if not user_code:
            raise NeedsFork
        yield from _guarded_section(
            "members", lambda: members.members_section(members.names_from_dir(value, names)), error="dir_error"
        )


def _guarded_section(name: str, make: Any, *, error: str = "") -> Iterator[_Section]:
    attempt = Attempt()
    made = None
    error = error or f"{name}_error"
    yield "at", error
    with attempt:
        made = make()
    if attempt.error is not None:
        if type(attempt.error) is NeedsFork:
            raise attempt.error
        yield error, error_text(attempt.error)
    elif made is not None:
        yield name, made


def _doc_sections(value: object, *, user_code: bool) -> Iterator[_Section]:
    def make() -> dict[str, Any] | None:
        text = _doc_of(value, user_code=user_code)
        return None if text is None else _doc_section(text)

    return _guarded_section("doc", make)


def _repr_sections(value: object, *, user_code: bool) -> Iterator[_Section]:
    for name, section in _guarded_section("repr", lambda: bounded_repr(value, REPR_MAX, user_code=user_code).section()):
        if name == "repr_error":
            text = default_repr(value)
            yield "repr", {"text": text, "truncated": False, "original_len": len(text)}
        yield name, section


def assemble(found: dict[str, Any]) -> dict[str, Any]:
    """The sections in the order of the answer, with the limits, below the bound."""
    found = {**found, "limits": dict(LIMITS)}
    return _fit_payload({name: found[name] for name in _SECTION_ORDER if name in found})


def describe_static(value: object, sources: SourceCache) -> dict[str, Any]:
    """The whole answer without a fork. Raises `NeedsFork` where a person's code would have to run."""
    found = {name: section for name, section in sections(value, sources, user_code=False) if name != "at"}
    return assemble(found)
