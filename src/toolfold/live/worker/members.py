"""The names an object has, told apart into data and callables, by static lookup: no property runs.

A type's own `__dir__` is a person's code: it is asked last, in the forked child, and adds names.
"""

import types
from typing import Any

from toolfold.live.worker.keep import BUILTINS
from toolfold.live.worker.limits import MEMBER_NAME_MAX, MEMBERS_MAX, NAMES_SEEN_MAX
from toolfold.live.worker.static import (
    MISSING,
    bases_of,
    class_dict,
    derives,
    has,
    instance_dict,
    is_class,
    on_type,
    text_of,
)

globals()["__builtins__"] = BUILTINS

_METHODS = (
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
    classes = bases_of(value) if is_class(value) else bases_of(type(value))  # type: ignore[arg-type]  # a class
    places += [class_dict(cls) for cls in classes]
    for place in places:
        for name, held in place.items():
            if len(found) >= NAMES_SEEN_MAX:
                return found
            if type(name) is str and name not in found:
                found[name] = held
    return found


def is_method(held: object) -> bool:
    cls = type(held)
    return derives(cls, *_METHODS) or (cls is not property and has(cls, "__call__"))


def section(names: dict[str, Any]) -> dict[str, Any]:
    """Public names come before private ones where not all can be shown; those shown are sorted."""
    groups: dict[str, list[str]] = {"data": [], "callables": []}
    dunders = 0
    for name, held in names.items():
        if name.startswith("__") and name.endswith("__"):
            dunders += 1
        else:
            groups["callables" if is_method(held) else "data"].append(name)
    shown: dict[str, Any] = {}
    for group, all_names in groups.items():
        chosen = sorted(all_names, key=_public_first)[:MEMBERS_MAX]
        shown[group] = sorted(text_of(name, MEMBER_NAME_MAX) for name in chosen)
    truncated = any(len(all_names) > MEMBERS_MAX for all_names in groups.values()) or len(names) >= NAMES_SEEN_MAX
    return {**shown, "dunder_count": dunders, "shown_per_group": MEMBERS_MAX, "truncated": truncated}


def _public_first(name: str) -> tuple[bool, str]:
    return name.startswith("_"), name


def asks_dir(value: object) -> bool:
    """Whether the type has a `__dir__` of its own."""
    how = on_type(type(value), "__dir__")
    return how is not MISSING and not any(how is known for known in _BUILTIN_DIRS)


def told_names(value: object, known: dict[str, Any]) -> dict[str, Any]:
    """The static names and those that the object's `__dir__` tells. Raises whatever that raises."""
    names = dict(known)
    answer = on_type(type(value), "__dir__")
    told = answer.__get__(value, type(value))() if has(type(answer), "__get__") else answer()
    for number, name in enumerate(told):
        if number >= NAMES_SEEN_MAX:
            break
        if type(name) is str:
            names.setdefault(name, None)
    return names
