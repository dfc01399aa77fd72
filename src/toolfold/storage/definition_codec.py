"""A tool definition to bytes and back, exactly. No engine and no meaning here, only the form on disk.

Nearly every definition is just a reading of its raw object; then the raw bytes are all that is kept. Where a source
read an unusual object in its own way, or built the definition by other means, the fields are kept beside the raw bytes.
"""

from msgspec import Raw, Struct, ValidationError, field
from msgspec.json import Decoder, Encoder

from toolfold.types import EMPTY_OBJECT, Annotations, ToolDefinition

NULL = Raw(b"null")
_AS_RAW = b"r"
_AS_FIELDS = b"f"


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
    output_schema: Raw = field(default=NULL, name="outputSchema")
    annotations: _Hints | None = None


class _Fields(Struct, array_like=True):
    name: str
    raw: str
    title: str
    description: str
    input_schema: str
    output_schema: str | None
    hints: tuple[bool | None, bool | None, bool | None, bool | None]


def parse_definition(raw: bytes | Raw) -> ToolDefinition:
    """Reads a tool object as MCP spells it; older servers put the title among the annotations.

    Raises `msgspec.ValidationError` where it is of another shape.
    """
    own = bytes(raw)
    sent = _sent.decode(own)
    hints = sent.annotations
    return ToolDefinition(
        name=sent.name,
        raw=Raw(own),
        title=sent.title or (hints.title if hints is not None and hints.title else ""),
        description=sent.description or "",
        input_schema=sent.input_schema,
        output_schema=None if sent.output_schema == NULL else sent.output_schema,
        annotations=_NO_CLAIMS
        if hints is None
        else Annotations(
            read_only=hints.read_only,
            destructive=hints.destructive,
            idempotent=hints.idempotent,
            open_world=hints.open_world,
        ),
    )


def encode_definition(definition: ToolDefinition) -> bytes:
    raw = bytes(definition.raw)
    try:
        if parse_definition(raw) == definition:
            return _AS_RAW + raw
    except (ValidationError, ValueError):
        pass  # then the fields are kept one by one
    claims = definition.annotations
    return _AS_FIELDS + _encoder.encode(
        _Fields(
            name=definition.name,
            raw=_text(raw),
            title=definition.title,
            description=definition.description,
            input_schema=_text(definition.input_schema),
            output_schema=None if definition.output_schema is None else _text(definition.output_schema),
            hints=(claims.read_only, claims.destructive, claims.idempotent, claims.open_world),
        )
    )


def decode_definition(blob: bytes) -> ToolDefinition:
    if blob[:1] == _AS_RAW:
        return parse_definition(blob[1:])
    kept = _fields.decode(blob[1:])
    read_only, destructive, idempotent, open_world = kept.hints
    return ToolDefinition(
        name=kept.name,
        raw=_raw(kept.raw),
        title=kept.title,
        description=kept.description,
        input_schema=_raw(kept.input_schema),
        output_schema=None if kept.output_schema is None else _raw(kept.output_schema),
        annotations=Annotations(
            read_only=read_only, destructive=destructive, idempotent=idempotent, open_world=open_world
        ),
    )


def _text(raw: bytes | Raw) -> str:
    """Any bytes as a string, one character a byte: what is no valid text survives too."""
    return bytes(raw).decode("latin-1")


def _raw(text: str) -> Raw:
    return Raw(text.encode("latin-1"))


_NO_CLAIMS = Annotations()

_sent = Decoder(_Sent)
_fields = Decoder(_Fields)
_encoder = Encoder()
