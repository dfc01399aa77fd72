"""Arguments of a tool as an HTTP request, in the styles that OpenAPI knows.

A request is only a value here: nothing is sent. What cannot be sent raises `InvalidArguments` and says which argument
and why.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct, field
from msgspec.json import Decoder
from msgspec.structs import replace

from toolfold.errors import InvalidArguments
from toolfold.upstream.openapi.operations import Body, Operation, Parameter

_arguments = Decoder(dict[str, Any])
_RESERVED = ":/?#[]@!$&'()*+,;="
_DELIMITERS = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "|"}
# What may stand in a header besides letters: no line ends, no other control characters.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_Pairs = list[tuple[str, str]]
# `(field, (file name, content, media type))`, as httpx takes it.
_Part = tuple[str, tuple[str | None, bytes, str | None]]


class Request(Struct, frozen=True, kw_only=True):
    """What goes out. `target` is the path and query after the base address, already quoted."""

    method: str
    target: str
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes | None = None
    parts: list[_Part] | None = None
    """Multipart: fields and files."""


def build_request(operation: Operation, arguments: Raw) -> Request:
    """The request for a call. Raises `InvalidArguments`."""
    try:
        values = _arguments.decode(arguments)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        name = operation.definition.name
        raise InvalidArguments(f"{name}: the arguments must be one JSON object: {error}") from None
    _check_names(operation, values)
    path = operation.path
    headers: dict[str, str] = {}
    pairs: dict[str, list[str]] = {"query": [], "cookie": []}
    for parameter in operation.parameters:
        value = values.get(parameter.key)
        if value is None:
            continue  # models often give null for an argument that they leave out
        if parameter.as_json:
            value = msgspec.json.encode(value).decode()
        if parameter.place == "path":
            path = path.replace("{" + parameter.name + "}", _path_value(parameter, value))
        elif parameter.place == "header":
            headers[parameter.name] = _header_value(parameter, value)
        else:
            pairs[parameter.place] += ["=".join(pair) for pair in _query_pairs(parameter, value)]
    if pairs["cookie"]:
        headers["Cookie"] = "; ".join(pairs["cookie"])
    target = "?".join(filter(None, (path, "&".join(pairs["query"]))))
    return _with_body(Request(method=operation.method, target=target, headers=headers), operation.body, values)


def _check_names(operation: Operation, values: dict[str, Any]) -> None:
    """Refuses unknown and missing arguments, and says which there are."""
    parts = {part.key: part for part in (*operation.parameters, operation.body) if part is not None}
    problems = [f"`{key}` is missing" for key, part in parts.items() if part.required and _is_missing(part, values)]
    problems += [f"`{key[:80]}` is no argument of it" for key in values if key not in parts]
    if problems:
        known = sorted(parts)
        raise InvalidArguments(
            f"{operation.definition.name}: {'; '.join(problems)}.",
            hints=known,
            next_action=f"Its arguments are: {', '.join(known) or 'none'}.",
        )


def _is_missing(part: Parameter | Body, values: dict[str, Any]) -> bool:
    # Null stands for a parameter that is left out, but may be a body itself.
    return part.key not in values if isinstance(part, Body) else values.get(part.key) is None


def _text(value: Any) -> str:
    """A primitive as OpenAPI writes it; anything deeper as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    return str(value) if isinstance(value, str | int | float) else msgspec.json.encode(value).decode()


def _items(parameter: Parameter, value: Any, safe: Callable[[Any], str]) -> list[str]:
    """The parts of a value: items of a list, and of an object `key=value` where exploded, else keys and values."""
    if isinstance(value, dict):
        if parameter.explode:
            return [f"{safe(key)}={safe(item)}" for key, item in value.items()]
        return [safe(part) for pair in value.items() for part in pair]
    return [safe(item) for item in (value if isinstance(value, list) else [value])]


def _path_value(parameter: Parameter, value: Any) -> str:
    items = _items(parameter, value, lambda item: quote(_text(item), safe=""))
    if parameter.style == "label":
        quoted = "." + ("." if parameter.explode else ",").join(items)
    elif parameter.style == "matrix":
        name = quote(parameter.name, safe="")
        exploded = parameter.explode and not isinstance(value, dict)
        parts = [f"{name}={item}" for item in items] if exploded else items
        quoted = "".join(f";{part}" for part in parts) if parameter.explode else f";{name}={','.join(items)}"
    else:
        quoted = ",".join(items)
    # A path of `..` would lead to another operation.
    if not quoted.strip("."):
        raise InvalidArguments(
            f"`{parameter.key}` is {_text(value)!r}, which cannot stand in a path.",
            next_action="Give a value that is not empty and not only dots.",
        )
    return quoted


def _query_pairs(parameter: Parameter, value: Any) -> _Pairs:
    def safe(item: Any) -> str:
        return quote(_text(item), safe=_RESERVED if parameter.reserved else "")

    name = quote(parameter.name, safe="[]")
    if parameter.style == "deepObject" and isinstance(value, dict | list):
        return _deep_pairs(name, value, safe)
    if parameter.explode and isinstance(value, dict):
        return [(quote(key, safe=""), safe(item)) for key, item in value.items()]
    if parameter.explode and isinstance(value, list):
        return [(name, safe(item)) for item in value]
    return [(name, _DELIMITERS.get(parameter.style, ",").join(_items(parameter, value, safe)))]


def _deep_pairs(name: str, value: Any, safe: Callable[[Any], str]) -> _Pairs:
    """`filter[size][min]=3`: OpenAPI defines one level; deeper ones go on in the same way."""
    if isinstance(value, dict):
        keys = [(f"{name}[{quote(str(key), safe='')}]", item) for key, item in value.items()]
        return [pair for key, item in keys for pair in _deep_pairs(key, item, safe)]
    return [(name, safe(item)) for item in (value if isinstance(value, list) else [value])]


def _header_value(parameter: Parameter, value: Any) -> str:
    text = ",".join(_items(parameter, value, _text))
    if _CONTROL.search(text) or not text.isascii():
        raise InvalidArguments(
            f"`{parameter.key}` goes into the header {parameter.name}, which takes printable ASCII only.",
            next_action="Leave out line ends and other characters.",
        )
    return text


def _with_body(request: Request, body: Body | None, values: dict[str, Any]) -> Request:
    if body is None or body.key not in values:
        return request
    value = values[body.key]
    if body.kind == "multipart":
        # The content type is left to whoever writes the parts, since it names their boundary.
        return replace(request, parts=[_part(body, key, item) for key, item in _fields(body, value)])
    media = body.media if "*" not in body.media else "application/json"
    headers = {**request.headers, "Content-Type": media}
    return replace(request, headers=headers, content=_encode_body(body, value))


def _encode_body(body: Body, value: Any) -> bytes:
    if body.kind == "json":
        return msgspec.json.encode(value)
    if body.kind == "text":
        return _text(value).encode()
    if body.kind == "bytes":
        return _decode_base64(body.key, value)
    pairs = [f"{quote(key, safe='')}={quote(_text(item), safe='')}" for key, item in _fields(body, value)]
    return "&".join(pairs).encode()


def _fields(body: Body, value: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a form: a list is a field of that name for each item, null none."""
    if not isinstance(value, dict):
        raise InvalidArguments(f"`{body.key}` must be an object of form fields.")
    for key, item in value.items():
        for single in item if isinstance(item, list) else [item]:
            if item is not None:
                yield key, single


def _part(body: Body, key: str, item: Any) -> _Part:
    if key in body.binary:
        return key, (key, _decode_base64(f"{body.key}.{key}", item), "application/octet-stream")
    return key, (None, _text(item).encode(), None)


def _decode_base64(where: str, value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise InvalidArguments(
            f"`{where}` must be base64.", next_action="Encode the bytes as base64 and call again."
        ) from None
