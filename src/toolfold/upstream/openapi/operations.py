"""The operations of a document, each with its tool definition and with what is needed to make a request of it.

Nothing here speaks HTTP: `requests` makes a request of an operation, and `upstream` sends it.
"""

import re
from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from toolfold.types import ToolDefinition
from toolfold.upstream.definitions import make_definition
from toolfold.upstream.openapi.schemas import Json, SchemaConverter, as_dict, as_list
from toolfold.words import sounds_destructive

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")
_MAX_TOOLS = 20_000
# How much of an operation's text is read for what it does.
_MAX_JUDGED = 300

_Place = Literal["path", "query", "header", "cookie"]
_BodyKind = Literal["json", "form", "multipart", "text", "bytes"]

# Which of several media types is sent: the first of these that is there.
_BODY_KINDS: tuple[_BodyKind, ...] = ("json", "form", "multipart", "text", "bytes")
# The places of parameters, with the style that each has by default.
_STYLES = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}
_BASE64: Json = {"type": "string", "contentEncoding": "base64"}
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
        operations: dict[str, Operation] = {}
        entries = list(self._entries())
        self.schemas.share(len(entries))
        for path, item, method, operation in entries:
            if len(operations) >= _MAX_TOOLS:
                self.warnings.append(f"only the first {_MAX_TOOLS} operations are taken over")
                break
            name = self._name(path, method, operation, operations)
            read = self._operation(name, path, item, method, operation)
            if read is not None:
                operations[name] = read
        self.warnings += self.schemas.warnings
        return operations

    def _entries(self) -> Iterator[tuple[str, Json, str, Json]]:
        for path, raw_item in as_dict(self.document.get("paths")).items():
            item = as_dict(self.schemas.follow(raw_item))
            for method in _METHODS if path.startswith("/") else ():
                if isinstance(item.get(method), dict):
                    yield path, item, method, item[method]

    def _operation(self, name: str, path: str, item: Json, method: str, operation: Json) -> Operation | None:
        if self._elsewhere(operation) or self._elsewhere(item):
            self.warnings.append(
                f"{name} is left out: it names a server of its own; configure that server as another entry"
            )
            return None
        parameters, properties = self._parameters(item, operation, name)
        body = self._body(operation, properties, name)
        if missing := _unfilled(path, parameters):
            self.warnings.append(f"{name} is left out: its path needs {missing}, and no parameter gives them")
            return None
        required = [part.key for part in (*parameters, body) if part is not None and part.required]
        schema: Json = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        output, wrapped = self._output(operation)
        definition = make_definition(
            name=name,
            title=_text(operation.get("summary")),
            description=_description(operation, item),
            inputSchema=self._with_definitions(schema, "request"),
            outputSchema=output,
            annotations=_annotations(method, name, path, _description(operation, item)[:_MAX_JUDGED]),
        )
        return Operation(definition, method.upper(), path, parameters, body, output is not None, wrapped)

    def _name(self, path: str, method: str, operation: Json, taken: dict[str, Operation]) -> str:
        text = _text(operation.get("operationId")) or f"{method} {path}"
        name = re.sub(r"[^A-Za-z0-9_\-.]+", "_", text).strip("_")[:128] or f"{method}_operation"
        unique, number = name, 2
        while unique in taken:
            unique, number = f"{name[:120]}_{number}", number + 1
        if unique != name:
            self.warnings.append(f"two operations would be named {name}; the one at {method} {path} is {unique}")
        return unique

    def _elsewhere(self, holder: Json) -> bool:
        """Whether a path or an operation names a server that the document as a whole does not."""
        own, shared = (
            [server.get("url") for server in as_list(part.get("servers")) if isinstance(server, dict)]
            for part in (holder, self.document)
        )
        return bool(own) and own[0] not in shared

    def _with_definitions(self, schema: Json, side: Literal["request", "response"]) -> Json:
        definitions = self.schemas.definitions(schema, side)
        return schema | ({"$defs": definitions} if definitions else {})

    def _parameters(self, item: Json, operation: Json, tool: str) -> tuple[tuple[Parameter, ...], Json]:
        """Those of the path and of the operation; the operation's own win."""
        entries = [*as_list(item.get("parameters")), *as_list(operation.get("parameters"))]
        resolved = [as_dict(self.schemas.follow(entry)) for entry in entries]
        by_name = {(str(entry.get("in")), str(entry.get("name"))): entry for entry in resolved if entry}
        parameters: list[Parameter] = []
        properties: Json = {}
        for entry in by_name.values():
            place: Any = entry.get("in")
            name = entry.get("name")
            if str(place) not in _STYLES or not isinstance(name, str) or not name:
                self.warnings.append(f"{tool}: a parameter in {place!r} is left out")
            elif place != "header" or name.lower() not in _IGNORED_HEADERS:
                parameters.append(self._parameter(entry, place, name, properties))
        return tuple(parameters), properties

    def _parameter(self, entry: Json, place: _Place, name: str, properties: Json) -> Parameter:
        """Puts a parameter among the properties and says how it goes out."""
        key = name if name not in properties else f"{place}_{name}"
        content = as_dict(entry.get("content"))
        media, holder = next(iter(content.items()), ("", entry))
        schema = self.schemas.convert(as_dict(holder).get("schema", {}), "request")
        properties[key] = _described(entry, schema)
        style = _text(entry.get("style")) or _STYLES[place]
        return Parameter(
            key=key,
            name=name,
            place=place,
            style=style,
            explode=bool(entry.get("explode", style in {"form", "cookie"})),
            required=place == "path" or entry.get("required") is True,
            as_json=bool(content) and is_json(media),
            reserved=entry.get("allowReserved") is True,
        )

    def _body(self, operation: Json, properties: Json, tool: str) -> Body | None:
        """Puts the body among the properties and says how it goes out."""
        request = as_dict(self.schemas.follow(operation.get("requestBody")))
        content = as_dict(request.get("content"))
        if not content:
            return None
        media = min(content, key=lambda media: _BODY_KINDS.index(_body_kind(media)))
        kind = _body_kind(media)
        raw = as_dict(content[media]).get("schema", {})
        binary: tuple[str, ...] = ()
        if kind == "text":
            schema: Json = {"type": "string"}
        elif kind == "bytes":
            schema = _BASE64
            self.warnings.append(f"{tool}: the body of type {media} is given as base64")
        elif kind == "multipart":
            schema, binary = self._multipart(raw)
        else:
            schema = self.schemas.convert(raw, "request")
        key = "body" if "body" not in properties else "request_body"
        properties[key] = _described(request, schema)
        return Body(key, kind, media, request.get("required") is True, binary)

    def _multipart(self, raw: Any) -> tuple[Json, tuple[str, ...]]:
        """A multipart body's own properties, written out, with those that are files given as base64."""
        parts = as_dict(as_dict(self.schemas.follow(raw)).get("properties"))
        if not parts:
            return self.schemas.convert(raw, "request"), ()
        schema = self.schemas.convert(self.schemas.follow(raw), "request")
        files = tuple(name for name, part in parts.items() if _is_file(as_dict(self.schemas.follow(part))))
        for name in files:
            described = {key: value for key, value in parts[name].items() if key in {"title", "description"}}
            schema["properties"][name] = described | _BASE64
        return schema, files

    def _output(self, operation: Json) -> tuple[Json | None, bool]:
        """The schema of what a success returns as JSON, and whether it stands under `result`."""
        schemas: list[Json] = []
        for raw in self._success_schemas(operation):
            schema = self.schemas.convert(raw, "response")
            if schema and schema not in schemas:
                schemas.append(schema)
        if not schemas:
            return None, False
        merged = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        if {self.schemas.kind(schema, "response") for schema in schemas} == {"object"}:
            return self._with_definitions({"type": "object"} | merged, "response"), False
        # `structuredContent` must be an object, so any other value is wrapped in one.
        wrapper: Json = {"type": "object", "properties": {"result": merged}, "required": ["result"]}
        return self._with_definitions(wrapper, "response"), True

    def _success_schemas(self, operation: Json) -> Iterator[Json]:
        for status, raw in as_dict(operation.get("responses")).items():
            response = as_dict(self.schemas.follow(raw))
            for media, holder in as_dict(response.get("content")).items():
                schema = as_dict(holder).get("schema")
                if str(status).startswith("2") and is_json(media) and isinstance(schema, dict):
                    yield schema


def _unfilled(path: str, parameters: tuple[Parameter, ...]) -> list[str]:
    """The names in a path's braces that no parameter fills."""
    return sorted(set(re.findall(r"\{([^{}]+)\}", path)) - {p.name for p in parameters if p.place == "path"})


def is_json(media: str) -> bool:
    """Whether a media type is JSON, or a range that JSON falls into."""
    plain = media.partition(";")[0].strip().lower()
    return plain in {"application/json", "text/json", "*/*", "application/*"} or plain.endswith("+json")


def _body_kind(media: str) -> _BodyKind:
    plain = media.partition(";")[0].strip().lower()
    if is_json(media):
        return "json"
    if plain == "application/x-www-form-urlencoded":
        return "form"
    if plain.startswith("multipart/"):
        return "multipart"
    return "text" if plain.startswith("text/") or plain.endswith(("xml", "yaml")) else "bytes"


def _is_file(part: Json) -> bool:
    return part.get("format") == "binary" or part.get("contentMediaType") == "application/octet-stream"


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _described(entry: Json, schema: Json) -> Json:
    description = entry.get("description")
    return ({"description": description} if isinstance(description, str) and description else {}) | schema


def _description(operation: Json, item: Json) -> str:
    texts = (_text(operation.get("summary") or item.get("summary")), _text(operation.get("description")))
    parts = list(dict.fromkeys(text for text in texts if text))
    return "\n\n".join([*parts, "Deprecated."] if operation.get("deprecated") is True else parts)


def _annotations(method: str, *texts: str) -> Json:
    """What HTTP says of a method, and an operation of itself. A POST may compute something as well as delete it: of one
    that does not say, nothing is claimed."""
    if method in {"get", "head", "options", "trace", "query"}:
        return {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": True}
    claims = {"idempotentHint": method in {"put", "delete"}, "openWorldHint": True}
    destroys = method == "delete" or any(map(sounds_destructive, texts))
    return claims | ({"readOnlyHint": False, "destructiveHint": True} if destroys else {})
