"""Rows to values and back. What is searched by stands in columns, the rest of a value in one JSON record."""

from typing import Any

from msgspec import Struct
from msgspec.json import Decoder, Encoder

from toolfold.storage.base import Generation, ServerRecord
from toolfold.storage.definition_codec import decode_definition
from toolfold.types import Change, Node, Path, Tool


class ToolRecord(Struct, array_like=True):
    """A tool without its definition, which stands with its version."""

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
_decode_tool = Decoder(ToolRecord).decode


def tool_record(tool: Tool) -> bytes:
    return encode(
        ToolRecord(
            tool_id=tool.tool_id,
            server=tool.server,
            fingerprint=tool.fingerprint,
            version=tool.version,
            summary=tool.summary,
            tags=tool.tags,
            risks=tool.risks,
            cost=tool.cost,
            access=tool.access,
            paths=tool.paths,
        )
    )


def tool_of(row: tuple[Any, ...]) -> Tool:
    """From a row of `(record, definition)`."""
    record = _decode_tool(row[0])
    return Tool(
        tool_id=record.tool_id,
        server=record.server,
        definition=decode_definition(row[1]),
        fingerprint=record.fingerprint,
        version=record.version,
        summary=record.summary,
        tags=record.tags,
        risks=record.risks,
        cost=record.cost,
        access=record.access,
        paths=record.paths,
    )
