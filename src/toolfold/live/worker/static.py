"""Looks at objects without running any of their code: the real type, its bases, the dictionaries as they stand.

`isinstance`, `getattr` and `in` may all call a person's code. What stands here compares by identity and reads through
the slots of `type` and `object` only.
"""

import types
from typing import Any

from toolfold.live.worker.keep import BUILTINS

globals()["__builtins__"] = BUILTINS

_MRO = type.__dict__["__mro__"]
_DICT = type.__dict__["__dict__"]
_NAME = type.__dict__["__name__"]
_QUALNAME = type.__dict__["__qualname__"]
_MODULE = type.__dict__["__module__"]
_SLOT_TYPES = (types.GetSetDescriptorType, types.MemberDescriptorType)
NAME_MAX = 200
MISSING = object()


def bases_of(cls: type) -> tuple[type, ...]:
    found: tuple[type, ...] = _MRO.__get__(cls)
    return found


def derives(cls: type, *ancestors: type) -> bool:
    """Whether one of `ancestors` is among the real bases. `issubclass` would ask the metaclass."""
    return any(base is ancestor for base in bases_of(cls) for ancestor in ancestors)


def is_class(value: object) -> bool:
    return derives(type(value), type)


def class_dict(cls: type) -> Any:
    """The class's own names, as a mapping that only reads."""
    return _DICT.__get__(cls)


def on_type(cls: type, name: str) -> Any:
    """What the type defines under a name, unbound; `MISSING` where it does not. Never looks at the instance."""
    for base in bases_of(cls):
        names = class_dict(base)
        if name in names:
            return names[name]
    return MISSING


def has(cls: type, name: str) -> bool:
    """Whether the type offers a method. `None` stands for "switched off", as in `__hash__ = None`."""
    found = on_type(cls, name)
    return found is not MISSING and found is not None


def instance_dict(value: object) -> dict[Any, Any] | None:
    """The instance's real `__dict__`; `None` where there is none. A property of that name is passed over."""
    for base in bases_of(type(value)):
        slot = class_dict(base).get("__dict__")
        if any(type(slot) is kind for kind in _SLOT_TYPES) and slot.__objclass__ is base:
            found = slot.__get__(value, type(value))
            return found if type(found) is dict else None
    return None


def text_of(value: object, limit: int = NAME_MAX) -> str:
    """A name that came from a person's class: only an exact string counts, and never a long one."""
    if type(value) is not str:
        return ""
    return value if len(value) <= limit else value[: limit - 1] + "…"


def name_of(cls: type) -> str:
    return text_of(_NAME.__get__(cls))


def module_of(cls: type) -> str:
    """`type.__module__` reads the class's dictionary, where anything may stand."""
    try:
        return text_of(_MODULE.__get__(cls))
    except AttributeError:
        return ""


def qualified(cls: type) -> str:
    name = text_of(_QUALNAME.__get__(cls)) or name_of(cls)
    module = module_of(cls)
    return f"{module}.{name}" if module else name


def type_section(value: object) -> dict[str, str]:
    """The `type` section. `type(value)` is the truth; `value.__class__` may lie."""
    cls = type(value)
    return {"name": name_of(cls), "module": module_of(cls), "qualified": qualified(cls)}
