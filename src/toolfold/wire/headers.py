"""Headers of modern HTTP that repeat parts of a request: which parts, and how their values are encoded.

A tool marks a parameter with `x-mcp-header`; a tool that marks one wrongly is left out of the list, with a warning.
Above: `connection.py`, `http.py` and `serving/http.py`.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from toolfold.text import printable
from toolfold.wire.jsonrpc import DECODE_ERRORS
from toolfold.wire.types import ToolList

__all__ = ["HEADER_KEYWORD", "mismatched_header"]

# Which parameter of which method is the `Mcp-Name`.
NAME_PARAMETERS = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId"),
}

HEADER_KEYWORD = "x-mcp-header"

_PLAIN = re.compile(r"[\x20-\x7e]*")
_MARKER = re.compile(r"=\?base64\?.*\?=")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TYPES = frozenset({"string", "integer", "boolean"})

# The keywords below which schemas stand: one, several in a list, several by name.
_SINGLE_SCHEMAS = frozenset(
    {
        *("additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then"),
        *("unevaluatedItems", "unevaluatedProperties"),
    }
)
_SCHEMA_CONTAINERS: dict[str, type[Any]] = dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), list)
_SCHEMA_CONTAINERS |= dict.fromkeys(("patternProperties", "dependentSchemas", "$defs", "definitions"), dict)

# The property names from the root, or nothing where something other than `properties` was crossed.
_Path = tuple[str, ...] | None


def encode_header(text: str) -> str:
    """Plain where a header can carry the text, else base64 in a marker."""
    if _PLAIN.fullmatch(text) and text == text.strip() and not _MARKER.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'surrogatepass')).decode()}?="


def decode_header(text: str) -> str | None:
    """The value of a header: plain, or base64 within its marker; `None` where that is broken."""
    if not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    try:
        return base64.b64decode(text[9:-2], validate=True).decode()
    except ValueError:
        return None


def mismatched_header(schema: Raw, arguments: Raw, headers: Mapping[str, str]) -> str:
    """The first header that does not say what the marked parameter says; nothing where all do. `headers` have names in
    small letters."""
    values = msgspec.json.decode(arguments)
    for place, part in _schemas(msgspec.json.decode(schema)):
        if not place or HEADER_KEYWORD not in part:
            continue
        name = f"Mcp-Param-{part[HEADER_KEYWORD]}"
        header = headers.get(name.lower())
        if (decode_header(header) if header is not None else None) != _header_text(_value_at(values, place)):
            return name
    return ""


class ParameterHeaders:
    """What the tools of one server want repeated in headers, as far as their list was read."""

    def __init__(self) -> None:
        self._headers_by_tool: dict[str, dict[tuple[str, ...], str]] = {}

    def __contains__(self, tool: str) -> bool:
        return tool in self._headers_by_tool

    def for_call(self, tool: str, arguments: Raw) -> dict[str, str]:
        """The headers for one call. Absent and null parameters have none."""
        headers_by_path = self._headers_by_tool.get(tool)
        if not headers_by_path:
            return {}
        try:
            values = msgspec.json.decode(arguments)
        except DECODE_ERRORS:
            return {}
        texts = ((token, _header_text(_value_at(values, place))) for place, token in headers_by_path.items())
        return {f"Mcp-Param-{token}": encode_header(text) for token, text in texts if text is not None}

    def update(self, tools: ToolList) -> ToolList:
        """Reads the marks; gives the list back without the tools that mark wrongly."""
        usable, warnings, headers_by_path = [], list(tools.warnings), {}
        for raw in tools.tools:
            if HEADER_KEYWORD.encode() not in bytes(raw):
                usable.append(raw)
                continue
            tool = msgspec.json.decode(raw)
            schema = tool.get("inputSchema")
            problem = _keyword_problem(schema)
            if problem:
                warnings.append(f"the tool '{printable(tool['name'], 80)}' was left out: {problem}")
                continue
            usable.append(raw)
            headers_by_path[tool["name"]] = {
                place: schema[HEADER_KEYWORD]
                for place, schema in _schemas(schema)
                if place and HEADER_KEYWORD in schema
            }
        self._headers_by_tool = headers_by_path
        return msgspec.structs.replace(tools, tools=tuple(usable), warnings=tuple(warnings))


def _keyword_problem(schema: Any) -> str:
    """What is wrong with the marks of an input schema; nothing where all is well."""
    names: set[str] = set()
    for place, part in _schemas(schema):
        if HEADER_KEYWORD not in part:
            continue
        problem = _problem_at(place, part, names)
        if problem:
            return problem
    return ""


def _problem_at(place: _Path, part: dict[str, Any], names: set[str]) -> str:
    if not place:
        return f"its {HEADER_KEYWORD} stands where no single parameter is"
    token, where = part[HEADER_KEYWORD], ".".join(place)
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        return f"the {HEADER_KEYWORD} of {where!r} is no name for a header"
    if not isinstance(part.get("type"), str) or part["type"] not in _TYPES:
        return f"the {HEADER_KEYWORD} of {where!r} is only allowed on a string, an integer or a boolean"
    if token.lower() in names:
        return f"the {HEADER_KEYWORD} of {where!r} names a header twice"
    names.add(token.lower())
    return ""


def _schemas(root: Any) -> Iterator[tuple[_Path, dict[str, Any]]]:
    """Every place of a schema where a schema stands, without following references."""
    # A stack of our own: the depth of a foreign schema must not be Python's recursion limit.
    stack: list[tuple[_Path, Any]] = [((), root)]
    while stack:
        place, part = stack.pop()
        if isinstance(part, dict):
            yield place, part
            for keyword, value in part.items():
                stack.extend(_subschemas(place, keyword, value))


def _subschemas(place: _Path, keyword: str, value: Any) -> list[tuple[_Path, Any]]:
    if keyword == "properties" and isinstance(value, dict):
        return [((*place, name) if place is not None else None, part) for name, part in value.items()]
    if keyword in _SINGLE_SCHEMAS:
        return [(None, value)]
    container = _SCHEMA_CONTAINERS.get(keyword)
    if container is None or not isinstance(value, container):
        return []
    return [(None, part) for part in (value.values() if container is dict else value)]


def _value_at(values: Any, place: tuple[str, ...]) -> Any:
    for name in place:
        if not isinstance(values, dict):
            return None
        values = values.get(name)
    return values


def _header_text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    return None
