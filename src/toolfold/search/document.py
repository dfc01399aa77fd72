"""What of a tool is searchable, and how much each part counts.

A `Document` is a tool as search sees it: its words and its place, nothing that can be called. `fields` gives the words
for the lexical index with their weights, `tool_text` the sentence for the encoder. The encoder was trained on exactly
this sentence, so a change here asks for new weights.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from toolfold.fingerprint import fingerprint
from toolfold.types import Path, Tool, ToolDefinition
from toolfold.words import search_terms, split_identifier

# Weighted so on the retrieval sets; the stored counts depend on it, so a change asks for a new `store.FORMAT`.
NAME_WEIGHT = 3.0
DESCRIPTION_WEIGHT = 1.0
PARAMETER_WEIGHT = 0.4
# Server and category words.
PLACE_WEIGHT = 0.4
# Words of requests that a model wrote for the tool (`enrichment.py`): few, since they hold values of single cases.
REQUEST_WEIGHT = 0.1

# Words in the names of servers that tell no server from another.
_SAYS_NOTHING = frozenset(("mcp", "server", "api"))

MAX_PARAMETERS = 64
MAX_DEPTH = 3
# Characters of one description that are read; what stands behind is rarely about what a tool does.
MAX_TEXT = 4000
# Of the address of a resource: its folders and its name say what it is about.
MAX_ADDRESS = 200


class Document(Struct, frozen=True, kw_only=True):
    """A tool as search sees it."""

    tool_id: str
    name: str
    description: str = ""
    parameters: tuple[tuple[str, str], ...] = ()
    """Name and description of each, nested ones too."""
    server: str = ""
    category: tuple[str, ...] = ()
    paths: tuple[Path, ...] = ()
    tags: tuple[str, ...] = ()
    title: str = ""
    twin_key: str = ""
    """The same for the same tool of two servers: a hash of its name, description and input schema; empty: unknown."""
    requests: tuple[str, ...] = ()
    """What people may ask for when they need it, as a model wrote it."""


def document_of(tool: Tool, requests: tuple[str, ...] = ()) -> Document:
    """Reads what is searchable out of a catalogue entry."""
    definition = tool.definition
    title = definition.title if definition.title.lower() != definition.name.lower() else ""
    description = f"{title}. {definition.description}" if title else definition.description
    if definition.kind in {"resource", "template"}:
        description = f"{description} {unquote(definition.address[:MAX_ADDRESS])}".strip()
    return Document(
        tool_id=tool.tool_id,
        name=definition.name,
        description=description,
        parameters=_parameters_of(msgspec.json.decode(definition.input_schema)),
        server=tool.server,
        category=tuple(dict.fromkeys(step for path in tool.paths for step in path)),
        paths=tool.paths,
        tags=tool.tags,
        title=definition.title,
        twin_key=_twin_key(definition),
        requests=requests,
    )


def _twin_key(definition: ToolDefinition) -> str:
    """Tools that say nothing of themselves are nobody's twins."""
    if not definition.description.strip() or definition.kind != "tool":  # documents of one name are not one
        return ""
    own = (definition.name, definition.description, fingerprint(definition.input_schema))
    return hashlib.blake2b(msgspec.json.encode(own), digest_size=16).hexdigest()


def _parameters_of(schema: Any) -> tuple[tuple[str, str], ...]:
    """Names and descriptions of the parameters of a JSON Schema, or of a plain list of `{name, description}`."""
    if isinstance(schema, list):
        rows = (row for row in schema if isinstance(row, Mapping) and isinstance(row.get("name"), str))
        pairs: Iterator[tuple[str, str]] = ((row["name"], _described(row)) for row in rows)
    else:
        pairs = _walk(schema, 0)
    return tuple(pair for pair, _ in zip(pairs, range(MAX_PARAMETERS), strict=False))


def _walk(schema: Any, depth: int) -> Iterator[tuple[str, str]]:
    if not isinstance(schema, Mapping) or depth >= MAX_DEPTH:
        return
    properties = schema.get("properties")
    below: list[Any] = []
    for name, inner in properties.items() if isinstance(properties, Mapping) else ():
        yield name, _described(inner)
        below.append(inner)
    for inner in below:
        yield from _walk(inner, depth + 1)
        if isinstance(inner, Mapping):
            yield from _walk(inner.get("items"), depth + 1)


def _described(schema: Any) -> str:
    text = schema.get("description") if isinstance(schema, Mapping) else None
    return text[:MAX_TEXT] if isinstance(text, str) else ""


def tool_text(tool: Document) -> str:
    """The sentence the encoder reads: server and name in words, the description, the names of the parameters."""
    name = _lowered(tool.name)
    # "create issue" says little without "github"; many names begin with their server's name already.
    server = [part for part in _lowered(tool.server) if part not in name and part not in _SAYS_NOTHING]
    names = " ".join(dict.fromkeys(part for key, _ in tool.parameters for part in _lowered(key)))
    return f"{' '.join((*server, *name))}: {tool.description[:MAX_TEXT]} {names}".strip()


def _lowered(identifier: str) -> list[str]:
    return [part.lower() for part in split_identifier(identifier)]


def weighted_terms(tool: Document) -> dict[str, float]:
    """Each term of a tool with its weighted count: what the lexical index stores."""
    counts: dict[str, float] = {}
    for text, weight in _weighted(tool):
        for term in search_terms(text):
            counts[term] = counts.get(term, 0.0) + weight
    return counts


def _weighted(tool: Document) -> Iterator[tuple[str, float]]:
    yield tool.name, NAME_WEIGHT
    yield tool.description[:MAX_TEXT], DESCRIPTION_WEIGHT
    for name, about in tool.parameters:
        yield name, PARAMETER_WEIGHT
        yield about, PARAMETER_WEIGHT
    yield tool.server, PLACE_WEIGHT
    yield " ".join(tool.category), PLACE_WEIGHT
    yield " ".join(tool.requests), REQUEST_WEIGHT
