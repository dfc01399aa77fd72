"""Arguments of a tool as an HTTP request, in the styles that OpenAPI knows.

A request is only a value here: nothing is sent. What cannot be sent raises `InvalidArguments` and says which argument
and why.
"""

import base64
import binascii
import re
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct, field
from msgspec.json import Decoder

from toolfold.errors import InvalidArguments
from toolfold.upstream.openapi.operations import Body, Operation, Parameter

_arguments = Decoder(dict[str, Any])
_RESERVED = ":/?#[]@!$&'()*+,;="
_DELIMITERS = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "|"}
# What may stand in a header besides letters: no line ends, no other control characters.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_Pairs = list[tuple[str, str]]
_Part = tuple[str, tuple[str | None, bytes, str | None]]
"""`(field, (file name or None, content, media type or None))`."""


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
    name = operation.definition.name
    try:
        given = _arguments.decode(arguments)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArguments(f"{name}: the arguments must be one JSON object: {error}") from None
    _check_names(operation, given)
    path = operation.path
    query: _Pairs = []
    headers: dict[str, str] = {}
    cookies: _Pairs = []
    for parameter in operation.parameters:
        value = given.get(parameter.key)
        if value is None:
            continue  # An argument that is null is one that is not given.
        if parameter.as_json:
            value = msgspec.json.encode(value).decode()
        if parameter.place == "path":
            path = path.replace("{" + parameter.name + "}", _path_value(parameter, value))
        elif parameter.place == "query":
            query += _query_pairs(parameter, value)
        elif parameter.place == "header":
            headers[parameter.name] = _header_value(parameter, value)
        else:
            cookies += _query_pairs(parameter, value)
    if cookies:
        headers["Cookie"] = "; ".join(f"{key}={value}" for key, value in cookies)
    target = path + ("?" + "&".join(f"{key}={value}" for key, value in query) if query else "")
    return _with_body(Request(method=operation.method, target=target, headers=headers), operation.body, given)


def _check_names(operation: Operation, given: dict[str, Any]) -> None:
    """Refuses unknown and missing arguments, and says which there are."""
    known = {parameter.key for parameter in operation.parameters} | ({operation.body.key} if operation.body else set())
    unknown = [key for key in given if key not in known]
    missing = [p.key for p in operation.parameters if p.required and given.get(p.key) is None]
    if operation.body and operation.body.required and operation.body.key not in given:
        missing.append(operation.body.key)
    if unknown or missing:
        parts = [f"`{key}` is missing" for key in missing] + [f"`{key[:80]}` is no argument of it" for key in unknown]
        raise InvalidArguments(
            f"{operation.definition.name}: {'; '.join(parts)}.",
            hints=sorted(known),
            next_action=f"Its arguments are: {', '.join(sorted(known)) or 'none'}.",
        )


def _text(value: Any) -> str:
    """A primitive as OpenAPI writes it; anything deeper as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    return str(value) if isinstance(value, str | int | float) else msgspec.json.encode(value).decode()


def _flat(value: dict[str, Any]) -> list[str]:
    """`{"a": 1, "b": 2}` as `a 1 b 2`: how an object goes where it is not exploded."""
    return [part for key, item in value.items() for part in (key, _text(item))]


def _path_value(parameter: Parameter, value: Any) -> str:
    quoted = _path_text(parameter, value)
    # A path of `..` would lead to another operation.
    if quoted.strip(".") == "":
        raise InvalidArguments(
            f"`{parameter.key}` is {_text(value)!r}, which cannot stand in a path.",
            next_action="Give a value that is not empty and not only dots.",
        )
    return quoted


def _path_text(parameter: Parameter, value: Any) -> str:
    def safe(item: Any) -> str:
        return quote(_text(item), safe="")

    name = quote(parameter.name, safe="")
    explode = parameter.explode
    if isinstance(value, dict):
        pairs = [f"{safe(key)}={safe(item)}" for key, item in value.items()]
        flat = ",".join(safe(part) for part in _flat(value))
        if parameter.style == "label":
            return "." + (".".join(pairs) if explode else flat)
        if parameter.style == "matrix":
            return ";" + (";".join(pairs) if explode else f"{name}={flat}")
        return ",".join(pairs) if explode else flat
    items = [safe(item) for item in (value if isinstance(value, list) else [value])]
    if parameter.style == "label":
        return "." + (".".join(items) if explode else ",".join(items))
    if parameter.style == "matrix":
        return "".join(f";{name}={item}" for item in items) if explode else f";{name}={','.join(items)}"
    return ",".join(items)


def _query_pairs(parameter: Parameter, value: Any) -> _Pairs:
    def safe(item: Any) -> str:
        return quote(_text(item), safe=_RESERVED if parameter.reserved else "")

    name = quote(parameter.name, safe="[]")
    delimiter = _DELIMITERS.get(parameter.style, ",")
    if isinstance(value, dict):
        if parameter.style == "deepObject":
            return _deep(name, value, safe)
        if parameter.explode:
            return [(quote(key, safe=""), safe(item)) for key, item in value.items()]
        return [(name, delimiter.join(safe(part) for part in _flat(value)))]
    if isinstance(value, list):
        if parameter.explode or parameter.style == "deepObject":
            return [(name, safe(item)) for item in value]
        return [(name, delimiter.join(safe(item) for item in value))]
    return [(name, safe(value))]


def _deep(name: str, value: Any, safe: Any) -> _Pairs:
    """`filter[size][min]=3`: OpenAPI says one level; deeper ones go on in the same way."""
    if isinstance(value, dict):
        return [
            pair for key, item in value.items() for pair in _deep(f"{name}[{quote(str(key), safe='')}]", item, safe)
        ]
    if isinstance(value, list):
        return [(name, safe(item)) for item in value]
    return [(name, safe(value))]


def _header_value(parameter: Parameter, value: Any) -> str:
    if isinstance(value, dict):
        pairs = [f"{key}={_text(item)}" for key, item in value.items()]
        text = ",".join(pairs if parameter.explode else _flat(value))
    else:
        text = ",".join(_text(item) for item in value) if isinstance(value, list) else _text(value)
    if _CONTROL.search(text) or not text.isascii():
        raise InvalidArguments(
            f"`{parameter.key}` goes into the header {parameter.name}, which takes printable ASCII only.",
            next_action="Leave out line ends and other characters.",
        )
    return text


def _with_body(request: Request, body: Body | None, given: dict[str, Any]) -> Request:
    if body is None or body.key not in given:
        return request
    value = given[body.key]
    headers = {**request.headers, "Content-Type": body.media if "*" not in body.media else "application/json"}
    if body.kind == "json":
        return _replaced(request, headers=headers, content=msgspec.json.encode(value))
    if body.kind == "text":
        return _replaced(request, headers=headers, content=_text(value).encode())
    if body.kind == "bytes":
        return _replaced(request, headers=headers, content=_decoded(body.key, value))
    if not isinstance(value, dict):
        raise InvalidArguments(f"`{body.key}` must be an object of form fields.")
    if body.kind == "form":
        pairs = [
            (key, _text(one))
            for key, item in value.items()
            if item is not None
            for one in (item if isinstance(item, list) else [item])
        ]
        content = "&".join(f"{quote(key, safe='')}={quote(text, safe='')}" for key, text in pairs)
        return _replaced(request, headers=headers, content=content.encode())
    return _multipart(request, body, value)


def _multipart(request: Request, body: Body, value: dict[str, Any]) -> Request:
    """The content type is left to whoever writes the parts, since it names their boundary."""
    parts: list[_Part] = []
    for key, item in value.items():
        if item is None:
            continue
        if key in body.binary:
            parts.append((key, (key, _decoded(f"{body.key}.{key}", item), "application/octet-stream")))
        else:
            parts += [(key, (None, _text(one).encode(), None)) for one in (item if isinstance(item, list) else [item])]
    return _replaced(request, parts=parts)


def _decoded(where: str, value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise InvalidArguments(
            f"`{where}` must be base64.", next_action="Encode the bytes as base64 and call again."
        ) from None


def _replaced(request: Request, **changes: Any) -> Request:
    changed: Request = msgspec.structs.replace(request, **changes)
    return changed
