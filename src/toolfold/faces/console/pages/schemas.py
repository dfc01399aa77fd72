"""Schemas: what a model reads of a tool's output, beside the whole of it; what was observed is marked as such."""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolfold.errors import NotBuilt
from toolfold.faces.console.visit import Work, _Page, _paged, _Visit
from toolfold.faces.surface.instructions import count_tokens

_TOOLS = 50
# Of one schema, whatever a server sends: so many fields, so deep.
_MAX_FIELDS = 1_500
_MAX_DEPTH = 12
_MAX_TEXT = 400
_JOINED = ("anyOf", "oneOf", "allOf")


class _Field(Struct):
    """One field of a schema, with those below it."""

    name: str
    kind: str
    note: str = ""
    required: bool = False
    below: list["_Field"] = []
    cut: bool = False


class _Reader:
    """Reads a JSON Schema as fields."""

    def __init__(self, schema: Any) -> None:
        self._root = schema
        self._left = _MAX_FIELDS

    def read(self) -> list[_Field]:
        return self._below(self._root, 0)

    def _below(self, schema: Any, depth: int) -> list[_Field]:
        schema = self._resolved(schema)
        if not isinstance(schema, dict):
            return []
        found: list[_Field] = []
        required = schema.get("required")
        for name, part, needed in self._parts(schema, required if isinstance(required, list) else []):
            if self._left <= 0 or depth >= _MAX_DEPTH:
                found.append(_Field("…", "more", cut=True))
                break
            self._left -= 1
            whole = self._resolved(part)
            note = str(whole.get("description", ""))[:_MAX_TEXT] if isinstance(whole, dict) else ""
            found.append(_Field(str(name)[:200], _kind(whole), note, needed, self._below(whole, depth + 1)))
        return found

    def _parts(self, schema: dict[str, Any], required: list[Any]) -> Iterator[tuple[str, Any, bool]]:
        properties = schema.get("properties")
        for name, part in properties.items() if isinstance(properties, dict) else ():
            yield name, part, name in required
        for name, key in (("[]", "items"), ("<any key>", "additionalProperties")):
            if isinstance(schema.get(key), dict):
                yield name, schema[key], False
        for key in _JOINED:
            options = schema.get(key)
            for number, part in enumerate(options if isinstance(options, list) else (), 1):
                yield f"{key} {number}", part, False

    def _resolved(self, schema: Any) -> Any:
        """What a reference inside the same schema leads to."""
        for _ in range(_MAX_DEPTH):
            target = schema.get("$ref") if isinstance(schema, dict) else None
            if not isinstance(target, str) or not target.startswith("#"):
                break
            schema = self._root
            for step in filter(None, target[1:].split("/")):
                key = step.replace("~1", "/").replace("~0", "~")
                schema = schema.get(key) if isinstance(schema, dict) else None
        return schema


def _kind(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "any"
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(map(str, kind[:6]))
    if isinstance(schema.get("enum"), list):
        return " | ".join(str(one)[:40] for one in schema["enum"][:6])
    return str(kind or next((key for key in _JOINED if key in schema), "any"))[:60]


async def _schemas(visit: _Visit) -> _Page:
    tool_id, q = visit.query("tool"), visit.query("q")
    if tool_id:
        return await _one(visit, tool_id)
    try:
        async with visit.view.catalogue.snapshot() as snapshot:
            ids = [found for found in await snapshot.tool_ids() if q.casefold() in found.casefold()]
            shown = _paged(ids, visit.number("page"), _TOOLS)
            tools = await snapshot.tools(ids=shown["entries"])
    except NotBuilt:
        shown, tools = _paged((), 1, _TOOLS), []
    return _Page("schemas.html", {"title": "Schemas", "q": q, **shown, "entries": tools})


async def _one(visit: _Visit, tool_id: str) -> _Page:
    expanded = await visit.gateway.describer.expand(visit.view, tool_id)
    descriptor = await visit.gateway.descriptor(tool_id, caller=visit.caller)
    result, arguments = _decoded(expanded["result_schema"]), _decoded(expanded["args_schema"])
    lines = expanded["output_fields"]
    whole = "" if result is None else msgspec.json.encode(result).decode("utf-8", "replace")
    values = {
        "title": tool_id,
        "tool": expanded,
        "lines": lines,
        "line_tokens": count_tokens("\n".join(lines)),
        "whole_tokens": count_tokens(whole) if whole else 0,
        "fields": _Reader(result).read(),
        "arguments": _Reader(arguments).read(),
        "declared": result is not None,
        "observed": descriptor.get("observed_calls"),
        "contradicted": expanded.get("contradicted", []),
        "may_be_old": expanded.get("may_be_old", ""),
    }
    return _Page("schema.html", values)


def _decoded(schema: Any) -> Any:
    if not isinstance(schema, Raw):
        return schema
    try:
        return msgspec.json.decode(schema)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


GETS = {"/schemas": _schemas}
POSTS: dict[str, Work] = {}
