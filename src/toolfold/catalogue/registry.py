"""`tool_registry.json`: the whole catalogue as one file for other programs.

Schemas and descriptions stand in it byte for byte as the servers sent them. The same catalogue always gives the same
file: tools in the order of their ids, one a line, no times. The file is replaced in one step, so a reader finds the old
one or the new one, whole. `more` holds every further field of the tool object, so nothing a server sent is lost.
"""

import asyncio
import os
from collections.abc import AsyncIterable, Iterable
from contextlib import suppress
from pathlib import Path as FilePath
from typing import BinaryIO

from msgspec import MsgspecError, Raw, Struct, field
from msgspec.json import Encoder, decode

from toolfold.errors import CatalogueError
from toolfold.storage.definition_codec import NULL
from toolfold.types import Path, Tool, ToolDefinition

FORM = 1


class _Entry(Struct, frozen=True, kw_only=True):
    """One tool in the file."""

    tool_id: str
    server: str
    name: str
    description: Raw
    input_schema: Raw
    output_schema: Raw
    """`null` where there is none."""
    fingerprint: str
    paths: tuple[Path, ...]
    version: int = 1
    summary: str = ""
    tags: tuple[str, ...] = ()
    risks: tuple[str, ...] = ()
    cost: float | None = None
    access: tuple[str, ...] = ()
    more: dict[str, Raw] = field(default_factory=dict)
    """The other fields of the tool object: title, annotations, `_meta`, …"""
    absent: tuple[str, ...] = field(default=())
    """Those of `description` and `inputSchema` that the server did not send at all."""


async def write_registry(path: FilePath, tools: AsyncIterable[Iterable[Tool]]) -> int:
    """Writes the tools, which come in batches and in order. Gives their number."""
    count = 0
    unfinished = path.with_name(f".{path.name}.{os.urandom(6).hex()}.part")
    try:
        with unfinished.open("wb") as file:
            file.write(b'{"version": %d, "tools": [' % FORM)
            async for batch in tools:
                count += await asyncio.to_thread(_write_batch, file, batch, first=not count)
            await asyncio.to_thread(_finish, file)
        unfinished.replace(path)
    except OSError as error:
        raise CatalogueError(
            f"the registry {path} cannot be written: {error.strerror or error}",
            next_action="name a file in a folder that exists and that you may write",
        ) from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
    return count


def _write_batch(file: BinaryIO, tools: Iterable[Tool], *, first: bool) -> int:
    count = 0
    for tool in tools:
        file.write(b"\n" if first and not count else b",\n")
        file.write(_encode(_entry_of(tool)))
        count += 1
    return count


def _finish(file: BinaryIO) -> None:
    file.write(b"\n]}\n")
    file.flush()
    os.fsync(file.fileno())


def _entry_of(tool: Tool) -> _Entry:
    definition = tool.definition
    sent = _fields(definition.raw)
    description = sent.get("description")
    has_description = description is not None and bytes(description)[:1] == b'"'
    return _Entry(
        tool_id=tool.tool_id,
        server=tool.server,
        name=tool.name,
        description=description if description and has_description else Raw(_encode(definition.description)),
        input_schema=definition.input_schema,
        output_schema=NULL if definition.output_schema is None else definition.output_schema,
        fingerprint=tool.fingerprint,
        paths=tool.paths,
        version=tool.version,
        summary=tool.summary,
        tags=tool.tags,
        risks=tool.risks,
        cost=tool.cost,
        access=tool.access,
        more={key: value for key, value in sent.items() if not _is_shown(key, value, definition)},
        absent=tuple(key for key in ("description", "inputSchema") if key not in sent),
    )


def _is_shown(key: str, value: Raw, definition: ToolDefinition) -> bool:
    """Whether a field already stands in the entry as it was sent."""
    if key == "description":
        return bytes(value)[:1] == b'"'
    if key == "inputSchema":
        return value == definition.input_schema
    if key == "outputSchema":
        return value == definition.output_schema
    return key == "name"


def _fields(raw: Raw) -> dict[str, Raw]:
    try:
        return decode(raw, type=dict[str, Raw])
    except (MsgspecError, RecursionError):
        return {}


_encode = Encoder().encode
