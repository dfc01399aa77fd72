"""Reads one tool object as a server sent it, kindly: what can be used is used, what was wrong is said.

The raw bytes are kept as they came. Only a tool without a usable name is left out, since nobody could call it.
"""

import re
from collections.abc import Iterable

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError, convert
from msgspec.json import Decoder

from toolfold.types import EMPTY_OBJECT, Annotations, ToolDefinition

_MAX_WARNINGS = 50
"""More than these say nothing new; the count of the rest is told instead."""

_USUAL_NAME = re.compile(r"[A-Za-z0-9_\-./]{1,128}")


class _Fields(Struct, rename="camel"):
    name: Raw | UnsetType = UNSET
    title: Raw | UnsetType = UNSET
    description: Raw | UnsetType = UNSET
    input_schema: Raw | UnsetType = UNSET
    output_schema: Raw | UnsetType = UNSET
    annotations: Raw | UnsetType = UNSET


class _Hints(Struct, rename="camel"):
    title: object = None
    read_only_hint: object = None
    destructive_hint: object = None
    idempotent_hint: object = None
    open_world_hint: object = None


_fields = Decoder(_Fields)
_string = Decoder(str)
_any = Decoder(object)


def read_definitions(raws: Iterable[Raw]) -> tuple[tuple[ToolDefinition, ...], tuple[str, ...]]:
    """All tools that can be used, in the server's order, and a sentence for each thing that was wrong."""
    tools: dict[str, ToolDefinition] = {}
    warnings: list[str] = []
    for number, raw in enumerate(raws, 1):
        definition, said = read_definition(raw, number)
        warnings += said
        if definition is None:
            continue
        if definition.name in tools:
            warnings.append(f"tool {definition.name!r} is listed twice; the first one is kept")
            continue
        tools[definition.name] = definition
    if len(warnings) > _MAX_WARNINGS:
        rest = len(warnings) - _MAX_WARNINGS
        warnings[_MAX_WARNINGS:] = [f"and {rest} more warnings about this server's tools"]
    return tuple(tools.values()), tuple(warnings)


def read_definition(raw: Raw, number: int = 1) -> tuple[ToolDefinition | None, list[str]]:
    """One tool. `number` is its place in the list, to name a tool that has no name."""
    try:
        fields = _fields.decode(raw)
    except (DecodeError, ValidationError, UnicodeDecodeError) as error:
        return None, [f"tool number {number} is skipped: it is no JSON object ({error})"]
    name = _text(fields.name)
    if name is None or not name.strip():
        return None, [f"tool number {number} is skipped: it has no name that is a text"]
    said: list[str] = []
    if not _USUAL_NAME.fullmatch(name):
        said.append(f"tool {name[:80]!r} has a name outside letters, digits, '_-./' and 128 characters")
    hints, title = _annotations(fields.annotations, name, said)
    return ToolDefinition(
        name=name,
        raw=raw,
        title=_optional_text(fields.title, name, "title", said) or title,
        description=_optional_text(fields.description, name, "description", said),
        input_schema=_input_schema(fields.input_schema, name, said),
        output_schema=_output_schema(fields.output_schema, name, said),
        annotations=hints,
    ), said


def _text(raw: Raw | UnsetType) -> str | None:
    if raw is UNSET:
        return None
    try:
        return _string.decode(raw)
    except (DecodeError, ValidationError, UnicodeDecodeError):
        return None


def _optional_text(raw: Raw | UnsetType, name: str, key: str, said: list[str]) -> str:
    """A text, nothing, or a value of another type as its JSON."""
    if raw is UNSET or bytes(raw) == b"null":
        return ""
    text = _text(raw)
    if text is not None:
        return text
    said.append(f"tool {name!r} has a {key} that is no text; its JSON is used")
    return bytes(raw).decode("utf-8", "replace")


def _is_object(raw: Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b"{"


def _input_schema(raw: Raw | UnsetType, name: str, said: list[str]) -> Raw:
    if raw is not UNSET and _is_object(raw):
        return raw
    problem = "no inputSchema" if raw is UNSET else "an inputSchema that is no object"
    said.append(f"tool {name!r} has {problem}; any arguments are let through")
    return EMPTY_OBJECT


def _output_schema(raw: Raw | UnsetType, name: str, said: list[str]) -> Raw | None:
    if raw is UNSET or bytes(memoryview(raw)[:4]) == b"null":
        return None
    # From 2026-07-28 a schema may be a boolean, too; an output schema that says nothing is none.
    if _is_object(raw):
        return raw
    said.append(f"tool {name!r} has an outputSchema that is no object; it is left out")
    return None


def _annotations(raw: Raw | UnsetType, name: str, said: list[str]) -> tuple[Annotations, str]:
    """The four claims and the title that older servers put among them."""
    if raw is UNSET or bytes(raw) == b"null":
        return Annotations(), ""
    try:
        hints = convert(_any.decode(raw), _Hints)
    except (DecodeError, ValidationError, UnicodeDecodeError):
        said.append(f"tool {name!r} has annotations that are no object; they are left out")
        return Annotations(), ""
    values = (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint)
    if any(value is not None and not isinstance(value, bool) for value in values):
        said.append(f"tool {name!r} has annotations that are neither true nor false; those are left out")
    read_only, destructive, idempotent, open_world = (value if isinstance(value, bool) else None for value in values)
    claims = Annotations(read_only=read_only, destructive=destructive, idempotent=idempotent, open_world=open_world)
    return claims, hints.title if isinstance(hints.title, str) else ""
