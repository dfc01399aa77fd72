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
from typing import Any, BinaryIO

from msgspec import MsgspecError, Raw
from msgspec.json import Encoder, decode

from toolfold.errors import CatalogueError
from toolfold.types import Tool, ToolDefinition

_FORMAT = 1
_TOOL_FIELDS = ("fingerprint", "paths", "version", "summary", "tags", "risks", "cost", "access")


async def write_registry(path: FilePath, tools: AsyncIterable[Iterable[Tool]]) -> int:
    """Writes the tools, which come in batches and in order. Returns their number."""
    count = 0
    # A random name: two builds may write at the same time.
    unfinished = path.with_name(f".{path.name}.{os.urandom(6).hex()}.part")
    try:
        with unfinished.open("wb") as file:
            file.write(b'{"version": %d, "tools": [' % _FORMAT)
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
    # Before the rename, so that the name never holds a file that is cut.
    os.fsync(file.fileno())


def _entry_of(tool: Tool) -> dict[str, Any]:
    """One tool in the file, in the order of its keys there."""
    definition = tool.definition
    sent = _fields(definition.raw)
    description = sent.get("description")
    if description is None or bytes(description)[:1] != b'"':
        description = Raw(_encode(definition.description))
    return {
        "tool_id": tool.tool_id,
        "server": tool.server,
        "name": tool.name,
        "description": description,
        "input_schema": definition.input_schema,
        "output_schema": definition.output_schema,
        **{key: getattr(tool, key) for key in _TOOL_FIELDS},
        # The other fields of the tool object: title, annotations, `_meta`, …
        "more": {key: value for key, value in sent.items() if not _is_shown(key, value, definition)},
        # Those that the server did not send at all.
        "absent": [key for key in ("description", "inputSchema") if key not in sent],
    }


def _is_shown(key: str, value: Raw, definition: ToolDefinition) -> bool:
    """Whether a field already stands in the entry as it was sent."""
    if key == "description":
        return bytes(value)[:1] == b'"'
    shown = {"name": value, "inputSchema": definition.input_schema, "outputSchema": definition.output_schema}
    return shown.get(key) == value


def _fields(raw: Raw) -> dict[str, Raw]:
    try:
        return decode(raw, type=dict[str, Raw])
    except (MsgspecError, RecursionError):
        return {}


_encode = Encoder().encode
