"""What a stored output looks like in a few lines, and how its parts are asked for: the block beside the message.

Counts are exact, or marked where only the beginning of a large document was read. Above: `split.py`. Below:
`json_scan.py`.
"""

import contextlib
import os
import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolfold.errors import ProtocolViolation
from toolfold.outputs.json_path import format_path
from toolfold.outputs.json_scan import BytesSource, JsonScanner
from toolfold.text import replace_escaped_halves, truncate

__all__ = ["OUTPUT_URI", "_describe_json"]

# The resource under which an output can be read whole, before its handle.
OUTPUT_URI = "toolfold://outputs/"
# A larger document is not decoded: what its first bytes hold is told.
MAX_DECODED = 8 << 20
HEAD_BYTES = 256 << 10
MAX_KEYS, MAX_ITEM_KEYS, MAX_NAME = 12, 8, 40
FIRST_LINES, MAX_LINE = 3, 160
MAX_ARGUMENTS = 8

# Names of arguments that make a tool return less.
_NARROWS = re.compile(
    r"(?:^|_)(?:limit|offset|page|cursor|skip|top|head|tail|count|first|last|start|end|since|until|max|size|range|"
    r"fields|columns|select|filter)(?:_|$)"
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class _Properties(Struct):
    properties: dict[str, Raw] = {}


def _narrowing_arguments(input_schema: Raw) -> tuple[str, ...]:
    """The arguments of a tool by which it returns less, such as `limit` or `page`."""
    try:
        names = msgspec.json.decode(input_schema, type=_Properties).properties
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ()
    return tuple(name for name in names if _NARROWS.search(_HUMP.sub("_", name).lower()))[:MAX_ARGUMENTS]


def describe_output(descriptor: int, size: int, *, is_json: bool, tool: str, input_schema: Raw) -> str:
    """The shape of a text, the forms in which a part of it can be had exactly, and arguments of its tool for less."""
    shape, path = _describe_json(descriptor, size) if is_json else ("", "")
    shape = shape or _first_lines(os.pread(descriptor, MAX_LINE * 16, 0))
    forms = [f"a path (`{path}`)"] if path else []
    forms += ["`lines 10-20`", "a `/regex/`"]
    narrowing = _narrowing_arguments(input_schema)
    less = f"\n{tool} has arguments that may make it return less: {', '.join(narrowing)}." if narrowing else ""
    return f"{shape}\nAnswered exactly: {', '.join(forms)}. All else: in words.{less}"


def describe_binary(media_type: str, size: int, handle: str = "") -> str:
    """What is told of content that is no text; with its handle, how to get it."""
    about = f"It is no text but binary data ({media_type}) of {size} bytes."
    if not handle:
        return about
    return (
        f"{about} An MCP client reads it as the resource {OUTPUT_URI}{handle}, others GET /v1/outputs/{handle}; as an "
        f'argument of a call, {{"$output": "{handle}"}} passes it on.'
    )


def _describe_json(descriptor: int, size: int) -> tuple[str, str]:
    """One line on a document, and a path into it."""
    if size > MAX_DECODED:
        return _describe_head(descriptor)
    try:
        value = msgspec.json.decode(replace_escaped_halves(os.pread(descriptor, size, 0)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", ""
    if isinstance(value, list):
        return f"It is a JSON {_kind(value)}.", "[3]" if len(value) > 3 else "[0]"
    if not isinstance(value, dict):
        return f"It is one JSON value: {_kind(value)}.", ""
    members = [f"{_name(key)} ({_kind(member)})" for key, member in value.items()]
    return f"It is a JSON object with the keys {_listed(members, MAX_KEYS)}.", _example(value)


def _describe_head(descriptor: int) -> tuple[str, str]:
    """The same for a large document, by what its first bytes hold."""
    scanner, keys, items = JsonScanner(BytesSource(os.pread(descriptor, HEAD_BYTES, 0))), list[str](), 0

    def member(key: str, at: int) -> int:
        keys.append(key)
        return scanner.value_end(at)

    def item(at: int) -> int:
        nonlocal items
        end = scanner.value_end(at)
        items += 1
        return end

    # The head ends somewhere inside: what came before that was counted.
    with contextlib.suppress(ProtocolViolation):
        start = scanner.space(0)
        if scanner.byte(start) == 0x5B:
            scanner.walk_array(start, item)
        else:
            scanner.walk_object(start, member)
    if keys:
        return f"It is a JSON object that begins with {_listed(map(_name, keys), MAX_KEYS)}.", format_path(keys[:1])
    return (f"It is a JSON array of over {items} items.", "[3]") if items else ("", "")


def _kind(value: Any) -> str:
    """What a value is, with its count."""
    if isinstance(value, list):
        return f"array of {len(value)} {_items(value)}"
    if isinstance(value, dict):
        return f"object with {len(value)} keys"
    if isinstance(value, str) and "\n" in value:
        return f"text of {len(value.splitlines())} lines"
    return _plain_kind(value)


def _items(values: list[Any]) -> str:
    kinds = {_plain_kind(item) for item in values}
    if kinds == {"object"} and values[0]:
        return f"objects with {_listed(map(_name, values[0]), MAX_ITEM_KEYS)}"
    return f"{kinds.pop()}s" if len(kinds) == 1 else "items"


def _plain_kind(value: Any) -> str:
    kinds = {str: "text", bool: "boolean", int: "number", float: "number", dict: "object", list: "array"}
    return kinds.get(type(value), "null")


def _example(value: dict[str, Any]) -> str:
    """A path that leads somewhere: into the longest list, else to the first key."""
    lists = {key: len(member) for key, member in value.items() if isinstance(member, list) and member}
    longest = max(lists, key=lambda key: lists[key], default=None)
    if longest is not None:
        return format_path([longest, min(3, lists[longest] - 1)])
    return format_path(list(value)[:1])


def _listed(names: Iterable[str], most: int) -> str:
    given = list(names)
    return ", ".join(given[:most]) + (f" and {len(given) - most} more" if len(given) > most else "") or "(none)"


def _name(key: str) -> str:
    return truncate(" ".join(key.split()), MAX_NAME)


def _first_lines(head: bytes) -> str:
    lines = [line for line in head.decode("utf-8", "replace").splitlines() if line.strip()][:FIRST_LINES]
    return "\n".join(["It is text that begins:", *(f"  {truncate(line.rstrip(), MAX_LINE)}" for line in lines)])
