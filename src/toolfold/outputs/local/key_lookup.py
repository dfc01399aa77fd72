"""Values by their keys: `the default of page_size`, where the keys stand in few places of a JSON document.

Above: `answer.py`. Below: `index.py`, `json_index.py`, `render.py`.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from toolfold.outputs.json_path import Step, format_path
from toolfold.outputs.local.index import DocumentIndex
from toolfold.outputs.local.json_index import Container, JsonIndex
from toolfold.outputs.local.render import format_location, render_record, replace_controls, take_fitting
from toolfold.outputs.local.request import ParsedRequest, stem
from toolfold.words import split_identifier

_MAX_BYTES = 24 << 20
# A key that occurs more often says nothing about where to look.
_MAX_PLACES = 60
# Tokens of a value, and of the only or best one.
_VALUE_TOKENS, _BEST_TOKENS = 160, 420
_MAX_DEPTH = 2
_MAX_MEMBER_BYTES = 1 << 20
_JSON_KEY = re.compile(rb'"((?:[^"\\\n]|\\.){1,80})"\s*:')
_LITERAL_KEY = re.compile(rb"['\"]([^'\"\\\n]{1,80})['\"]\s*:")


class _Hit(Struct, frozen=True):
    """A value: its bytes, its path, and how much of the request its path names."""

    start: int
    end: int
    path: list[Step]
    fit: float


def find_by_keys(index: DocumentIndex, request: ParsedRequest, budget: int) -> list[str]:
    """Lines with paths and values; nothing where the request names no key that occurs in few places."""
    json = index.json
    if json is None or index.source.size > _MAX_BYTES or any(term.kind == "phrase" for term in request.terms):
        return []
    words = _name_parts(request.text)
    anchors, others = _named_keys(index, words)
    if not _asks_for_keys(request, anchors, others):
        return []
    places = [(key, start) for key in anchors for start in _value_starts(index, key)]
    hits = [hit for key, start in places for hit in _hits_at(json, key, start, others, set(words))]
    return _render_hits(index, sorted(hits, key=lambda hit: -hit.fit), request.forms, budget)


def _named_keys(index: DocumentIndex, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Of the keys that the request names: of those in few places the ones with most words, and the others."""
    counts = index.cached("keys", lambda: _count_keys(index))
    keys = _keys_in_order(counts, words)
    rare = [key for key in keys if counts[key] <= _MAX_PLACES]
    longest = max((len(_name_parts(key)) for key in rare), default=0)
    anchors = [key for key in rare if len(_name_parts(key)) == longest][:4]
    return anchors, [key for key in keys if key not in anchors]


def _asks_for_keys(request: ParsedRequest, anchors: Sequence[str], others: Sequence[str]) -> bool:
    """Whether all words of the request are parts of the keys, and not one word that happens to be a key."""
    if not anchors or (len(_name_parts(anchors[0])) == 1 and not others):
        return False
    parts = {part for key in (*anchors, *others) for part in _name_parts(key)}
    # A word that no key holds may be what tells the right place from the others: `user 1500`.
    return all(parts.issuperset(_name_parts(word)) for word in request.words)


def _name_parts(name: str) -> tuple[str, ...]:
    """The words that a name is made of."""
    return tuple(stem(part.lower()) for part in split_identifier(name))


def _count_keys(index: DocumentIndex) -> Counter[str]:
    """Every key of the document with the number of its places."""
    pattern = _LITERAL_KEY if index.format.literal else _JSON_KEY
    counter: Counter[bytes] = Counter()
    for _, block in index.source.blocks():
        counter.update(match[1] for match in pattern.finditer(block))
    return Counter({key.decode(errors="replace"): count for key, count in counter.items()})


def _keys_in_order(counts: Counter[str], words: Sequence[str]) -> list[str]:
    """The keys whose words stand in the request side by side, those with more words first."""
    runs = {tuple(words[at : at + size]) for size in range(1, 7) for at in range(len(words) - size + 1)}
    keys = [(parts, key) for key in counts if (parts := _name_parts(key)) and parts in runs]
    return [key for parts, key in sorted(keys, key=lambda item: (-len(item[0]), counts[item[1]], item[1]))]


def _value_starts(index: DocumentIndex, key: str) -> list[int]:
    """Where the values of a key begin."""
    pattern = re.compile(rb"[\"']" + re.escape(key.encode()) + rb"[\"']\s*:\s*(?=\S)")
    starts = [at + match.end() for at, block in index.source.blocks(margin=512) for match in pattern.finditer(block)]
    return sorted(set(starts))[: _MAX_PLACES * 2]


def _hits_at(json: JsonIndex, key: str, start: int, others: Sequence[str], words: set[str]) -> Iterator[_Hit]:
    """The members that the request names inside the value; else the value itself."""
    containers = json.containers_at(start)
    own = containers.pop() if containers and containers[-1].start == start else None
    path: list[Step] = [*(container.step for container in containers[1:]), key]
    fit = float(sum(1 for step in path if isinstance(step, str) and words.intersection(_name_parts(step))))
    if own is None:
        yield _Hit(start, start + len(json.scalar_at(start)), path, fit - 0.5 * bool(others))
        return
    members = list(_named_members(json, own, path, others, _MAX_DEPTH))
    for begin, end, steps in members[:3]:
        yield _Hit(begin, end, steps, fit + 1)
    if not members:
        yield _Hit(own.start, own.end + 1, path, fit)


def _named_members(
    json: JsonIndex, container: Container, path: list[Step], names: Sequence[str], depth: int
) -> Iterator[tuple[int, int, list[Step]]]:
    """Members with one of the names, in the container or a little deeper."""
    if container.end - container.start > _MAX_MEMBER_BYTES:
        return
    inner = []
    for step, start, end in json.members(container):
        if step in names:
            yield start, json.trimmed_end(start, end), [*path, step]
        elif depth > 1:
            inner.append((step, start))
    for step, start in inner[:40]:
        child = json.container_from(start)
        if child is not None:
            yield from _named_members(json, child, [*path, step], names, depth - 1)


def _render_hits(index: DocumentIndex, hits: Sequence[_Hit], forms: Sequence[str], budget: int) -> list[str]:
    best = _BEST_TOKENS if len(hits) < 3 else _VALUE_TOKENS
    texts = (_render_hit(index, hit, forms, _VALUE_TOKENS if number else best) for number, hit in enumerate(hits))
    lines = take_fitting(texts, budget)
    if not lines:
        return []
    if len(lines) < len(hits):
        lines.append(f"({len(hits) - len(lines)} further places of these keys are not shown)")
    return ["By the names of keys:\n" + "\n".join(lines)]


def _render_hit(index: DocumentIndex, hit: _Hit, forms: Sequence[str], limit: int) -> str:
    text = replace_controls(render_record(index.source.read(hit.start, hit.end), forms, limit))
    return f"{format_path(hit.path)} {format_location(index, hit.start, hit.end)}\n{text}"
