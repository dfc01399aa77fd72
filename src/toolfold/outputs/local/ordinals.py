"""`the third order`, `tool number 7`, `the last entry`: one element of a list, by its place.

Exact where the document has a list whose name the request says; then the element is quoted first. A request that meant
something else loses nothing: passages follow.
"""

import re

import numpy as np
from msgspec import Struct

from toolfold import tokens
from toolfold.outputs.json_path import format_path
from toolfold.outputs.local import json_index as jsonpath
from toolfold.outputs.local.index import DocumentIndex
from toolfold.outputs.local.render import format_location, render_record, replace_controls
from toolfold.outputs.local.request import PARTS, stem
from toolfold.outputs.local.vocabulary import word_list

WORDS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
TENS = ("eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth")
NUMBERED = {word: number for number, word in enumerate((*WORDS, *TENS, "nineteenth", "twentieth"), 1)}
ORDINAL = re.compile(
    r"\b(?:the\s+)?(?P<word>" + "|".join(NUMBERED) + r"|last|final|penultimate|(?P<digits>\d{1,9})(?:st|nd|rd|th))"
    r"(?P<back>[ -](?:to|from|but)[ -](?:the )?(?:last|end|one))?\s+(?P<noun>[a-z][\w-]*(?:\s+[a-z][\w-]*){0,2})"
    r"|(?<![\w-])(?P<noun2>[a-z][\w-]*+)\s+(?:number|no\.?|#|at position|at index)\s*(?P<digits2>\d{1,9})\b",
    re.IGNORECASE,
)
GENERIC = frozenset(
    stem(word) for word in word_list("entry item record element result object row member value line match hit document")
)
MAX_LEVELS, MAX_ARRAYS = 8, 60


class _Array(Struct, frozen=True):
    """An array: where it opens and closes, its depth, how many elements it has, and the name it goes by."""

    start: int
    end: int
    depth: int
    count: int
    name: str


def find_by_ordinal(index: DocumentIndex, request: str, forms: list[str], budget: int) -> list[str]:
    """The element, quoted, or nothing where the request asks for none."""
    match = ORDINAL.search(request)
    if match is None:
        return []
    nouns = [stem(part.lower()) for part in PARTS.findall(match["noun"] or match["noun2"])]
    if index.tape is not None and index.tape.levels:
        return _from_arrays(index, match, nouns, forms, budget)
    if index.format.header or index.format.kind == "json-lines":
        return _from_rows(index, match, nouns, budget)
    return []


def _position(match: re.Match[str], count: int) -> int:
    """The number of the element, from 0; -1 where there is none such."""
    word = (match["word"] or "").lower()
    if word in {"last", "final"}:
        return count - 1
    if word == "penultimate":
        return count - 2
    number = int(match["digits"] or match["digits2"] or NUMBERED.get(word, 0))
    if match["back"]:
        return count - number
    return number - 1 if number <= count else -1


def _from_arrays(
    index: DocumentIndex, match: re.Match[str], nouns: list[str], forms: list[str], budget: int
) -> list[str]:
    found = _choose_array(index, nouns, loose=(match["word"] or "").lower() not in {"first", "last", "final"})
    if found is None or index.tape is None or (number := _position(match, found.count)) < 0:
        return []
    parent = jsonpath.containers_at(index.source, index.tape, found.start)
    borders = jsonpath.member_spans(index.source, index.tape, parent[-1], len(parent) - 1)
    if number >= len(borders):
        return []
    start, end = borders[number]
    raw = index.source.read(start, end)
    start, end = start + len(raw) - len(raw.lstrip()), end - (len(raw) - len(raw.rstrip()))
    path = format_path([*(container.step for container in parent[1:]), number])
    text = replace_controls(render_record(raw.strip(), forms, budget))
    return [
        f"By its place in the list, {number + 1} of {found.count}: {path} {format_location(index, start, end)}\n{text}"
    ]


def _choose_array(index: DocumentIndex, nouns: list[str], *, loose: bool) -> _Array | None:
    """The array that the noun names, the outermost first; `loose`: else the one that the document is about."""
    every = _arrays(index)
    for item in every:
        if item.name and nouns and stem(item.name.lower()) in nouns[:2]:
            return item
    for item in every:
        parts = {stem(part.lower()) for part in PARTS.findall(item.name)}
        if parts & set(nouns[:1]):
            return item
    if not every or not (loose or nouns[0] in GENERIC):
        return None
    outermost = min(item.depth for item in every)
    main = max((item for item in every if item.depth == outermost), key=lambda item: item.count)
    return main if main.count > 1 else None


def _arrays(index: DocumentIndex) -> list[_Array]:
    found: list[_Array] = []
    for depth, level in enumerate(index.tape.levels[:MAX_LEVELS] if index.tape is not None else ()):
        for at in np.flatnonzero(level.is_array)[:MAX_ARRAYS]:
            start, end = int(level.opens[at]), int(level.closes[at])
            inner = int(np.searchsorted(level.commas, end) - np.searchsorted(level.commas, start))
            if not inner and not index.source.read(start + 1, min(end, start + 200)).strip():
                continue
            found.append(_Array(start, end, depth, inner + 1, jsonpath.key_before(index.source, start) or ""))
    return found


def _from_rows(index: DocumentIndex, match: re.Match[str], nouns: list[str], budget: int) -> list[str]:
    """A row of a table or a line of JSON, where the request does not ask for the first or last of some kind."""
    word = (match["word"] or "").lower()
    if word in {"first", "last", "final"} and (nouns[0] not in GENERIC or len(nouns) > 1):
        return []
    skipped = index.format.header_lines
    number = _position(match, index.source.lines - skipped)
    if number < 0:
        return []
    start, end = index.source.span_of_lines(number + skipped + 1, number + skipped + 1)
    text = replace_controls(index.source.read(start, end).decode(errors="replace"))
    if not text.strip() or tokens.count(text) > budget:
        return []
    total = index.source.lines - skipped
    return [f"By its place, {number + 1} of {total}: {format_location(index, start, end)}\n{text}"]
