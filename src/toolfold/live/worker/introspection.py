"""Looks at objects without running any of their code: the real type, its bases, the dictionaries as they stand.

`isinstance`, `getattr` and `in` may all call a person's code. What stands here compares by identity and reads through
the slots of `type` and `object` only.
"""

import _collections_abc as abstract
import array
import collections
import io
import mmap
import types
import weakref
from typing import Any

from toolfold.live.worker.limits import MEMBER_NAME_MAX, MEMBERS_MAX, NAMES_SEEN_MAX
from toolfold.live.worker.originals import BUILTINS

globals()["__builtins__"] = BUILTINS

_MRO = type.__dict__["__mro__"]
_DICT = type.__dict__["__dict__"]
_NAME = type.__dict__["__name__"]
_QUALNAME = type.__dict__["__qualname__"]
_MODULE = type.__dict__["__module__"]
_SLOT_TYPES = (types.GetSetDescriptorType, types.MemberDescriptorType)
_NAME_MAX = 200
MISSING = object()


def mro(cls: type) -> tuple[type, ...]:
    found: tuple[type, ...] = _MRO.__get__(cls)
    return found


def is_derived(cls: type, *ancestors: type) -> bool:
    """Whether one of `ancestors` is among the real bases. `issubclass` would ask the metaclass."""
    return any(base is ancestor for base in mro(cls) for ancestor in ancestors)


def is_class(value: object) -> bool:
    return is_derived(type(value), type)


def class_dict(cls: type) -> Any:
    """The class's own names, as a mapping that only reads."""
    return _DICT.__get__(cls)


def type_attribute(cls: type, name: str) -> Any:
    """What the type defines under a name, unbound; `MISSING` where it does not. Never looks at the instance."""
    for base in mro(cls):
        names = class_dict(base)
        if name in names:
            return names[name]
    return MISSING


def has_method(cls: type, name: str) -> bool:
    """Whether the type offers a method. `None` stands for "switched off", as in `__hash__ = None`."""
    found = type_attribute(cls, name)
    return found is not MISSING and found is not None


def instance_dict(value: object) -> dict[Any, Any] | None:
    """The instance's real `__dict__`; `None` where there is none. A property of that name is passed over."""
    for base in mro(type(value)):
        slot = class_dict(base).get("__dict__")
        if any(type(slot) is kind for kind in _SLOT_TYPES) and slot.__objclass__ is base:
            found = slot.__get__(value, type(value))
            return found if type(found) is dict else None
    return None


def plain_name(value: object, limit: int = _NAME_MAX) -> str:
    """A name that came from a person's class: only an exact string counts, and never a long one."""
    if type(value) is not str:
        return ""
    return value if len(value) <= limit else value[: limit - 1] + "…"


def type_name(cls: type) -> str:
    return plain_name(_NAME.__get__(cls))


def type_module(cls: type) -> str:
    """`type.__module__` reads the class's dictionary, where anything may stand."""
    try:
        return plain_name(_MODULE.__get__(cls))
    except AttributeError:
        return ""


def qualified_name(cls: type) -> str:
    name = plain_name(_QUALNAME.__get__(cls)) or type_name(cls)
    module = type_module(cls)
    return f"{module}.{name}" if module else name


def type_section(value: object) -> dict[str, str]:
    """The `type` section. `type(value)` is the truth; `value.__class__` may lie."""
    cls = type(value)
    return {"name": type_name(cls), "module": type_module(cls), "qualified": qualified_name(cls)}


# --- Tells what kind of thing an object is, by its real type alone.

globals()["__builtins__"] = BUILTINS

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
_NUMBER_TYPES = frozenset({"decimal.Decimal", "fractions.Fraction", "numpy.generic"})
_FILE_BASE = mro(io.StringIO)[-2]
_SINGLETON_TYPES = (type(Ellipsis), type(NotImplemented))


def kind_of(value: object) -> str:
    if value is None:
        return "none"
    cls = type(value)
    if cls is bool:
        return "bool"
    for kind, ancestors in _KINDS_BY_TYPE:
        if is_derived(cls, *ancestors):
            return kind
    if _is_number(cls):
        return "number"
    if is_derived(cls, *_SINGLETON_TYPES):
        return "other"
    return _kind_by_methods(cls)


def _is_number(cls: type) -> bool:
    """Numbers of the library and of numpy, found by name so that nothing is imported for it."""
    return any(qualified_name(base) in _NUMBER_TYPES for base in mro(cls))


def _kind_by_methods(cls: type) -> str:
    if is_derived(cls, _FILE_BASE, *weakref.ProxyTypes):
        return "object"  # an open file is an iterator too, and nobody looks for it there; a proxy has every method
    if has_method(cls, "__next__") and has_method(cls, "__iter__"):
        return "iterator"
    if has_method(cls, "__call__"):
        return "callable"
    return "object"


def is_exception_class(value: object) -> bool:
    return is_class(value) and is_derived(value, BaseException)  # type: ignore[arg-type]  # it is a class: just asked


def generator_state(value: object) -> str | None:
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


# --- The names an object has, told apart into data and callables, by static lookup: no property runs.

globals()["__builtins__"] = BUILTINS

_METHOD_TYPES = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    classmethod,
    staticmethod,
)
_BUILTIN_DIRS = tuple(class_dict(cls)["__dir__"] for cls in (object, type, types.ModuleType))


def static_names(value: object) -> dict[str, Any]:
    """Every name with what stands under it, unbound: the instance's own first, then those of its classes."""
    found: dict[str, Any] = {}
    places: list[Any] = []
    own = instance_dict(value)
    if own is not None:
        places.append(own)
    classes = mro(value) if is_class(value) else mro(type(value))  # type: ignore[arg-type]  # a class
    places += [class_dict(cls) for cls in classes]
    for place in places:
        for name, held in place.items():
            if len(found) >= NAMES_SEEN_MAX:
                return found
            if type(name) is str and name not in found:
                found[name] = held
    return found


def _is_method(held: object) -> bool:
    cls = type(held)
    return is_derived(cls, *_METHOD_TYPES) or (cls is not property and has_method(cls, "__call__"))


def members_section(names: dict[str, Any]) -> dict[str, Any]:
    """Public names come before private ones where not all can be shown; those shown are sorted."""
    groups: dict[str, list[str]] = {"data": [], "callables": []}
    dunders = 0
    for name, held in names.items():
        if name.startswith("__") and name.endswith("__"):
            dunders += 1
        else:
            groups["callables" if _is_method(held) else "data"].append(name)
    shown: dict[str, Any] = {}
    for group, all_names in groups.items():
        chosen = sorted(all_names, key=_public_first)[:MEMBERS_MAX]
        shown[group] = sorted(plain_name(name, MEMBER_NAME_MAX) for name in chosen)
    truncated = any(len(all_names) > MEMBERS_MAX for all_names in groups.values()) or len(names) >= NAMES_SEEN_MAX
    return {**shown, "dunder_count": dunders, "shown_per_group": MEMBERS_MAX, "truncated": truncated}


def _public_first(name: str) -> tuple[bool, str]:
    return name.startswith("_"), name


def has_own_dir(value: object) -> bool:
    """Whether the type has a `__dir__` of its own."""
    how = type_attribute(type(value), "__dir__")
    return how is not MISSING and not any(how is known for known in _BUILTIN_DIRS)


def names_from_dir(value: object, known: dict[str, Any]) -> dict[str, Any]:
    """The static names and those that the object's `__dir__` tells. Raises whatever that raises."""
    names = dict(known)
    answer = type_attribute(type(value), "__dir__")
    told = answer.__get__(value, type(value))() if has_method(type(answer), "__get__") else answer()
    for number, name in enumerate(told):
        if number >= NAMES_SEEN_MAX:
            break
        if type(name) is str:
            names.setdefault(name, None)
    return names
