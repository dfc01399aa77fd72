"""Loads an OpenAPI document from a file or a URL, as plain JSON values of version 3.

It reads JSON, and YAML where PyYAML is installed. It checks the version and nothing else of the content; a reference to
another document is never followed. Swagger 2.0 is rewritten as 3.0, as far as operations need it: things move to where
version 3 has them, and a part of the wrong kind is left as it is.
"""

import asyncio
import datetime
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import msgspec

from toolfold.errors import ServerUnavailable
from toolfold.text import cut_deep, replace_large_numbers
from toolfold.upstream.openapi.schemas import Json, as_dict, as_list
from toolfold.upstream.threads import run_in_thread
from toolfold.wire.http_client import is_loopback, refuse_metadata_host
from toolfold.yaml_reader import load_yaml

__all__ = ["is_url", "load_document"]

_MAX_DOCUMENT_BYTES = 64 * 1024 * 1024
# YAML can repeat a part by name, so a small file may unfold without end.
_MAX_DOCUMENT_VALUES = 5_000_000

# Of Swagger 2.0.
_METHODS = ("get", "put", "post", "delete", "options", "head", "patch")
_SCHEMA_KEYS = (
    "type", "format", "items", "enum", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems", "multipleOf",
)  # fmt: skip
_MOVED = {"#/definitions/": "#/components/schemas/", "#/responses/": "#/components/responses/"}


def is_url(source: str) -> bool:
    return source.lower().startswith(("http://", "https://"))


async def load_document(source: str, *, cwd: str | None, headers: dict[str, str], timeout_s: float) -> Json:
    """Reads and checks the document. Raises `ServerUnavailable`. `headers` go to the address and nowhere else."""
    if not source:
        raise ServerUnavailable(
            "no OpenAPI document is named", next_action="Set `openapi` to the file or address of the document."
        )
    if is_url(source):
        body = await _fetch(source, headers, timeout_s)
    else:
        body = await run_in_thread(partial(_read, Path(cwd or "").joinpath(source).expanduser()))
    return await run_in_thread(partial(_parse_document, body, source))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            body = file.read(_MAX_DOCUMENT_BYTES + 1)
        _check_size(body, str(path))
    except OSError as error:
        raise ServerUnavailable(
            f"the OpenAPI document {path} cannot be read: {error.strerror or error}",
            next_action="Check the path in `openapi`.",
        ) from None
    return body


def _check_size(body: bytes | bytearray, source: str) -> None:
    if len(body) > _MAX_DOCUMENT_BYTES:
        raise ServerUnavailable(f"the OpenAPI document {source} is over {_MAX_DOCUMENT_BYTES >> 20} MiB")


async def _fetch(address: str, headers: dict[str, str], timeout_s: float) -> bytes:
    import httpx2

    refuse_metadata_host(urlsplit(address).hostname or "")
    body = bytearray()
    try:
        async with (
            asyncio.timeout(timeout_s),
            httpx2.AsyncClient(trust_env=not is_loopback(urlsplit(address).hostname)) as client,
            client.stream("GET", address, headers=headers) as response,
        ):
            if response.status_code != 200:
                where = urljoin(address, response.headers.get("location", "")) if response.is_redirect else ""
                raise ServerUnavailable(
                    f"the OpenAPI document at {address} answers {response.status_code}"
                    + (f" and points to {where}" if where else ""),
                    next_action="Put the document's final address into `openapi`.",
                )
            async for part in response.aiter_bytes():
                body += part
                _check_size(body, address)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise ServerUnavailable(
            f"the OpenAPI document at {address} cannot be fetched: {type(error).__name__}: {error}",
            next_action="Check the address in `openapi`, and that its server runs.",
        ) from None
    except TimeoutError:
        raise ServerUnavailable(
            f"the OpenAPI document at {address} did not arrive within {timeout_s:g} s",
            next_action="Check the address, or raise `start_timeout_s`.",
        ) from None
    return bytes(body)


def _parse_document(body: bytes, source: str) -> Json:
    """JSON or YAML bytes as a version 3 document. Raises `ServerUnavailable` that says what is wrong."""
    body = body.removeprefix(b"\xef\xbb\xbf")  # a byte order mark, which JSON forbids and editors write
    value = _json(body, source) if body.lstrip()[:1] == b"{" else _yaml(body, source)
    if not isinstance(value, dict):
        raise ServerUnavailable(f"{source} is no OpenAPI document: it holds no object")
    if str(value.get("swagger", "")) == "2.0":
        return _from_swagger(value)
    version = str(value.get("openapi", ""))
    if not version.startswith("3."):
        problem = f"says openapi: {version}" if version else "has no `openapi` field"
        raise ServerUnavailable(
            f"{source} is no OpenAPI document that can be read: it {problem}",
            next_action="Versions 3.0, 3.1, 3.2 and Swagger 2.0 are read.",
        )
    return value


_MAX_BITS = 14_000  # below the 4,300 digits that readers take; hexadecimal numbers have no such bound


def _json(body: bytes, source: str) -> Any:
    body = replace_large_numbers(body)
    try:
        try:
            return msgspec.json.decode(body)
        except RecursionError:  # one operation's schema is no reason to go without the others
            return msgspec.json.decode(cut_deep(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ServerUnavailable(f"{source} is no valid JSON: {error}", next_action="Correct the document.") from None


def _yaml(body: bytes, source: str) -> Any:
    try:
        return _json_values(load_yaml(body), iter(range(_MAX_DOCUMENT_VALUES)))
    except ImportError:
        raise ServerUnavailable(
            f"{source} is YAML, and the package that reads YAML is not installed",
            next_action="pip install pyyaml, or give the document as JSON.",
        ) from None
    except (ValueError, RecursionError) as error:
        raise ServerUnavailable(f"{source} is no valid YAML: {error}", next_action="Correct the document.") from None


def _json_values(value: Any, left: Iterator[int]) -> Any:
    """Turns what YAML knows and JSON does not (dates, keys that are numbers) into JSON values, bounded."""
    if next(left, None) is None:
        raise ValueError(f"it unfolds to more than {_MAX_DOCUMENT_VALUES} values")
    if isinstance(value, dict):
        return {_json_key(key): _json_values(item, left) for key, item in value.items()}
    if isinstance(value, list | set | tuple):
        return [_json_values(item, left) for item in value]
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise ValueError("it holds a number that no JSON reader takes")
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _json_key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _from_swagger(old: Json) -> Json:
    """The same interface as a version 3 document."""
    produces = _media_types("produces", old)
    new: Json = {
        "openapi": "3.0.3",
        "info": old.get("info", {}),
        "servers": _servers(old),
        "components": {
            "schemas": old.get("definitions", {}),
            "responses": {name: _response(item, produces) for name, item in as_dict(old.get("responses")).items()},
        },
        "paths": {path: _path(item, old) for path, item in as_dict(old.get("paths")).items()},
    }
    return as_dict(_move_references(new))


def _media_types(key: str, *holders: Json) -> list[str]:
    """Of the first that names any, an operation before its document."""
    return next(filter(None, (_texts(holder.get(key)) for holder in holders)), ["application/json"])


def _texts(value: Any) -> list[str]:
    return [text for text in as_list(value) if isinstance(text, str)]


def _servers(old: Json) -> list[Json]:
    base = str(old.get("basePath", "/"))
    host = old.get("host")
    if not host:
        return [{"url": base}]
    return [{"url": f"{scheme}://{host}{base}"} for scheme in _texts(old.get("schemes")) or ["https"]]


def _path(item: Any, old: Json) -> Any:
    if not isinstance(item, dict):
        return item
    shared = [_resolve(parameter, old) for parameter in as_list(item.get("parameters"))]
    return {
        key: _operation(value, shared, old) if key in _METHODS and isinstance(value, dict) else value
        for key, value in item.items()
        if key != "parameters"
    }


def _resolve(parameter: Any, old: Json) -> Json:
    """Parameters are written out, since those for bodies move elsewhere."""
    reference = as_dict(parameter).get("$ref", "")
    if isinstance(reference, str) and reference.startswith("#/parameters/"):
        return as_dict(as_dict(old.get("parameters")).get(reference.removeprefix("#/parameters/")))
    return as_dict(parameter)


def _operation(operation: Json, shared: list[Json], old: Json) -> Json:
    own = [_resolve(parameter, old) for parameter in as_list(operation.get("parameters"))]
    named = {(str(item.get("in")), str(item.get("name"))): item for item in [*shared, *own]}
    parameters = list(named.values())
    produces = _media_types("produces", operation, old)
    new = {key: value for key, value in operation.items() if key not in {"consumes", "produces"}}
    new["parameters"] = [_parameter(item) for item in parameters if item.get("in") not in ("body", "formData")]
    if body := _body(parameters, _media_types("consumes", operation, old)):
        new["requestBody"] = body
    new["responses"] = {
        str(status): _response(item, produces) for status, item in as_dict(operation.get("responses")).items()
    }
    return new


def _schema(item: Json) -> Json:
    if item.get("type") == "file":
        return {"type": "string", "format": "binary"}
    return {key: item[key] for key in _SCHEMA_KEYS if key in item}


def _parameter(item: Json) -> Json:
    new: Json = {key: item[key] for key in ("name", "in", "description", "required", "deprecated") if key in item}
    new["schema"] = _schema(item)
    collection = item.get("collectionFormat", "csv")
    if item.get("type") == "array" and item.get("in") == "query":
        styles = {"ssv": "spaceDelimited", "pipes": "pipeDelimited"}
        new["style"] = styles.get(str(collection), "form")
        new["explode"] = collection == "multi"
    return new


def _body(parameters: list[Json], consumes: list[str]) -> Json:
    for item in parameters:
        if item.get("in") == "body":
            content = {media: {"schema": item.get("schema", {})} for media in consumes}
            return {"content": content, "required": bool(item.get("required"))} | _description(item)
    fields = [item for item in parameters if item.get("in") == "formData"]
    return _form(fields, consumes) if fields else {}


def _form(fields: list[Json], consumes: list[str]) -> Json:
    schemas = [_schema(item) | _description(item) for item in fields]
    has_file = any(schema.get("format") == "binary" for schema in schemas)
    is_multipart = has_file or consumes == ["multipart/form-data"]
    media = "multipart/form-data" if is_multipart else "application/x-www-form-urlencoded"
    names = [str(item.get("name")) for item in fields]
    required = [name for name, item in zip(names, fields, strict=True) if item.get("required")]
    schema = {"type": "object", "properties": dict(zip(names, schemas, strict=True))}
    schema |= {"required": required} if required else {}
    return {"content": {media: {"schema": schema}}, "required": bool(required)}


def _description(item: Json) -> Json:
    return {"description": item["description"]} if "description" in item else {}


def _response(item: Any, produces: list[str]) -> Any:
    if not isinstance(item, dict) or "schema" not in item:
        return item
    new = {key: value for key, value in item.items() if key not in {"schema", "examples"}}
    new["content"] = {media: {"schema": item["schema"]} for media in produces}
    return new


def _move_references(value: Any) -> Any:
    if isinstance(value, dict):
        new = {key: _move_references(item) for key, item in value.items()}
        reference = new.get("$ref")
        if isinstance(reference, str):
            for old, moved in _MOVED.items():
                if reference.startswith(old):
                    new["$ref"] = moved + reference.removeprefix(old)
        return new
    return [_move_references(item) for item in value] if isinstance(value, list) else value
