"""Reads tool objects as servers send them, tolerantly: what can be used is used, and what was wrong becomes a warning.

The raw bytes stay as they came. Only a tool without a usable name is left out, since nobody could call it.
"""

import re
from collections.abc import Iterable
from typing import Any

from msgspec import DecodeError, Raw, Struct
from msgspec.json import Decoder, encode

from toolfold.containers import nesting
from toolfold.text import NUMBER_LEFT_OUT, printable
from toolfold.types import EMPTY_OBJECT, Annotations, ToolDefinition

# Further warnings say nothing new; their number is given instead.
_MAX_WARNINGS = 50
_USUAL_NAME = re.compile(r"[A-Za-z0-9_\-./]{1,128}")
_SHOWN_NAME = 80
_ABSENT = Raw()
# Schemas that real servers send stay below a tenth of the one and a quarter of the other.
_MAX_SCHEMA_BYTES = 1 << 20
_MAX_SCHEMA_DEPTH = 100


class _Fields(Struct, rename="camel"):
    name: Raw = _ABSENT
    title: Raw = _ABSENT
    description: Raw = _ABSENT
    input_schema: Raw = _ABSENT
    output_schema: Raw = _ABSENT
    annotations: Raw = _ABSENT


class _Hints(Struct, rename="camel"):
    title: object = None
    read_only_hint: object = None
    destructive_hint: object = None
    idempotent_hint: object = None
    open_world_hint: object = None


_fields = Decoder(_Fields)
_string = Decoder(str)
_hints = Decoder(_Hints)
_value = Decoder()


def read_definitions(raws: Iterable[Raw]) -> tuple[tuple[ToolDefinition, ...], tuple[str, ...]]:
    """All tools that can be used, in the server's order, and a sentence for each thing that was wrong."""
    tools: dict[str, ToolDefinition] = {}
    warnings: list[str] = []
    for number, raw in enumerate(raws, 1):
        definition, problems = _read_definition(raw, number)
        warnings += problems
        if definition is None:
            continue
        if definition.name in tools:
            warnings.append(f"tool '{printable(definition.name, _SHOWN_NAME)}' is listed twice; the first one is kept")
        tools.setdefault(definition.name, definition)
    if len(warnings) > _MAX_WARNINGS:
        rest = len(warnings) - _MAX_WARNINGS
        warnings[_MAX_WARNINGS:] = [f"and {rest} more warnings about this server's tools"]
    return tuple(tools.values()), tuple(warnings)


def _read_definition(raw: Raw, number: int = 1) -> tuple[ToolDefinition | None, list[str]]:
    """One tool. `number` is its place in the list, to name a tool that has no name."""
    try:
        fields = _fields.decode(raw)
    except (DecodeError, UnicodeDecodeError) as error:
        return None, [f"tool number {number} is skipped: it is no JSON object ({error})"]
    name = _text(fields.name)
    if name is None or not name.strip():
        return None, [f"tool number {number} is skipped: it has no name that is a text"]
    warnings: list[str] = []
    shown = printable(name, _SHOWN_NAME)
    if not _USUAL_NAME.fullmatch(name):
        warnings.append(f"tool '{shown}' has a name outside letters, digits, '_-./' and 128 characters")
    annotations, title = _annotations(fields.annotations, shown, warnings)
    return ToolDefinition(
        name=name,
        raw=raw,
        title=_optional_text(fields.title, shown, "title", warnings) or title,
        description=_optional_text(fields.description, shown, "description", warnings),
        input_schema=_input_schema(fields.input_schema, shown, warnings),
        output_schema=_output_schema(fields.output_schema, shown, warnings),
        annotations=annotations,
    ), warnings


def make_definition(**fields: Any) -> ToolDefinition:
    """A tool object of our own making, in the wire's field names and with a valid name. Empty fields are left out."""
    definition, problems = _read_definition(Raw(encode({key: value for key, value in fields.items() if value})))
    if definition is None:  # pragma: no cover - whoever calls has checked the name
        raise ValueError(problems)
    return definition


def _is_missing(raw: Raw) -> bool:
    return bytes(memoryview(raw)[:5]) in {b"", b"null"}


def _is_object(raw: Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b"{"


def _text(raw: Raw) -> str | None:
    try:
        return _string.decode(raw)
    except (DecodeError, UnicodeDecodeError):
        return None


def _optional_text(raw: Raw, name: str, key: str, warnings: list[str]) -> str:
    """A text, nothing, or a value of another type as its JSON."""
    if _is_missing(raw):
        return ""
    text = _text(raw)
    if text is not None:
        return text
    warnings.append(f"tool '{name}' has a {key} that is no text; its JSON is used")
    return bytes(raw).decode("utf-8", "replace")


def _excess(raw: Raw) -> str:
    """What a schema has too much of, for whoever would have to read it; nothing where it is of a usual size."""
    text = bytes(raw)
    if len(text) > _MAX_SCHEMA_BYTES:
        return f"over {_MAX_SCHEMA_BYTES:,} bytes"
    if NUMBER_LEFT_OUT in text:
        return "numbers that no JSON reader takes"
    # Brackets in texts count, too: most schemas need not be decoded for this.
    if text.count(b"{") + text.count(b"[") <= _MAX_SCHEMA_DEPTH:
        return ""
    try:
        depth = nesting(_value.decode(text), _MAX_SCHEMA_DEPTH + 1)
    except RecursionError:
        depth = _MAX_SCHEMA_DEPTH + 1
    except (DecodeError, UnicodeDecodeError):
        return ""
    return f"over {_MAX_SCHEMA_DEPTH} levels" if depth > _MAX_SCHEMA_DEPTH else ""


def _input_schema(raw: Raw, name: str, warnings: list[str]) -> Raw:
    excess = _excess(raw)
    if _is_object(raw) and not excess:
        return raw
    problem = f"an inputSchema of {excess}" if excess else "an inputSchema that is no object"
    problem = problem if bytes(raw) else "no inputSchema"
    warnings.append(f"tool '{name}' has {problem}; any arguments are let through")
    return EMPTY_OBJECT


def _output_schema(raw: Raw, name: str, warnings: list[str]) -> Raw | None:
    excess = _excess(raw)
    if _is_object(raw) and not excess:
        return raw
    # From 2026-07-28 a schema may be a boolean, too; an output schema that says nothing is none.
    if not _is_missing(raw):
        problem = f"of {excess}" if excess else "that is no object"
        warnings.append(f"tool '{name}' has an outputSchema {problem}; it is left out")
    return None


def _annotations(raw: Raw, name: str, warnings: list[str]) -> tuple[Annotations, str]:
    """The four claims, and the title that older servers put among them."""
    if _is_missing(raw):
        return Annotations(), ""
    try:
        hints = _hints.decode(raw)
    except (DecodeError, UnicodeDecodeError):
        warnings.append(f"tool '{name}' has annotations that are no object; they are left out")
        return Annotations(), ""
    values = (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint)
    if any(value is not None and not isinstance(value, bool) for value in values):
        warnings.append(f"tool '{name}' has annotations that are neither true nor false; those are left out")
    read_only, destructive, idempotent, open_world = (value if isinstance(value, bool) else None for value in values)
    claims = Annotations(read_only=read_only, destructive=destructive, idempotent=idempotent, open_world=open_world)
    return claims, hints.title if isinstance(hints.title, str) else ""
