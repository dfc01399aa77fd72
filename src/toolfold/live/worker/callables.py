"""The `callable` section: module, signature, doc and source preview, each of which may be missing.

It runs in the forked child: a signature may have hooks, and default values have forms of their own.
"""

import inspect
import sys
import types
from typing import Any

from toolfold.live.worker.docs import doc_of
from toolfold.live.worker.keep import BUILTINS, Attempt
from toolfold.live.worker.limits import DOC_HEAD, ITEM_MAX, SIGNATURE_MAX
from toolfold.live.worker.reprs import safe_text
from toolfold.live.worker.sources import PREFIX, Sources, preview
from toolfold.live.worker.static import derives, has, instance_dict, is_class, module_of, on_type, text_of

globals()["__builtins__"] = BUILTINS

_signature = inspect.signature
_LAZY_ANNOTATIONS = sys.version_info >= (3, 14)
_PLAIN_DEFAULTS = (type(None), bool, int, float, str, bytes)


class Shown:
    """A default value in a signature, with a bounded form."""

    def __init__(self, value: object) -> None:
        self._text = safe_text(value, ITEM_MAX, user_code=True)

    def __repr__(self) -> str:
        return self._text


def is_callable(value: object) -> bool:
    return has(type(value), "__call__")


def is_plain(value: Any) -> bool:
    """Whether nothing of a person's runs when this is described: a function typed here, with plain defaults."""
    if type(value) is not types.FunctionType or value.__dict__ or not value.__code__.co_filename.startswith(PREFIX):
        return False
    annotated: Any = getattr(value, "__annotate__", None) if _LAZY_ANNOTATIONS else value.__annotations__
    if annotated:
        return False
    defaults = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    return all(any(type(one) is plain for plain in _PLAIN_DEFAULTS) for one in defaults)


def callable_section(value: Any, sources: Sources) -> dict[str, Any]:
    found: dict[str, Any] = {"module": _module(value), "signature": None, "doc": None}
    attempt = Attempt()
    with attempt:
        found["signature"] = signature_text(value)
    attempt = Attempt()
    with attempt:
        doc = doc_of(value, user_code=True)
        found["doc"] = None if doc is None else doc[:DOC_HEAD]
    text: str | None = None
    truncated = False
    attempt = Attempt()
    with attempt:
        text, truncated = preview(value, sources)
    found["source_preview"] = text
    found["source_truncated"] = truncated
    return found


def signature_text(value: Any) -> str | None:
    """As a person would write it; raises where there is none, as for some built-in functions."""
    made = _signature(value)
    parameters = [
        parameter
        if parameter.default is inspect.Parameter.empty
        else parameter.replace(default=Shown(parameter.default))
        for parameter in made.parameters.values()
    ]
    text = str(made.replace(parameters=parameters))
    if not derives(type(text), str):
        return None
    return str.__getitem__(text, slice(0, SIGNATURE_MAX))


def _module(value: Any) -> str | None:
    if is_class(value):
        return module_of(value) or None
    own = instance_dict(value)
    if own is not None and type(own.get("__module__")) is str:
        return text_of(own["__module__"])
    slot = on_type(type(value), "__module__")
    if type(slot) is str:
        return text_of(slot)
    attempt = Attempt()
    with attempt:
        return text_of(value.__module__) or None
    return None
