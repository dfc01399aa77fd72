"""A tool's arguments as a person types them: `limit=3 filter.state=open tags=a tags=b since:=null`.

    key=text     text, a number, true or false: whichever the tool's schema wants there
    key:=JSON    any JSON value, taken as it is
    a.b=text     `b` inside the object `a`; a key that stands twice is a list

What is wrong is told with the key and what it takes. Whether the whole fits is for the call's own check.
"""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import reduce
from typing import Any

import msgspec

from toolfold.errors import InvalidArguments
from toolfold.schema_walk import Document, Node
from toolfold.text import truncate

__all__ = ["parse_arguments"]

_MAX_DEPTH = 20
_NUMBER = re.compile(r"[-+]?[0-9][0-9.]*([eE][-+]?[0-9]+)?")
_ARTICLES = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "a JSON object",
    "array": "a list",
}

_EXAMPLES = {"integer": "3", "number": "1.5", "boolean": "true", "object": """'{"key": "value"}'"""}


def parse_arguments(words: Sequence[str], schema: bytes) -> dict[str, Any]:
    """The arguments as values. Raises `InvalidArguments` that names the key."""
    root = Document(msgspec.json.decode(schema)).root
    arguments: dict[str, Any] = {}
    for word in words:
        word.encode()  # bytes that are no UTF-8 stand in it as surrogates: that is told as for all other commands
        key, equals, text = word.partition("=")
        if not equals or not key.strip(":"):
            example = f", such as {root.names[0]}=…" if root.names else ""
            raise InvalidArguments(
                f"{word!r} is no argument", next_action=f"write key=value{example}, or all of them as one JSON object"
            )
        name = key.removesuffix(":")
        place, last, node = _place(arguments, root, name)
        value = _json(name, text) if key.endswith(":") else _typed(node, name, text)
        place[last] = _joined(place[last], value, name) if last in place else value
    return arguments


def _place(arguments: dict[str, Any], root: Node, key: str) -> tuple[dict[str, Any], str, Node]:
    """Where a key's value goes: the object, the last name, and what the schema says of it."""
    *parents, last = [key] if key in root.names else key.split(".")
    if not all((*parents, last)) or key.endswith("]"):
        advice = "a list is key=first key=second, or key:=[…]" if key.endswith("]") else "write a.b=value"
        raise InvalidArguments(f"{key!r} names no argument", next_action=f"{advice}, or give one JSON object")
    if len(parents) > _MAX_DEPTH:
        raise InvalidArguments(f"{key} is nested too deep", next_action="give the arguments as one JSON object")
    place, node = arguments, root
    for at, name in enumerate(parents):
        node = _child(node, name, key)
        _refuse_place_in_list(node, parents[: at + 1], [*parents[at + 1 :], last])
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise InvalidArguments(f"{key}: {name} has a value already", next_action="give either, not both")
    return place, last, _child(node, last, key)


def _refuse_place_in_list(node: Node, name: list[str], inside: list[str]) -> None:
    """`a.0.b` is how a part of a result is named, but no way to build a list."""
    if node.kinds == {"array"}:
        key = ".".join(name)
        within = [part for part in inside if not part.isdecimal()]
        item = reduce(lambda held, part: f'{{"{part}": {held}}}', reversed(within), "…")
        raise InvalidArguments(
            f"{key}.{'.'.join(inside)}: {key} is a list", next_action=f"write it as JSON: '{key}:=[{item}]'"
        )


def _child(node: Node, name: str, key: str) -> Node:
    for step in node.steps:
        if step == ("key", name) and (child := node.child(step)) is not None:
            return child
    # An object that does not say it is closed may take further keys; one that looks mistyped is told all the same.
    near = get_close_matches(name, node.names, n=1)
    if near or node.closed:
        raise _no_argument(node, name, key, near)
    return node.document.anything()


def _no_argument(node: Node, name: str, key: str, near: list[str]) -> InvalidArguments:
    guess = f"; did you mean {near[0]}?" if near else ""
    known = ", ".join(node.names[:12]) + (", …" if len(node.names) > 12 else "")
    within = _holder(node, name)
    advice = f"write {key.removesuffix(name)}{within}.{name}=…; " if within and not near else ""
    return InvalidArguments(f"there is no argument {key}{guess}", next_action=f"{advice}it takes {known or 'none'}")


def _holder(node: Node, name: str) -> str:
    """The one object in here that takes an argument of this name."""
    below = {step.name: node.child(step) for step in node.steps if step.kind == "key"}
    holders = [key for key, child in below.items() if child is not None and name in child.names]
    return holders[0] if len(holders) == 1 else ""


def _typed(node: Node, key: str, text: str) -> Any:
    """The text as the schema wants it; where that does not say, as JSON if it is some."""
    if "string" in node.kinds:
        return text
    if "array" in node.kinds and not text.startswith("["):
        return [_typed(_item(node), key, text)]
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        value = text
    if not node.kinds or not node.kinds <= _ARTICLES.keys() or _is_one(value, node):
        return value  # a type that nobody knows says nothing
    wanted = " or ".join(_ARTICLES[kind] for kind in sorted(node.kinds))
    raise InvalidArguments(f"{key}={text}: {key} is {wanted}", next_action=_written(node, key))


def _written(node: Node, key: str) -> str:
    """How a value of the wanted type is typed."""
    kind = min(node.kinds)
    return f"write, for example, {key}={_EXAMPLES[kind]}" if kind in _EXAMPLES else f"write it as JSON: {key}:=…"


def _item(node: Node) -> Node:
    items = [node.child(step) for step in node.steps if step.kind == "items"]
    return next(filter(None, items), node.document.anything())


def _is_one(value: Any, node: Node) -> bool:
    """Whether a value that is no text is of one of the node's types."""
    match value:
        case bool():
            return "boolean" in node.kinds
        case int() | float():
            return "number" in node.kinds or ("integer" in node.kinds and value == int(value))
        case dict():
            return "object" in node.kinds
        case list():
            return "array" in node.kinds
    return value is None and node.nullable


def _json(key: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        shown = truncate(text, 40)
        advice = f"text goes without the colon: {key}={shown}"
        if _NUMBER.fullmatch(text):
            advice = "give a number that fits into 64 bits, or text if the tool takes some"
        raise InvalidArguments(f"{key}:={shown} is no JSON: {error}", next_action=advice) from error


def _joined(before: Any, value: Any, key: str) -> Any:
    """What a key that stands twice comes to."""
    if not isinstance(before, list) or not isinstance(value, list):
        raise InvalidArguments(f"{key} stands twice, and it is no list", next_action=f"give {key} once")
    return before + value
