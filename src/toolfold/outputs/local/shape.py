"""The shape of a JSON document, folded as output schemas are, from the data that is there. Large arrays are sampled."""

from typing import Any

from toolfold.disclosure.fold import summarize_schema_for_llm
from toolfold.disclosure.observed import observe, to_schema
from toolfold.outputs.local import json_index as jsonpath
from toolfold.outputs.local.index import DocumentIndex
from toolfold.outputs.local.json_index import JsonIndex, decode_value
from toolfold.outputs.local.source import Source

SMALL = 64 * 1024
FIRST, LAST = 4, 2
MAX_MEMBERS = 60


def describe_shape(index: DocumentIndex, start: int, most: int = 24) -> list[str]:
    """The folded fields of the container that begins at `start`; nothing where none begins there."""
    if index.tape is None:
        return []
    around = jsonpath.containers_at(index.source, index.tape, start)
    if not around or around[-1].start != start:
        return []
    value = _sample(index.source, index.tape, around[-1], len(around) - 1)
    lines, _ = summarize_schema_for_llm(to_schema(observe(value)), max_depth=3, max_fields=most)
    return lines


def _sample(source: Source, tape: JsonIndex, container: jsonpath.Container, depth: int) -> Any:
    """The value, with long arrays reduced to some elements and very large objects to their first members."""
    if container.end - container.start < SMALL or depth + 1 >= len(tape.levels):
        return _decode(source.read(container.start, min(container.end + 1, container.start + SMALL)))
    borders = list(jsonpath.members(source, tape, container, depth))
    if container.is_array and len(borders) > FIRST + LAST:
        borders = [*borders[:FIRST], *borders[-LAST:]]
    found: dict[Any, Any] = {}
    for step, start, end in borders[:MAX_MEMBERS]:
        inner = jsonpath.containers_at(source, tape, start)
        if inner and inner[-1].start == start and len(inner) == depth + 2:
            found[step] = _sample(source, tape, inner[-1], depth + 1)
        else:
            found[step] = _decode(source.read(start, min(end, start + SMALL)))
    return list(found.values()) if container.is_array else {str(key): value for key, value in found.items()}


def _decode(raw: bytes) -> Any:
    """The value; a text where it was cut off or is no JSON."""
    try:
        return decode_value(raw.strip())
    except ValueError:
        return "?"
