"""The documentation of an object: read as it stands where it is a plain string, asked for in the forked child else."""

import types
from typing import Any

from toolfold.live.worker.keep import BUILTINS, NeedsFork
from toolfold.live.worker.limits import DOC_MAX
from toolfold.live.worker.static import MISSING, class_dict, derives, instance_dict, is_class, on_type

globals()["__builtins__"] = BUILTINS

_OWN_SLOT = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, range)


class NotText(Exception):
    """`__doc__` is neither a string nor `None`."""


def doc_of(value: object, *, user_code: bool) -> str | None:
    """Raises whatever a property in its place raises. Plain data has none: the text would be that of its type."""
    cls = type(value)
    if any(cls is plain for plain in _PLAIN):
        return None
    found = _standing(value)
    if found is None or type(found) is str:
        return found
    if not user_code:
        raise NeedsFork
    told = getattr(value, "__doc__", None)
    if told is None:
        return None
    if not derives(type(told), str):
        raise NotText(f"__doc__ is of type {type(told).__name__}")
    return str.__getitem__(told, slice(None))


def _standing(value: Any) -> Any:
    cls = type(value)
    if any(cls is known for known in _OWN_SLOT):
        return value.__doc__
    if is_class(value):
        return class_dict(value).get("__doc__")
    own = instance_dict(value)
    if own is not None and all(type(name) is str for name in own) and "__doc__" in own:
        return own["__doc__"]
    found = on_type(cls, "__doc__")
    return None if found is MISSING else found


def doc_section(text: str) -> dict[str, Any]:
    return {"text": text[:DOC_MAX], "truncated": len(text) > DOC_MAX, "original_len": len(text)}
