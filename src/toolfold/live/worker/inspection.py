"""The answer of `inspect`, section by section, the safe ones first.

In the session's own process only sections that run no user code are made; `NeedsFork` asks for a forked child, which
passes `user_code=True`. Above: `session_process`. Below: `introspection`, `bounded_repr`, `exceptions`, `sources`.
"""

import _collections_abc as abstract
import array
import collections
import inspect
import io
import mmap
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from toolfold.live.worker import limits
from toolfold.live.worker.bounded_repr import bounded_repr, builtin_len, default_repr, error_text, safe_repr, set_items
from toolfold.live.worker.exceptions import exception_section
from toolfold.live.worker.frames import dumps
from toolfold.live.worker.introspection import (
    MISSING,
    class_dict,
    has_method,
    instance_dict,
    is_class,
    is_derived,
    mro,
    plain_name,
    qualified_name,
    static_names,
    type_attribute,
    type_module,
    type_name,
)
from toolfold.live.worker.originals import BUILTINS, Attempt, NeedsFork
from toolfold.live.worker.sources import SOURCE_PREFIX, SourceCache

globals()["__builtins__"] = BUILTINS

_SECTION_ORDER = (
    *("type", "kind", "state", "repr", "repr_error", "size", "len_error", "dtypes", "dtypes_error"),
    *("sample", "sample_error"),
    *("members", "dir_error", "doc", "doc_error", "callable", "callable_error", "exception", "exception_error"),
    "limits",
)
# What may be shortened to fit the payload, and the field that says so: (section, field, mark).
_SHORTENED = (
    ("repr", "text", "truncated"),
    ("doc", "text", "truncated"),
    ("callable", "source_preview", "source_truncated"),
    ("callable", "doc", "doc_truncated"),
    ("callable", "signature", "signature_truncated"),
    ("exception", "message", "message_truncated"),
    ("exception", "traceback", "traceback_truncated"),
    ("sample", "items", "truncated"),
    ("members", "data", "truncated"),
    ("members", "callables", "truncated"),
    ("exception", "causes", "truncated"),
    ("exception", "exceptions", "truncated"),
)
_signature = inspect.signature
_len = len
_Section = tuple[str, Any]


def sections(value: Any, sources: SourceCache, *, user_code: bool) -> Iterator[_Section]:
    """The sections as they are ready. `("at", …)` announces the next one by the name of its error."""
    kind = _kind_of(value)
    yield "type", _type_section(value)
    yield "kind", kind
    state = _generator_state(value)
    if state is not None:
        yield "state", state
    names = static_names(value)
    yield "members", _members_section(names)
    if has_method(type(value), "__call__"):
        _require_child(user_code or _is_plain_function(value))
        yield from _guarded("callable", lambda: _callable_section(value, sources))
    if kind == "exception":
        _require_child(user_code)
        yield from _guarded("exception", lambda: exception_section(value))
    elif kind == "class" and is_derived(value, BaseException):
        yield "exception", {"exc_type": type_name(value), "message": None, "traceback": None}
    yield from _guarded("size", lambda: _size_section(value, user_code=user_code), error="len_error")
    yield from _guarded("dtypes", lambda: _dtypes_section(value, user_code=user_code))
    yield from _guarded("sample", lambda: _sample_section(value, user_code=user_code))
    yield from _guarded("doc", lambda: _doc_section(value, user_code=user_code))
    yield from _repr_sections(value, user_code=user_code)
    if _has_own_dir(value):
        _require_child(user_code)
        yield from _guarded("members", lambda: _members_section(_names_from_dir(value, names)), error="dir_error")


def _require_child(user_code: bool) -> None:
    if not user_code:
        raise NeedsFork


def _guarded(name: str, make: Callable[[], Any], *, error: str = "") -> Iterator[_Section]:
    error = error or f"{name}_error"
    section = None
    yield "at", error
    with Attempt() as attempt:
        section = make()
    if attempt.error is not None:
        if type(attempt.error) is NeedsFork:
            raise attempt.error
        yield error, error_text(attempt.error)
    elif section is not None:
        yield name, section


def _repr_sections(value: object, *, user_code: bool) -> Iterator[_Section]:
    for name, section in _guarded("repr", lambda: bounded_repr(value, limits.REPR_MAX, user_code=user_code)):
        if name == "repr_error":
            text = default_repr(value)
            yield "repr", {"text": text, "truncated": False, "original_len": len(text)}
        yield name, section


def describe_static(value: object, sources: SourceCache) -> dict[str, Any]:
    """The whole answer without a fork. Raises `NeedsFork` where user code would have to run."""
    return assemble({name: section for name, section in sections(value, sources, user_code=False) if name != "at"})


def assemble(ready: dict[str, Any]) -> dict[str, Any]:
    """The sections in the order of the answer, with the limits, below the bound on a payload."""
    ready = {**ready, "limits": dict(limits.LIMITS)}
    return _fit_payload({name: ready[name] for name in _SECTION_ORDER if name in ready})


def _fit_payload(result: dict[str, Any]) -> dict[str, Any]:
    """Halves the longest text or list until the whole fits."""
    while len(dumps(result)) > limits.PAYLOAD_MAX:
        candidates = [
            (len(dumps(result[name][field])), name, field, mark)
            for name, field, mark in _SHORTENED
            if type(result.get(name)) is dict and type(result[name].get(field)) in {str, list} and result[name][field]
        ]
        if not candidates:
            return {key: result[key] for key in ("type", "kind")}
        _, name, field, mark = max(candidates)
        section = result[name]
        section[field] = section[field][: len(section[field]) // 2]
        section[mark] = True
        if field == "items":
            section["shown"] = len(section[field])
    return result


def _type_section(value: object) -> dict[str, str]:
    # `type(value)` is the truth; `value.__class__` may lie.
    cls = type(value)
    return {"name": type_name(cls), "module": type_module(cls), "qualified": qualified_name(cls)}


# The order matters: a class is a class before it is callable, an exception is one before it is an object.
_KINDS_BY_TYPE: tuple[tuple[str, tuple[type, ...]], ...] = (
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
# Compared by name, so that no library is imported for it.
_NUMBER_TYPES = frozenset({"decimal.Decimal", "fractions.Fraction", "numpy.generic"})
_FILE_BASE = mro(io.StringIO)[-2]


def _kind_of(value: object) -> str:
    """What kind of thing an object is, by its real type alone."""
    if value is None:
        return "none"
    cls = type(value)
    if cls is bool:
        return "bool"
    for kind, ancestors in _KINDS_BY_TYPE:
        if is_derived(cls, *ancestors):
            return kind
    if any(qualified_name(base) in _NUMBER_TYPES for base in mro(cls)):
        return "number"
    if is_derived(cls, type(Ellipsis), type(NotImplemented)):
        return "other"
    return _kind_by_methods(cls)


def _kind_by_methods(cls: type) -> str:
    # An open file is an iterator too, but nobody thinks of it as one; a weak proxy has every method.
    if is_derived(cls, _FILE_BASE, *weakref.ProxyTypes):
        return "object"
    if has_method(cls, "__next__") and has_method(cls, "__iter__"):
        return "iterator"
    if has_method(cls, "__call__"):
        return "callable"
    return "object"


def _generator_state(value: object) -> str | None:
    """The state of a generator or coroutine; reading it does not advance it."""
    cls = type(value)
    for kind, prefix in ((types.GeneratorType, "gi"), (types.CoroutineType, "cr"), (types.AsyncGeneratorType, "ag")):
        if cls is not kind:
            continue
        if getattr(value, f"{prefix}_running"):
            return "running"
        if getattr(value, f"{prefix}_frame") is None:
            return "finished"
        suspended = getattr(value, f"{prefix}_suspended", None)  # on async generators since Python 3.12
        return None if suspended is None else "suspended" if suspended else "created"
    return None


_METHOD_TYPES = (
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType),
    *(types.ClassMethodDescriptorType, classmethod, staticmethod),
)
_BUILTIN_DIRS = tuple(class_dict(cls)["__dir__"] for cls in (object, type, types.ModuleType))


def _is_method(member: object) -> bool:
    cls = type(member)
    return is_derived(cls, *_METHOD_TYPES) or (cls is not property and has_method(cls, "__call__"))


def _members_section(names: dict[str, Any]) -> dict[str, Any]:
    """Data and callables, each sorted. Where not all fit, public names come before private ones."""
    groups: dict[str, list[str]] = {"data": [], "callables": []}
    dunders = 0
    for name, member in names.items():
        if name.startswith("__") and name.endswith("__"):
            dunders += 1
        else:
            groups["callables" if _is_method(member) else "data"].append(name)
    section: dict[str, Any] = {}
    for group, members in groups.items():
        chosen = sorted(members, key=lambda name: (name.startswith("_"), name))[: limits.MEMBERS_MAX]
        section[group] = sorted(plain_name(name, limits.MEMBER_NAME_MAX) for name in chosen)
    truncated = any(len(members) > limits.MEMBERS_MAX for members in groups.values()) or len(names) >= limits.NAMES_MAX
    return {**section, "dunder_count": dunders, "shown_per_group": limits.MEMBERS_MAX, "truncated": truncated}


def _has_own_dir(value: object) -> bool:
    """Whether the type has a `__dir__` of its own, which is user code."""
    method = type_attribute(type(value), "__dir__")
    return method is not MISSING and not any(method is builtin for builtin in _BUILTIN_DIRS)


def _names_from_dir(value: object, static: dict[str, Any]) -> dict[str, Any]:
    """The static names and those that the object's `__dir__` returns. For forked children; raises what it raises."""
    names = dict(static)
    method = type_attribute(type(value), "__dir__")
    listed = method.__get__(value, type(value))() if has_method(type(method), "__get__") else method()
    for number, name in enumerate(listed):
        if number >= limits.NAMES_MAX:
            break
        if type(name) is str:
            names.setdefault(name, None)
    return names


# Their `__doc__` is a slot of the built-in type.
_SLOT_DOC_TYPES = (
    *(types.FunctionType, types.BuiltinFunctionType),
    *(types.MethodDescriptorType, types.WrapperDescriptorType),
)
# Plain data has no doc of its own: the text would be that of its type.
_UNDOCUMENTED = (
    *(type(None), bool, int, float, complex, str, bytes, bytearray),
    *(list, tuple, dict, set, frozenset, range),
)


class _DocNotText(Exception):
    """`__doc__` is neither a string nor `None`."""


def _doc_section(value: object, *, user_code: bool) -> dict[str, Any] | None:
    text = _doc_of(value, user_code=user_code)
    if text is None:
        return None
    return {"text": text[: limits.DOC_MAX], "truncated": len(text) > limits.DOC_MAX, "original_len": len(text)}


def _doc_of(value: object, *, user_code: bool) -> str | None:
    """Raises whatever a property in place of `__doc__` raises."""
    cls = type(value)
    if any(cls is plain for plain in _UNDOCUMENTED):
        return None
    static = _static_doc(value)
    if static is None or type(static) is str:
        return static
    _require_child(user_code)
    doc = getattr(value, "__doc__", None)
    if doc is None:
        return None
    if not is_derived(type(doc), str):
        raise _DocNotText(f"__doc__ is of type {type(doc).__name__}")
    return str.__getitem__(doc, slice(None))


def _static_doc(value: Any) -> Any:
    cls = type(value)
    if any(cls is known for known in _SLOT_DOC_TYPES):
        return value.__doc__
    if is_class(value):
        return class_dict(value).get("__doc__")
    own = instance_dict(value)
    # A key that is no string may have an `__eq__` of its own, which a lookup could call.
    if own is not None and all(type(name) is str for name in own) and "__doc__" in own:
        return own["__doc__"]
    doc = type_attribute(cls, "__doc__")
    return None if doc is MISSING else doc


# Their libraries are recognised by name and never imported.
_ARRAY_LIBRARIES = frozenset(
    {"numpy", "pandas", "torch", "polars", "xarray", "scipy", "jax", "jaxlib", "cupy", "tensorflow"}
)


def _size_section(value: object, *, user_code: bool) -> dict[str, Any] | None:
    """`len` and `shape`, where they exist. Raises whatever a user's `__len__` raises."""
    if is_derived(type(value), range):
        return {"len": _range_len(value)}
    section: dict[str, Any] = {}
    shape = _shape(value, user_code=user_code)
    length = builtin_len(value)
    # An array without dimensions has a `__len__` that raises.
    if length is None and shape != [] and has_method(type(value), "__len__"):
        _require_child(user_code)
        length = int(_len(value))  # type: ignore[arg-type]  # the type has `__len__`
    if length is not None:
        section["len"] = length
    if shape is not None:
        section["shape"] = shape
    return section or None


def _range_len(value: Any) -> int:
    # `len` fails above the machine's word.
    return int(max(0, -((value.start - value.stop) // value.step)))


def _is_array(value: object, *, user_code: bool) -> bool:
    """Whether it is an array, frame or tensor. Reading more of one runs its library's code."""
    cls = type(value)
    if type_module(cls).partition(".")[0] not in _ARRAY_LIBRARIES or not has_method(cls, "shape"):
        return False
    _require_child(user_code)
    return True


def _shape(value: object, *, user_code: bool) -> list[int] | None:
    """The shape of an array, frame or tensor."""
    if not _is_array(value, user_code=user_code):
        return None
    shape = getattr(value, "shape", None)
    if shape is None or not is_derived(type(shape), tuple):
        return None
    return [int(number) for number in islice(tuple.__iter__(shape), 32)]


def _dtypes_section(value: Any, *, user_code: bool) -> dict[str, str] | None:
    """The type of an array's items, under the name `items`, or that of each of a frame's first columns."""
    if not _is_array(value, user_code=user_code):
        return None
    if has_method(type(value), "columns"):
        columns = islice(zip(value.columns, value.dtypes, strict=False), limits.MEMBERS_MAX)
        return {str(name)[: limits.MEMBER_NAME_MAX]: str(kind)[: limits.ITEM_MAX] for name, kind in columns}
    return {"items": str(value.dtype)[: limits.ITEM_MAX]} if has_method(type(value), "dtype") else None


def _array_items(value: Any) -> Iterator[Any]:
    """The first items of an array, its first rows where it has more dimensions, those of a frame as dicts."""
    if has_method(type(value), "iter_rows"):
        yield from value[: limits.SAMPLE_MAX, : limits.MEMBERS_MAX].iter_rows(named=True)
    elif has_method(type(value), "iloc") and has_method(type(value), "columns"):
        yield from value.iloc[: limits.SAMPLE_MAX, : limits.MEMBERS_MAX].to_dict("records")
    else:
        head = (value.iloc if has_method(type(value), "iloc") else value)[: limits.SAMPLE_MAX]
        yield from head.tolist() if len(value.shape) == 1 and has_method(type(head), "tolist") else head


def _sample_section(value: object, *, user_code: bool) -> dict[str, Any] | None:
    """The first items as text, each bounded by itself; `None` for what is no built-in container and no array."""
    shape = _shape(value, user_code=user_code)
    if shape:
        first = islice(_array_items(value), limits.SAMPLE_MAX)
        items = [safe_repr(item, limits.ITEM_MAX, user_code=True) for item in first]
        return {"items": items, "shown": len(items), "total": shape[0], "truncated": shape[0] > len(items)}
    for base, walk in _WALKS:
        if is_derived(type(value), base):
            items = [text for text in walk(value, user_code)]  # noqa: C416 - `list` may ask user code for a length hint
            total = _total_of(value)
            return {"items": items, "shown": len(items), "total": total, "truncated": total > len(items)}
    return None


def _total_of(value: Any) -> int:
    if is_derived(type(value), range):
        return _range_len(value)
    length = builtin_len(value)
    return length if length is not None else int(_len(value))


_Walk = Callable[[Any, bool], Iterator[str]]


def _walk_items(iterate: Callable[[Any], Iterator[Any]]) -> _Walk:
    def walk(value: Any, user_code: bool) -> Iterator[str]:
        for item in islice(iterate(value), limits.SAMPLE_MAX):
            yield safe_repr(item, limits.ITEM_MAX, user_code=user_code)

    return walk


def _walk_slice(base: Any) -> _Walk:
    return _walk_items(lambda value: iter(base.__getitem__(value, slice(0, limits.SAMPLE_MAX))))


def _walk_pairs(value: Any, user_code: bool) -> Iterator[str]:
    for key, item in islice(dict.items(value), limits.SAMPLE_MAX):
        yield _pair(key, item, user_code)


def _walk_proxy(value: Any, user_code: bool) -> Iterator[str]:
    # A mapping proxy may stand before a user's own mapping, so walking it is user code.
    _require_child(user_code)
    for key in islice(value, limits.SAMPLE_MAX):
        yield _pair(key, value[key], user_code)


def _pair(key: object, item: object, user_code: bool) -> str:
    left = safe_repr(key, limits.ITEM_MAX // 2, user_code=user_code)
    return f"{left}: {safe_repr(item, limits.ITEM_MAX, user_code=user_code)}"


# Only built-in containers are walked, through their own slots: nothing is advanced, no overridden method runs.
_WALKS: tuple[tuple[type, _Walk], ...] = (
    (list, _walk_items(list.__iter__)),
    (tuple, _walk_items(tuple.__iter__)),
    (dict, _walk_pairs),
    (set, _walk_items(set_items)),
    (frozenset, _walk_items(set_items)),
    (range, _walk_items(range.__iter__)),
    (collections.deque, _walk_items(collections.deque.__iter__)),
    (array.array, _walk_slice(array.array)),
    (memoryview, _walk_slice(memoryview)),
    (mmap.mmap, _walk_slice(mmap.mmap)),
    (types.MappingProxyType, _walk_proxy),
    (type({}.keys()), _walk_items(iter)),
    (type({}.values()), _walk_items(iter)),
    (type({}.items()), _walk_items(iter)),
)

_LAZY_ANNOTATIONS = sys.version_info >= (3, 14)
_PLAIN_DEFAULTS = (type(None), bool, int, float, str, bytes)


class _DefaultValue:
    """A default value in a signature, with a bounded repr."""

    def __init__(self, value: object) -> None:
        self._text = safe_repr(value, limits.ITEM_MAX, user_code=True)

    def __repr__(self) -> str:
        return self._text


def _is_plain_function(value: Any) -> bool:
    """Whether describing it runs no user code: a function typed at the prompt, with plain defaults."""
    if type(value) is not types.FunctionType or value.__dict__:
        return False
    if not value.__code__.co_filename.startswith(SOURCE_PREFIX):
        return False
    annotated: Any = getattr(value, "__annotate__", None) if _LAZY_ANNOTATIONS else value.__annotations__
    if annotated:
        return False
    defaults = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    return all(any(type(default) is plain for plain in _PLAIN_DEFAULTS) for default in defaults)


def _callable_section(value: Any, sources: SourceCache) -> dict[str, Any]:
    """Module, signature, doc and source preview, each of which may be missing."""
    section: dict[str, Any] = {"module": _callable_module(value), "signature": None, "doc": None}
    section |= {"source_preview": None, "source_truncated": False}
    with Attempt():
        section["signature"] = _signature_text(value)
    with Attempt():
        doc = _doc_of(value, user_code=True)
        section["doc"] = None if doc is None else doc[: limits.DOC_HEAD]
    with Attempt():
        section["source_preview"], section["source_truncated"] = sources.preview(value)
    return section


def _signature_text(value: Any) -> str | None:
    """The signature as source. Raises where there is none, as for some built-in functions."""
    signature = _signature(value)
    parameters = [
        parameter
        if parameter.default is inspect.Parameter.empty
        else parameter.replace(default=_DefaultValue(parameter.default))
        for parameter in signature.parameters.values()
    ]
    text = str(signature.replace(parameters=parameters))
    return str.__getitem__(text, slice(0, limits.SIGNATURE_MAX)) if is_derived(type(text), str) else None


def _callable_module(value: Any) -> str | None:
    if is_class(value):
        return type_module(value) or None
    own = instance_dict(value)
    if own is not None and type(own.get("__module__")) is str:
        return plain_name(own["__module__"])
    slot = type_attribute(type(value), "__module__")
    if type(slot) is str:
        return plain_name(slot)
    with Attempt():
        return plain_name(value.__module__) or None
    return None
