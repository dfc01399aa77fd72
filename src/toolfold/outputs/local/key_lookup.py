"""Values by the names of their keys: `the default of page_size`, `description of affinity`, in JSON of any nesting.

Where a request names a key that stands in few places, the value is quoted with its path from each of them, the member
that the request names besides first. Above: `answer`. It adds to the passages and takes nothing from them.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from toolfold import tokens
from toolfold.outputs.json_path import Step, format_path
from toolfold.outputs.local import json_index as jsonpath
from toolfold.outputs.local.fields import JSON_KEY, LITERAL_KEY, name_parts
from toolfold.outputs.local.index import DocumentIndex
from toolfold.outputs.local.render import format_location, render_record, replace_controls
from toolfold.outputs.local.request import ParsedRequest
from toolfold.outputs.local.source import BLOCK

MAX_BYTES = 24 << 20
FEW, ONE, WHOLE = 60, 160, 420
"""Places of a key that are looked at; tokens of a value, and of the only or best one."""
DEEP = 2
SHARE = 0.6
"""So much of the request must be names of keys."""


class _Hit(Struct, frozen=True):
    """A value: its bytes, its path, and how much of the request its path names."""

    start: int
    end: int
    path: list[Step]
    fit: float


def find_by_keys(index: DocumentIndex, asked: ParsedRequest, budget: int) -> list[str]:
    """Lines with paths and values; nothing where the request names no key that stands in few places."""
    if index.tape is None or not index.tape.levels or index.source.size > MAX_BYTES:
        return []
    if any(term.kind == "phrase" for term in asked.terms):
        return []
    said = name_parts(asked.text)
    counts = index.kept("keys", lambda: _all_keys(index))
    named = _named_keys(counts, said)
    rare = [key for key in named if counts[key] <= FEW]
    if not rare:
        return []
    most = max(len(name_parts(key)) for key in rare)
    anchors = [key for key in rare if len(name_parts(key)) == most][:4]
    others = [key for key in named if key not in anchors]
    content = [word for word in asked.words if len(word) > 1]
    covered = {part for key in (*anchors, *others) for part in name_parts(key)}
    told = sum(1 for word in content if set(name_parts(word)) & covered)
    if (most == 1 and not others) or told < SHARE * len(content):
        return []
    hits = sorted(_find_hits(index, anchors, others, set(said)), key=lambda hit: -hit.fit)
    forms = [form for term in asked.terms for form in term.forms]
    return _render_hits(index, hits, forms, budget)


def _all_keys(index: DocumentIndex) -> Counter[str]:
    """Every key of the document with the number of its places."""
    pattern = LITERAL_KEY if index.format.literal else JSON_KEY
    counted: Counter[bytes] = Counter()
    for at in range(0, index.source.size, BLOCK):
        counted.update(match[1] for match in pattern.finditer(index.source.read(at, at + BLOCK)))
    return Counter({key.decode(errors="replace"): count for key, count in counted.items()})


def _named_keys(counts: Counter[str], said: Sequence[str]) -> list[str]:
    """The keys whose words stand in the request side by side, those with more words first."""
    runs = {tuple(said[at : at + size]) for size in range(1, 7) for at in range(len(said) - size + 1)}
    found = [(parts, key) for key in counts if (parts := name_parts(key)) and parts in runs]
    return [key for parts, key in sorted(found, key=lambda item: (-len(item[0]), counts[item[1]], item[1]))]


def _find_hits(index: DocumentIndex, anchors: Sequence[str], others: Sequence[str], said: set[str]) -> Iterator[_Hit]:
    for key in anchors:
        for start in _value_starts(index, key):
            yield from _hits_at(index, key, start, others, said)


def _value_starts(index: DocumentIndex, key: str) -> list[int]:
    """Where the values of a key begin."""
    pattern = re.compile(rb"[\"']" + re.escape(key.encode()) + rb"[\"']\s*:\s*(?=\S)")
    found = []
    for at in range(0, index.source.size, BLOCK):
        found += [at + match.end() for match in pattern.finditer(index.source.read(at, at + BLOCK + 512))]
    return sorted(set(found))[: FEW * 2]


def _hits_at(index: DocumentIndex, key: str, start: int, others: Sequence[str], said: set[str]) -> Iterator[_Hit]:
    """The members that the request names inside the value; else the value itself."""
    assert index.tape is not None  # noqa: S101  `by_keys` has looked
    around = jsonpath.containers_at(index.source, index.tape, start)
    own = around[-1] if around and around[-1].start == start else None
    above = around[:-1] if own is not None else around
    path: list[Step] = [*(container.step for container in above[1:]), key]
    fit = float(sum(1 for step in path if isinstance(step, str) and set(name_parts(step)) & said))
    if own is None:
        end = start + len(jsonpath.scalar_at(index.source, start))
        yield _Hit(start, end, path, fit - 0.5 * bool(others))
        return
    inner = list(_named_members(index, own, path, others, DEEP))
    for begin, end, steps in inner[:3]:
        yield _Hit(begin, end, steps, fit + 1)
    if not inner:
        yield _Hit(own.start, own.end + 1, path, fit)


def _named_members(
    index: DocumentIndex, own: jsonpath.Container, path: list[Step], names: Sequence[str], deep: int
) -> Iterator[tuple[int, int, list[Step]]]:
    """Members with one of the names, in the container or a little deeper."""
    assert index.tape is not None  # noqa: S101  `by_keys` has looked
    if own.end - own.start > 1 << 20:
        return
    depth = len(jsonpath.containers_at(index.source, index.tape, own.start)) - 1
    inside = []
    for step, start, end in jsonpath.members(index.source, index.tape, own, depth):
        if step in names:
            yield start, jsonpath.trimmed_end(index.source, start, end), [*path, step]
        elif deep > 1:
            inside.append((step, start))
    for step, start in inside[:40]:
        around = jsonpath.containers_at(index.source, index.tape, start)
        if around and around[-1].start == start:
            yield from _named_members(index, around[-1], [*path, step], names, deep - 1)


def _render_hits(index: DocumentIndex, hits: Sequence[_Hit], forms: Sequence[str], budget: int) -> list[str]:
    lines: list[str] = []
    spent = 0
    for number, hit in enumerate(hits):
        raw = index.source.read(hit.start, hit.end)
        text = replace_controls(render_record(raw, forms, WHOLE if not number and len(hits) < 3 else ONE))
        line = f"{format_path(hit.path)} {format_location(index, hit.start, hit.end)}\n{text}"
        spent += tokens.count(line) + 1
        if spent > budget:
            if number:
                lines.append(f"({len(hits) - number} further places of these keys are not shown)")
            break
        lines.append(line)
    return ["By the names of keys:\n" + "\n".join(lines)] if lines else []
