"""The operations of a document, each with its tool definition and with what is needed to make a request of it.

Nothing here speaks HTTP; `requests` does with the plan that is made here.
"""

import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from toolfold.types import ToolDefinition
from toolfold.upstream.definitions import read_definition
from toolfold.upstream.openapi.schemas import Json, SchemaConverter

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")
_MAX_TOOLS = 20_000

_Place = Literal["path", "query", "header", "cookie"]
_BodyKind = Literal["json", "form", "multipart", "text", "bytes"]

_PLACES = ("path", "query", "header", "cookie")
_STYLES = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}
# OpenAPI says that parameters of these names are ignored: other parts of the document say them.
_IGNORED_HEADERS = {"accept", "content-type", "authorization"}


class Parameter(Struct, frozen=True):
    """One parameter of an operation. `key` is its name among the tool's arguments."""

    key: str
    name: str
    place: _Place
    style: str
    explode: bool
    required: bool
    as_json: bool = False
    reserved: bool = False
    """Whether reserved characters go as they are."""


class Body(Struct, frozen=True):
    """The request body: where it stands among the arguments, and how it is sent."""

    key: str
    kind: _BodyKind
    media: str
    required: bool
    binary: tuple[str, ...] = ()
    """Fields of a multipart body that are given as base64 and sent as files."""


class Operation(Struct, frozen=True):
    """An operation as a tool and as a request."""

    definition: ToolDefinition
    method: str
    path: str
    parameters: tuple[Parameter, ...]
    body: Body | None
    structured: bool
    wrapped: bool


class OperationReader:
    """Reads all operations of one document. `warnings` says what could not be taken over."""

    def __init__(self, document: Json) -> None:
        self.document = document
        self.schemas = SchemaConverter(document)
        self.warnings: list[str] = []

    def operations(self) -> dict[str, Operation]:
        """Operations by tool name, in the order of the document."""
        found: dict[str, Operation] = {}
        every = list(self._walk())
        self.schemas.share(len(every))
        for path, item, method, operation in every:
            if len(found) >= _MAX_TOOLS:
                self.warnings.append(f"only the first {_MAX_TOOLS} operations are taken over")
                break
            made = self._operation(path, item, method, operation, found)
            if made is not None:
                found[made.definition.name] = made
        self.warnings += self.schemas.warnings
        return found

    def _walk(self) -> Iterator[tuple[str, Json, str, Json]]:
        paths = self.document.get("paths")
        for path, raw_item in (paths if isinstance(paths, dict) else {}).items():
            item = self.schemas.follow(raw_item)
            if not path.startswith("/") or not isinstance(item, dict):
                continue
            for method in _METHODS:
                if isinstance(item.get(method), dict):
                    yield path, item, method, item[method]

    def _operation(
        self, path: str, item: Json, method: str, operation: Json, taken: dict[str, Operation]
    ) -> Operation | None:
        name = self._name(path, method, operation, taken)
        if self._elsewhere(operation) or self._elsewhere(item):
            self.warnings.append(
                f"{name} is left out: it names a server of its own; configure that server as another entry"
            )
            return None
        parameters, properties = self._parameters(item, operation, name)
        body = self._body(operation, properties, name)
        missing = set(re.findall(r"\{([^{}]+)\}", path)) - {p.name for p in parameters if p.place == "path"}
        if missing:
            self.warnings.append(f"{name} is left out: its path needs {sorted(missing)}, and no parameter gives them")
            return None
        required = [p.key for p in parameters if p.required] + ([body.key] if body and body.required else [])
        schema: Json = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        wire: Json = {"name": name}
        if isinstance(operation.get("summary"), str) and operation["summary"].strip():
            wire["title"] = operation["summary"].strip()
        if description := _description(operation, item):
            wire["description"] = description
        wire["inputSchema"] = self._whole(schema, "request")
        output, wrapped = self._output(operation)
        if output is not None:
            wire["outputSchema"] = output
        wire["annotations"] = _annotations(method)
        definition, _ = read_definition(Raw(msgspec.json.encode(wire)))
        if definition is None:  # pragma: no cover - the name is made here
            return None
        return Operation(definition, method.upper(), path, parameters, body, output is not None, wrapped)

    def _name(self, path: str, method: str, operation: Json, taken: dict[str, Operation]) -> str:
        given = operation.get("operationId")
        text = given if isinstance(given, str) and given.strip() else f"{method} {path}"
        name = re.sub(r"[^A-Za-z0-9_\-.]+", "_", text).strip("_")[:128] or f"{method}_operation"
        unique, number = name, 2
        while unique in taken:
            unique, number = f"{name[:120]}_{number}", number + 1
        if unique != name:
            self.warnings.append(f"two operations would be named {name}; the one at {method} {path} is {unique}")
        return unique

    def _elsewhere(self, holder: Json) -> bool:
        """Whether a path or an operation names a server that the document as a whole does not."""
        own = [server.get("url") for server in _list(holder, "servers") if isinstance(server, dict)]
        shared = [server.get("url") for server in _list(self.document, "servers") if isinstance(server, dict)]
        return bool(own) and own[0] not in shared

    def _whole(self, schema: Json, side: Literal["request", "response"]) -> Json:
        definitions = self.schemas.definitions(schema, side)
        return schema | ({"$defs": definitions} if definitions else {})

    def _parameters(self, item: Json, operation: Json, tool: str) -> tuple[tuple[Parameter, ...], Json]:
        """Those of the path and of the operation; the operation's own win."""
        raw = [self.schemas.follow(each) for each in [*_list(item, "parameters"), *_list(operation, "parameters")]]
        named = {(str(one.get("in")), str(one.get("name"))): one for one in raw if isinstance(one, dict)}
        found: list[Parameter] = []
        properties: Json = {}
        for one in named.values():
            place, name = one.get("in"), one.get("name")
            if place not in _PLACES or not isinstance(name, str) or not name:
                self.warnings.append(f"{tool}: a parameter in {place!r} is left out")
                continue
            if place == "header" and name.lower() in _IGNORED_HEADERS:
                continue
            key = name if name not in properties else f"{place}_{name}"
            schema, as_json = self._parameter_schema(one)
            told = one.get("description")
            properties[key] = ({"description": told} if isinstance(told, str) and told else {}) | schema
            style = one.get("style") if isinstance(one.get("style"), str) else _STYLES[place]
            found.append(
                Parameter(
                    key=key,
                    name=name,
                    place=place,
                    style=style or "form",
                    explode=bool(one.get("explode", style in {"form", "cookie"})),
                    required=place == "path" or one.get("required") is True,
                    as_json=as_json,
                    reserved=one.get("allowReserved") is True,
                )
            )
        return tuple(found), properties

    def _parameter_schema(self, one: Json) -> tuple[Json, bool]:
        content = one.get("content")
        if isinstance(content, dict) and content:
            media, holder = next(iter(content.items()))
            schema = holder.get("schema", {}) if isinstance(holder, dict) else {}
            return self.schemas.convert(schema, "request"), is_json(media)
        return self.schemas.convert(one.get("schema", {}), "request"), False

    def _body(self, operation: Json, properties: Json, tool: str) -> Body | None:
        """Puts the body among the properties and says how it goes out."""
        request = self.schemas.follow(operation.get("requestBody"))
        content = request.get("content") if isinstance(request, dict) else None
        if not isinstance(request, dict) or not isinstance(content, dict) or not content:
            return None
        media, kind = _media(content)
        holder = content[media]
        raw = holder.get("schema", {}) if isinstance(holder, dict) else {}
        key = "body" if "body" not in properties else "request_body"
        if kind in {"text", "bytes"}:
            schema: Json = {"type": "string"} | ({"contentEncoding": "base64"} if kind == "bytes" else {})
        else:
            schema = self.schemas.convert(raw, "request")
        binary: tuple[str, ...] = ()
        if kind == "multipart":
            schema, binary = self._files(raw, schema)
        told = request.get("description")
        properties[key] = ({"description": told} if isinstance(told, str) and told else {}) | schema
        if kind == "bytes":
            self.warnings.append(f"{tool}: the body of type {media} is given as base64")
        return Body(key, kind, media, request.get("required") is True, binary)

    def _files(self, raw: Any, schema: Json) -> tuple[Json, tuple[str, ...]]:
        """A multipart body's own properties, written out, with those that are files given as base64."""
        whole = self.schemas.follow(raw)
        parts = whole.get("properties") if isinstance(whole, dict) else None
        if not isinstance(parts, dict):
            return schema, ()
        schema = self.schemas.convert(whole, "request")
        files = tuple(name for name, part in parts.items() if _is_file(self.schemas.follow(part)))
        for name in files:
            described = {key: value for key, value in parts[name].items() if key in {"title", "description"}}
            schema["properties"][name] = described | {"type": "string", "contentEncoding": "base64"}
        return schema, files

    def _output(self, operation: Json) -> tuple[Json | None, bool]:
        """The schema of what a success returns as JSON, and whether it stands under `result`."""
        schemas: list[Json] = []
        responses = operation.get("responses")
        for status, raw in (responses if isinstance(responses, dict) else {}).items():
            response = self.schemas.follow(raw)
            content = response.get("content") if isinstance(response, dict) else None
            if not str(status).startswith("2") or not isinstance(content, dict):
                continue
            for media, holder in content.items():
                if is_json(media) and isinstance(holder, dict) and isinstance(holder.get("schema"), dict):
                    schema = self.schemas.convert(holder["schema"], "response")
                    if schema and schema not in schemas:
                        schemas.append(schema)
        if not schemas:
            return None, False
        kinds = {self.schemas.kind(schema, "response") for schema in schemas}
        one = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        if kinds == {"object"}:
            return self._whole({"type": "object"} | one, "response"), False
        wrapper: Json = {"type": "object", "properties": {"result": one}, "required": ["result"]}
        return self._whole(wrapper, "response"), True


def is_json(media: str) -> bool:
    """Whether a media type is JSON, or a range that JSON falls into."""
    plain = media.partition(";")[0].strip().lower()
    return plain in {"application/json", "text/json", "*/*", "application/*"} or plain.endswith("+json")


def _media(content: Json) -> tuple[str, _BodyKind]:
    """The media type to send: JSON if there, then forms, then text, then bytes."""

    def kind(media: str) -> _BodyKind:
        plain = media.partition(";")[0].strip().lower()
        if is_json(media):
            return "json"
        if plain == "application/x-www-form-urlencoded":
            return "form"
        if plain.startswith("multipart/"):
            return "multipart"
        return "text" if plain.startswith("text/") or plain.endswith(("xml", "yaml")) else "bytes"

    order: dict[_BodyKind, int] = {"json": 0, "form": 1, "multipart": 2, "text": 3, "bytes": 4}
    media = min(content, key=lambda each: order[kind(each)])
    return media, kind(media)


def _is_file(part: Any) -> bool:
    if not isinstance(part, dict):
        return False
    return part.get("format") == "binary" or part.get("contentMediaType") == "application/octet-stream"


def _list(holder: Json, key: str) -> list[Any]:
    value = holder.get(key)
    return value if isinstance(value, list) else []


def _description(operation: Json, item: Json) -> str:
    parts: list[str] = []
    for text in (operation.get("summary") or item.get("summary"), operation.get("description")):
        if isinstance(text, str) and text.strip() and text.strip() not in parts:
            parts.append(text.strip())
    if operation.get("deprecated") is True:
        parts.append("Deprecated.")
    return "\n\n".join(parts)


def _annotations(method: str) -> Json:
    if method in {"get", "head", "options", "trace", "query"}:
        return {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": True}
    claims = {"readOnlyHint": False, "idempotentHint": method in {"put", "delete"}, "openWorldHint": True}
    return claims | ({"destructiveHint": True} if method == "delete" else {})
