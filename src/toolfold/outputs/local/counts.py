"""Counts and extremes in texts without fields: lines that hold words, repeated tags and headings, numbers in lines.

Each statement says what was counted, so that whoever reads it can judge whether it is what was meant.
"""

import re
from collections import Counter

import numpy as np

from toolfold import tokens
from toolfold.outputs.local.index import DocumentIndex
from toolfold.outputs.local.request import ParsedRequest, Term
from toolfold.outputs.local.source import BLOCK, Offsets, sorted_unique

COUNTING = frozenset(["number", "count", "how", "often", "total", "amount", "many", "exist", "there"])
HEADING_MARK = re.compile(r"\s*(#{1,6}|<[\w:.-]+|- |\[\[?|(?:async )?\w+)")
MEASURED = re.compile(
    r"(?:\b([A-Za-z_][\w.-]{0,80}+)[\s:=(]{1,3})?(?<![\w.:/-])(-?\d{1,40}(?:\.\d+)?)(?![\d:/-])\s?"
    r"(ms|µs|us|ns|seconds|secs?|s|minutes|min|hours|bytes|[KMG]i?B|kb|mb|gb|%)?(?![\w.-])"
)
MAX_READ = 20_000
MAX_LISTED = 4


def count_matches(index: DocumentIndex, asked: ParsedRequest) -> tuple[list[str], Offsets | None]:
    """How many units hold the words of the request; how many headings, items and tags there are. And the units."""
    lines = _structure_counts(index, asked)
    terms = _counted_terms(asked)
    held = [(term, sorted_unique(index.units.of(found))) for term, found in _locate(index, terms)]
    if not held:
        return lines, None
    kind = "records" if index.tape is not None else "lines"
    together = held[0][1]
    for _, units in held[1:]:
        together = np.intersect1d(together, units, assume_unique=True)
    if len(held) > 1 and len(together):
        words = ", ".join(asked.said.get(term.text, term.text) for term, _ in held)
        lines.append(f"Exact count: {len(together)} {kind} hold all of: {words}.")
    lines += [
        f"Exact count: {len(units)} {kind} hold {asked.said.get(t.text, t.text)!r}." for t, units in held[:MAX_LISTED]
    ]
    return lines, together if 0 < len(together) < len(index.units) // 4 else None


def _counted_terms(asked: ParsedRequest) -> list[Term]:
    """The terms that say what is to be counted."""
    own = [term for term in asked.terms if term.kind != "hint" and not term.of]
    return [term for term in own if asked.said.get(term.text, term.text) not in COUNTING][:8]


def _locate(index: DocumentIndex, terms: list[Term]) -> list[tuple[Term, Offsets]]:
    places = index.places(terms)
    return [(term, places[term.text]) for term in terms if len(places[term.text])]


def _structure_counts(index: DocumentIndex, asked: ParsedRequest) -> list[str]:
    """Headings and items by their marks, and tags that the request names."""
    if index.blocks is None or index.blocks.kind == "plain":
        return []
    counted: Counter[str] = Counter()
    for unit in index.headings[:50_000]:
        text = index.text(int(unit))[:80]
        mark = HEADING_MARK.match(text)
        counted[
            mark[1].strip() if mark and index.blocks.kind in {"markdown", "markup", "page", "items", "code"} else ""
        ] += 1
    lines = []
    if index.blocks.kind in {"markup", "page"}:
        lines = [line for term in _counted_terms(asked)[:4] if (line := _count_tags(index, term))]
    named = {"items": "items", "markup": "elements", "page": "elements", "code": "definitions", "markdown": "headings"}
    what = named.get(index.blocks.kind, "sections")
    shown = [f"{count} {what}{f' that begin with {mark!r}' if mark else ''}" for mark, count in counted.most_common(5)]
    outer = len(index.outer)
    whole = f"Exact count: {outer} outermost {what}" if what == "items" else f"Exact count: {', '.join(shown)}"
    return [*lines, f"{whole}."]


def _count_tags(index: DocumentIndex, term: Term) -> str:
    """How often an element of this name opens."""
    if not term.text.isalnum():
        return ""
    pattern = re.compile(rb"<(" + re.escape(term.text.encode()) + rb"(?:e?s|ies|y|e)?)(?=[\s>/])", re.IGNORECASE)
    found: Counter[bytes] = Counter()
    for at in range(0, index.source.size, BLOCK):
        found.update(match[1].lower() for match in pattern.finditer(index.source.read(at, at + BLOCK)))
    return "".join(f"Exact count: {count} <{name.decode()}> elements." for name, count in found.most_common(1))


def find_extreme(index: DocumentIndex, asked: ParsedRequest, *, most: bool) -> tuple[list[str], list[int]]:
    """The line with the greatest or least number of its kind, among the lines that hold the words of the request."""
    held = [sorted_unique(index.units.of(found)) for _, found in _locate(index, _counted_terms(asked))]
    held = [units for units in held if len(units) > 2]
    if index.tape is not None or not held:
        return [], []
    scope = held[0]
    for units in held[1:]:
        both = np.intersect1d(scope, units, assume_unique=True)
        scope = both if len(both) > 2 else scope
    groups: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for unit in scope[:MAX_READ]:
        for word, number, measure in MEASURED.findall(index.text(int(unit))[:1000]):
            groups.setdefault((word.lower(), measure.lower()), []).append((float(number), int(unit)))
    good = {key: found for key, found in groups.items() if len({value for value, _ in found}) > 2 and any(key)}
    if not good:
        return [], []
    word, measure = max(good, key=lambda key: (bool(key[1]), len(good[key])))
    pick = max if most else min
    value, unit = pick(good[word, measure], key=lambda item: item[0])
    name = f"`{word} … {measure}`".replace(" … `", "`") if word else f"`… {measure}`"
    plain = f"{value:g}" if value != int(value) else str(int(value))
    rank, count = "Greatest" if most else "Least", len(good[word, measure])
    return [f"{rank} number in {name} of {count} lines: {plain}, quoted below."], [unit]


# --- The files of a diff, listed, where a request asks which were changed.

ASKS_FOR_FILES = re.compile(
    r"\b(?:which|what|list|all|how many|name|names of)\b[^.?]{0,30}\bfiles?\b"
    r"|\bfiles? (?:\w+ ){0,3}(?:changed|touched|modified)",
    re.IGNORECASE,
)
DIFF_FILE = re.compile(r"diff --git a/(.+?) b/")


def changed_files(index: DocumentIndex, request: str, budget: int) -> list[str]:
    """How many files a diff changes, and their names as far as the budget goes."""
    if not ASKS_FOR_FILES.search(request) or not len(index.outer):
        return []
    heads = (DIFF_FILE.search(index.text(int(unit))) for unit in index.outer[:20_000])
    names = list(dict.fromkeys(head[1] for head in heads if head))
    if not names:
        return []
    shown, spent = [], 0
    for name in names:
        spent += tokens.count(name) + 2
        if spent > budget:
            break
        shown.append(name)
    more = f", and {len(names) - len(shown)} more" if len(shown) < len(names) else ""
    return [f"Exact count: {len(names)} files are changed: {', '.join(shown)}{more}."]
