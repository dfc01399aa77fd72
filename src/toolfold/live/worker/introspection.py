"""Reads objects without running any of their code: the real type, its bases, its names as they stand.

`isinstance`, `getattr` and `in` may all call user code. The functions here compare by identity and read through the
slots of `type` and `object` only. Above: `inspection`, `namespace` and whatever else describes objects.
"""

import types
from typing import Any

from toolfold.live.worker.limits import NAMES_MAX
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
    bases: tuple[type, ...] = _MRO.__get__(cls)
    return bases


def is_derived(cls: type, *ancestors: type) -> bool:
    """Whether one of `ancestors` is among the real bases. `issubclass` would ask the metaclass."""
    return any(base is ancestor for base in mro(cls) for ancestor in ancestors)


def is_class(value: object) -> bool:
    return is_derived(type(value), type)


def class_dict(cls: type) -> Any:
    """The class's own names, as a read-only mapping."""
    return _DICT.__get__(cls)


def type_attribute(cls: type, name: str) -> Any:
    """What the type defines under a name, unbound, or `MISSING`. Never reads the instance."""
    for base in mro(cls):
        names = class_dict(base)
        if name in names:
            return names[name]
    return MISSING


def has_method(cls: type, name: str) -> bool:
    # `None` switches a method off, as in `__hash__ = None`.
    method = type_attribute(cls, name)
    return method is not MISSING and method is not None


def instance_dict(value: object) -> dict[Any, Any] | None:
    """The instance's real `__dict__`, or `None`. A property of that name is skipped."""
    for base in mro(type(value)):
        slot = class_dict(base).get("__dict__")
        if any(type(slot) is kind for kind in _SLOT_TYPES) and slot.__objclass__ is base:
            names = slot.__get__(value, type(value))
            return names if type(names) is dict else None
    return None


def plain_name(value: object, limit: int = _NAME_MAX) -> str:
    """A name from a user's class: only an exact string counts, and a long one is shortened."""
    if type(value) is not str:
        return ""
    return value if len(value) <= limit else value[: limit - 1] + "…"


def type_name(cls: type) -> str:
    return plain_name(_NAME.__get__(cls))


def type_module(cls: type) -> str:
    # The slot reads the class's dictionary, where anything may stand, or nothing.
    try:
        return plain_name(_MODULE.__get__(cls))
    except AttributeError:
        return ""


def qualified_name(cls: type) -> str:
    name = plain_name(_QUALNAME.__get__(cls)) or type_name(cls)
    module = type_module(cls)
    return f"{module}.{name}" if module else name


def static_names(value: object) -> dict[str, Any]:
    """Every name with what stands under it, unbound: the instance's own first, then those of its classes."""
    names: dict[str, Any] = {}
    classes = mro(value) if is_class(value) else mro(type(value))  # type: ignore[arg-type]  # a class
    for scope in (instance_dict(value) or {}, *(class_dict(cls) for cls in classes)):
        for name, member in scope.items():
            if len(names) >= NAMES_MAX:
                return names
            if type(name) is str and name not in names:
                names[name] = member
    return names
