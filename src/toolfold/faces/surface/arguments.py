"""Reads what a model or a program sent as the arguments of an operation.

Lenient where models err and the meaning is clear: a path as "A/B", a JSON object as text, a number in quotes, `null`
for nothing. Strict where a guess could do harm: an unknown key is named, never dropped. `args` of a call are not even
decoded: they go to the tool as they came.
"""

import re
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from toolfold.errors import InvalidArguments
from toolfold.outputs.service import Mode
from toolfold.types import EMPTY_OBJECT

MAX_LIMIT = 50
MAX_WRITTEN = 100
"""How much of what was sent an error repeats."""

ALSO_CALLED = {"arguments": "args", "parameters": "args", "category": "category_path"}
"""Names that models use for a key. Taken where the operation has the key and the call does not."""


NotEmpty = Annotated[str, Meta(min_length=1)]


class List(Struct, frozen=True):
    path: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    query: str = ""
    limit: int = 10
    cursor: str | None = None


class SearchNodes(Struct, frozen=True):
    query: str
    limit: int = 5


class SearchTools(Struct, frozen=True):
    query: str
    category_path: tuple[str, ...] = ()
    limit: int = 5
    cursor: str | None = None


class ExpandTool(Struct, frozen=True):
    tool_id: str


class CallTool(Struct, frozen=True, forbid_unknown_fields=True):
    tool_id: str
    args: Raw = EMPTY_OBJECT
    expect_version: int | None = None


class InspectToolOutput(Struct, frozen=True):
    tool_id: str
    field_path: str = ""
    max_depth: int = 4
    max_fields: int = 120


class ToolOutput(Struct, frozen=True):
    handle: NotEmpty
    extract: NotEmpty
    mode: Mode = "auto"


class RunScript(Struct, frozen=True):
    code: str


T = TypeVar("T", bound=Struct)


_plain_call = msgspec.json.Decoder(CallTool)


def parse_call(arguments: Raw) -> CallTool:
    """`read` for a call, which is what most requests are: one that is just as it should be is read in one step."""
    try:
        found = _plain_call.decode(arguments)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return parse(CallTool, arguments)
    return found if _starts(found.args, b"{") else parse(CallTool, arguments)


def parse(kind: type[T], arguments: Raw) -> T:
    """The arguments as a value of `kind`. Raises `InvalidArguments` that names each wrong key."""
    given = _object(arguments)
    known = _fields(kind)
    for other, name in ALSO_CALLED.items():
        if other in given and name in known and name not in given and other not in known:
            given[name] = given.pop(other)
    _refuse_unknown(given, list(known))
    found: dict[str, Any] = {}
    for name, field in known.items():
        value = _repaired(name, given[name]) if name in given else UNSET
        if value is UNSET and field.required:
            raise _wrong(name, "is required", list(known))
        if value is not UNSET:
            found[name] = value if name == "args" else _converted(name, value, field.type)
    return kind(**found)


@cache
def _fields(kind: type[Struct]) -> dict[str, "msgspec.structs.FieldInfo"]:
    """Reading the annotations of a value costs more than reading the value."""
    return {field.name: field for field in msgspec.structs.fields(kind)}


def _object(arguments: Raw) -> dict[str, Raw]:
    """The keys, values undecoded. An object that was sent as text is read as the object."""
    given = _decoded(arguments, Any if _starts(arguments, b'"', b"n") else dict[str, Raw])
    if isinstance(given, str):
        given = _decoded(Raw(given.encode()), dict[str, Raw])
    return {} if given is None else dict(given)


def _decoded(raw: Raw, kind: Any) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArguments(
            f"the arguments cannot be read as one JSON object: {error}"[:300],
            next_action='give one JSON object, such as {"query": "rename a symbol"}',
        ) from None


def _refuse_unknown(given: dict[str, Raw], known: list[str]) -> None:
    unknown = [name[:MAX_WRITTEN] for name in given if name not in known]
    if not unknown:
        return
    action = f"use only {', '.join(known)}"
    if "args" in known:
        action = 'put the tool\'s own arguments inside args: {"tool_id": "…", "args": {…}}'
    raise InvalidArguments(
        f"unknown: {', '.join(unknown[:8])}",
        hints=[{"field": name, "problem": f"is unknown; it takes {', '.join(known)}"} for name in unknown[:8]],
        next_action=action,
    )


def _repaired(name: str, raw: Raw) -> Any:
    """What was meant. `UNSET` stands for `null`: as if the key were not there."""
    if name == "args":
        return _args(raw)
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _wrong(name, "cannot be read as JSON") from None
    if value is None:
        return UNSET
    if name in {"path", "category_path"} and isinstance(value, str):
        return _path(value)
    if name == "tags" and isinstance(value, str):
        return [tag.strip() for tag in value.split(",") if tag.strip()]
    if name == "limit":
        return _limited(value)
    return value


def _args(raw: Raw) -> Raw | UnsetType:
    if _starts(raw, b"n"):
        return UNSET
    if not _starts(raw, b'"'):
        return raw
    try:
        return Raw(msgspec.json.decode(raw, type=str).encode() or b"{}")
    except (msgspec.MsgspecError, UnicodeError):
        return raw  # the call's own check says what is wrong


def _path(text: str) -> Any:
    """`Coding/Refactoring`, `Coding > Refactoring` and `["Coding","Refactoring"]` as text are the same path."""
    if text.lstrip().startswith("["):
        try:
            return msgspec.json.decode(text.encode(), type=list[str])
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return [text]
    return [part.strip() for part in re.split(r"[/>]", text) if part.strip()]


def _limited(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d{1,9}\s*", value, re.ASCII):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return int(max(1, min(value, MAX_LIMIT)))


def _converted(name: str, value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _wrong(name, str(error).replace(" - at `$", " at `" + name)) from None


def _wrong(name: str, problem: str, known: list[str] | None = None) -> InvalidArguments:
    takes = f"give {', '.join(known)}" if known else f"give {name} as its schema says"
    return InvalidArguments(
        f"{name}: {problem}"[:300], hints=[{"field": name, "problem": problem[:300]}], next_action=takes
    )


def _starts(raw: Raw, *starts: bytes) -> bool:
    return bytes(memoryview(raw)[:64]).lstrip().startswith(starts)
