"""Puts the answer of `inspect` together, section by section, the safe ones first.

Each section is told as soon as it is known, so that a crash in a later one loses nothing. A section that fails says so
under its own name and `_error`.
"""

from collections.abc import Iterator
from typing import Any

from toolfold.live.worker import members
from toolfold.live.worker.callables import callable_section, is_callable, is_plain
from toolfold.live.worker.docs import doc_of, doc_section
from toolfold.live.worker.exceptions import exception_section
from toolfold.live.worker.fitting import fit
from toolfold.live.worker.keep import BUILTINS, Attempt, NeedsFork
from toolfold.live.worker.kinds import is_exception_class, kind_of, state_of
from toolfold.live.worker.limits import LIMITS, REPR_MAX
from toolfold.live.worker.reprs import bounded_repr, error_text, fallback
from toolfold.live.worker.samples import sample_of, size_of
from toolfold.live.worker.sources import Sources
from toolfold.live.worker.static import name_of, type_section

globals()["__builtins__"] = BUILTINS

_ORDER = (
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
Section = tuple[str, Any]


def sections(value: object, sources: Sources, *, user_code: bool) -> Iterator[Section]:
    """The sections as they become known. `("at", …)` says which one comes next, by the name of its failure."""
    kind = kind_of(value)
    yield "type", type_section(value)
    yield "kind", kind
    state = state_of(value)
    if state is not None:
        yield "state", state
    names = members.static_names(value)
    yield "members", members.section(names)
    if is_callable(value):
        if not user_code and not is_plain(value):
            raise NeedsFork
        yield from _guarded("callable", lambda: callable_section(value, sources))
    if kind == "exception":
        if not user_code:
            raise NeedsFork
        yield from _guarded("exception", lambda: exception_section(value))  # type: ignore[arg-type]  # its kind says so
    elif is_exception_class(value):
        yield "exception", {"exc_type": name_of(value), "message": None, "traceback": None}  # type: ignore[arg-type]
    yield from _guarded("size", lambda: size_of(value, user_code=user_code), error="len_error")
    yield from _guarded("sample", lambda: sample_of(value, user_code=user_code))
    yield from _doc(value, user_code=user_code)
    yield from _repr(value, user_code=user_code)
    if members.asks_dir(value):
        if not user_code:
            raise NeedsFork
        yield from _guarded("members", lambda: members.section(members.told_names(value, names)), error="dir_error")


def _guarded(name: str, make: Any, *, error: str = "") -> Iterator[Section]:
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


def _doc(value: object, *, user_code: bool) -> Iterator[Section]:
    def make() -> dict[str, Any] | None:
        text = doc_of(value, user_code=user_code)
        return None if text is None else doc_section(text)

    return _guarded("doc", make)


def _repr(value: object, *, user_code: bool) -> Iterator[Section]:
    for name, section in _guarded("repr", lambda: bounded_repr(value, REPR_MAX, user_code=user_code).section()):
        if name == "repr_error":
            text = fallback(value)
            yield "repr", {"text": text, "truncated": False, "original_len": len(text)}
        yield name, section


def assembled(found: dict[str, Any]) -> dict[str, Any]:
    """The sections in the order of the answer, with the limits, below the bound."""
    found = {**found, "limits": dict(LIMITS)}
    return fit({name: found[name] for name in _ORDER if name in found})


def described(value: object, sources: Sources) -> dict[str, Any]:
    """The whole answer without a fork. Raises `NeedsFork` where a person's code would have to run."""
    found = {name: section for name, section in sections(value, sources, user_code=False) if name != "at"}
    return assembled(found)
