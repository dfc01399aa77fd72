"""Rows to values and back. What is searched by stands in columns, the rest of a value in one JSON record.

Stored files hold these records: a field is only ever added at the end, with a default. Nearly every tool definition is
just a reading of its raw object; then only the raw bytes are written. Where a source read an unusual object in its own
way, or built the definition by other means, the fields are written beside the raw bytes.
"""

from msgspec import Raw, Struct, ValidationError, field
from msgspec.json import Decoder, Encoder
from msgspec.structs import asdict

from toolfold.storage.base import Generation, ServerRecord
from toolfold.types import EMPTY_OBJECT, Annotations, Change, Kind, Node, Path, Tool, ToolDefinition

_NULL = Raw(b"null")
# The first byte of a blob says how the rest is to be read. Stored files depend on both.
_AS_RAW = b"r"
_AS_FIELDS = b"f"
_NO_CLAIMS = Annotations()
_Claims = tuple[bool | None, bool | None, bool | None, bool | None]


class _Hints(Struct):
    title: str | None = None
    read_only: bool | None = field(default=None, name="readOnlyHint")
    destructive: bool | None = field(default=None, name="destructiveHint")
    idempotent: bool | None = field(default=None, name="idempotentHint")
    open_world: bool | None = field(default=None, name="openWorldHint")


class _Sent(Struct):
    name: str
    title: str | None = None
    description: str | None = None
    input_schema: Raw = field(default=EMPTY_OBJECT, name="inputSchema")
    output_schema: Raw = field(default=_NULL, name="outputSchema")
    annotations: _Hints | None = None


class _Fields(Struct, array_like=True):
    name: str
    raw: str
    title: str
    description: str
    input_schema: str
    output_schema: str | None
    hints: _Claims
    original: str | None = None
    kind: Kind = "tool"
    address: str = ""


_NO_HINTS = _Hints()
_sent = Decoder(_Sent)
_fields = Decoder(_Fields)


def _parse_definition(raw: bytes | Raw) -> ToolDefinition:
    """Reads a tool object as MCP spells it; older servers put the title among the annotations.

    Raises `msgspec.ValidationError` where it is of another shape.
    """
    own = bytes(raw)
    sent = _sent.decode(own)
    hints = sent.annotations or _NO_HINTS
    return ToolDefinition(
        name=sent.name,
        raw=Raw(own),
        title=sent.title or hints.title or "",
        description=sent.description or "",
        input_schema=sent.input_schema,
        output_schema=None if sent.output_schema == _NULL else sent.output_schema,
        annotations=_NO_CLAIMS
        if hints is _NO_HINTS
        else _annotations((hints.read_only, hints.destructive, hints.idempotent, hints.open_world)),
    )


def _annotations(claims: _Claims) -> Annotations:
    read_only, destructive, idempotent, open_world = claims
    return Annotations(read_only=read_only, destructive=destructive, idempotent=idempotent, open_world=open_world)


def encode_definition(definition: ToolDefinition) -> bytes:
    raw = bytes(definition.raw)
    try:
        if _parse_definition(raw) == definition:
            return _AS_RAW + raw
    except (ValidationError, ValueError):
        pass  # then the fields are written one by one
    claims = definition.annotations
    return _AS_FIELDS + encode(
        _Fields(
            name=definition.name,
            raw=_text(raw),
            title=definition.title,
            description=definition.description,
            input_schema=_text(definition.input_schema),
            output_schema=None if definition.output_schema is None else _text(definition.output_schema),
            hints=(claims.read_only, claims.destructive, claims.idempotent, claims.open_world),
            original=None if definition.original is None else _text(definition.original),
            kind=definition.kind,
            address=definition.address,
        )
    )


def decode_definition(blob: bytes) -> ToolDefinition:
    if blob[:1] == _AS_RAW:
        return _parse_definition(blob[1:])
    fields = _fields.decode(blob[1:])
    return ToolDefinition(
        name=fields.name,
        raw=_raw(fields.raw),
        title=fields.title,
        description=fields.description,
        input_schema=_raw(fields.input_schema),
        output_schema=None if fields.output_schema is None else _raw(fields.output_schema),
        annotations=_annotations(fields.hints),
        original=None if fields.original is None else _raw(fields.original),
        kind=fields.kind,
        address=fields.address,
    )


def _text(raw: bytes | Raw) -> str:
    """Any bytes as a string, one character a byte: what is no valid UTF-8 survives too."""
    return bytes(raw).decode("latin-1")


def _raw(text: str) -> Raw:
    return Raw(text.encode("latin-1"))


class _ToolRecord(Struct, array_like=True):
    """A tool without its definition, which stands with its version. The fields are those of `Tool`."""

    tool_id: str
    server: str
    fingerprint: str
    version: int
    summary: str
    tags: tuple[str, ...]
    risks: tuple[str, ...]
    cost: float | None
    access: tuple[str, ...]
    paths: tuple[Path, ...]


encode = Encoder().encode
decode_node = Decoder(Node).decode
decode_server = Decoder(ServerRecord).decode
decode_generation = Decoder(Generation).decode
decode_change = Decoder(Change).decode
_decode_tool_record = Decoder(_ToolRecord).decode


def encode_tool(tool: Tool) -> bytes:
    return encode(_ToolRecord(*(getattr(tool, name) for name in _ToolRecord.__struct_fields__)))


def decode_tool(blob: bytes, definition: bytes) -> Tool:
    return Tool(definition=decode_definition(definition), **asdict(_decode_tool_record(blob)))
