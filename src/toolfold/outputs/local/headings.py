"""Headings: the lines of a text that head what follows them, by the kind of text.

Titles, definitions, sections and repeated items are detected in texts that are not too large; the marks of diffs,
commits and Markdown by plain search in any text, also inside the strings of JSON. A wrong guess costs little: a heading
only lends its words to the lines below it, and is quoted with them. Above: `index.py`.
"""

import re

import numpy as np
from msgspec import Struct

from toolfold.outputs.local.source import Offsets, Source, sorted_unique
from toolfold.outputs.local.term_search import find_all

# Those that head others.
OUTER_MARKS = (b"diff --git ", b"commit ", b"# ")
INNER_MARKS = (b"@@ -", b"## ", b"### ")
# A newline, also one that is escaped in a JSON string, or the beginning of such a string.
BEFORE = (b"\n", b"\\n", b'"')


LARGEST = 24 << 20
HEAD = 64 * 1024
CODE = re.compile(
    rb"^[ \t]*(?:@?\w+[ \t]+){0,4}(?:def|class|function|fn|func|struct|enum|interface|impl|trait|module|namespace|type)"
    rb"[ \t]+\*?([A-Za-z_$][\w$]*)[^\n]*",
    re.MULTILINE,
)
IMPORTS = re.compile(
    rb"^(?:import |from \S+ import |#include|package |use |using |export |const |const\(|require)", re.MULTILINE
)
TITLE = re.compile(rb"^(#{1,6})[ \t]+\S[^\n]*", re.MULTILINE)
FENCE = re.compile(rb"^[ \t]*(?:```|~~~)", re.MULTILINE)
UNDERLINED = re.compile(rb"^(?!\s)[^\n|]{2,120}\n(={3,}|-{3,}|~{3,}|\^{3,}|\*{3,})[ \t]*$", re.MULTILINE)
SECTION = re.compile(rb"^[ \t]*\[\[?[^\]\n=]{1,120}\]?\][ \t]*\r?$", re.MULTILINE)
SETTING = re.compile(rb"^[ \t]*[\w.\"'-]+[ \t]*[=:]", re.MULTILINE)
MARKED = re.compile(rb"<(h[1-6]|section|article|dt|summary)\b", re.IGNORECASE)
CHAPTERS = frozenset({b"h1", b"h2", b"section", b"article"})
TAG = re.compile(rb"^([ \t]*)<([A-Za-z][\w:.-]*)[\s>/]", re.MULTILINE)
ITEM = re.compile(rb"^([ \t]*)(?:(- )|[\"']?[\w.$/@{}-][\w .$/@{}-]{0,80}[\"']?:[ \t]*$)", re.MULTILINE)
YAML_LINE = re.compile(rb"^[ \t]*(?:- )?(?:[\"']?[\w.$/@{}-]+[\"']?:(?:[ \t]|$)|- )", re.MULTILINE)
STANZA_LINE = re.compile(rb"([A-Za-z][\w.-]{0,60}):(?=[ \t\r\n]|\Z)")
STANZA = re.compile(rb"(?:\A|\n[ \t]*\r?\n)([A-Za-z][\w.-]{0,60}):(?=[ \t\r\n])")
LISTED = re.compile(rb"(?:\A|\n\n)([^\s:|][^\n|]{0,300}:)[ \t]*\n(?=\S)")
FEW = 3


class Headings(Struct, frozen=True):
    """Where headings begin: those that head others, and the others."""

    outer: Offsets
    inner: Offsets
    kind: str = "plain"


def find_marked_headings(source: Source, marks: tuple[bytes, ...]) -> Offsets:
    """Where the headings with these marks begin."""
    places = [np.zeros(0, dtype=np.int64)]
    places += [np.zeros(1, dtype=np.int64) for mark in marks if source.read(0, len(mark)) == mark]
    for at, block in source.blocks(margin=32):
        for before in BEFORE:
            hits = [hit for mark in marks for hit in find_all(block, before + mark)]
            places.append(np.array(hits, dtype=np.int64) + at + len(before))
    return sorted_unique(np.concatenate(places))


def detect_headings(source: Source) -> Headings:
    """The headings of a text, as byte offsets."""
    if source.size > LARGEST:
        return _headings([], [])
    text = source.read(0, source.size)
    head = text[:HEAD]
    for kind, read in READERS:
        headings = read(text, head)
        if headings is not None:
            return _headings(*headings, kind)
    return _headings([], [])


def _headings(outer: list[int], inner: list[int], kind: str = "plain") -> Headings:
    return Headings(np.array(sorted(outer), dtype=np.int64), np.array(sorted(inner), dtype=np.int64), kind)


Heads = tuple[list[int], list[int]]


def _html_headings(text: bytes, head: bytes) -> Heads | None:
    """HTML, by its headings."""
    opening = head.lstrip()[:200].lower()
    if not opening.startswith(b"<") or (b"<html" not in head[:4000].lower() and b"<!doctype html" not in opening):
        return None
    heads = [(match.start(), match[1].lower()) for match in MARKED.finditer(text)]
    outer = [at for at, name in heads if name in CHAPTERS]
    return outer, [at for at, name in heads if name not in CHAPTERS]


def _xml_headings(text: bytes, head: bytes) -> Heads | None:
    """XML, by the outermost tags that are repeated."""
    if not head.lstrip().startswith(b"<"):
        return None
    by: dict[tuple[int, bytes], list[int]] = {}
    for match in TAG.finditer(text):
        by.setdefault((len(match[1].expandtabs(4)), match[2]), []).append(match.start() + len(match[1]))
    repeated = sorted(
        (key for key, places in by.items() if len(places) >= FEW), key=lambda key: (key[0], -len(by[key]))
    )
    if not repeated:
        return [], []
    depth = repeated[0][0]
    outer = [at for key in repeated if key[0] == depth for at in by[key]]
    return outer, []


def _code_headings(text: bytes, head: bytes) -> Heads | None:
    lines = head.count(b"\n") + 1
    definitions = len(CODE.findall(head))
    imports = len(IMPORTS.findall(head))
    titles = len(re.findall(rb"^##+ \w", head, re.MULTILINE))
    if definitions < FEW or definitions + imports < lines * 0.01 or titles > definitions:
        return None
    if len(re.findall(rb"[{;:]\s*$", head, re.MULTILINE)) < lines * 0.08:
        return None
    places = [(match.start(), match[0][:1] not in b" \t") for match in CODE.finditer(text)]
    return [at for at, top in places if top], [at for at, top in places if not top]


def _settings_headings(text: bytes, head: bytes) -> Heads | None:
    """INI and TOML."""
    sections = len(SECTION.findall(head))
    lines = sum(1 for line in head.split(b"\n") if line.strip() and line.lstrip()[:1] not in b"#;")
    if sections < 2 or len(SETTING.findall(head)) + sections < lines * 0.5:
        return None
    return [match.start() for match in SECTION.finditer(text)], []


def _markdown_headings(text: bytes, head: bytes) -> Heads | None:
    if len(TITLE.findall(head)) + len(UNDERLINED.findall(head)) < 2:
        return None
    titles = _titles(text)
    levels = [level for _, level in titles]
    top = min(levels, default=1)
    # The title of the whole document stands alone on its level and heads everything: chapters are one level below.
    edge = top if levels.count(top) > 1 else top + 1
    return [at for at, level in titles if level <= edge], [at for at, level in titles if level > edge]


def _titles(text: bytes) -> list[tuple[int, int]]:
    """Where each title of a Markdown text begins, with its level."""
    titles = [(match.start(), len(match[1])) for match in TITLE.finditer(text)]
    titles += [(match.start(), 1 if match[1][:1] == b"=" else 2) for match in UNDERLINED.finditer(text)]
    # `# comment` inside a fenced block of code is no title: a title has an even number of fences above it.
    fences = np.array([match.start() for match in FENCE.finditer(text)], dtype=np.int64)
    return [(at, level) for at, level in titles if int(np.searchsorted(fences, at)) % 2 == 0]


def _unindented_lines(head: bytes) -> list[bytes]:
    """The lines that are not blank, indented or a comment."""
    return [line for line in head.split(b"\n") if line.strip() and line[:1] not in b" \t#"]


def _stanza_headings(text: bytes, head: bytes) -> Heads | None:
    """Blocks of `Key: value` between blank lines that begin alike, as in control files and dumps."""
    starts = [match.start(1) for match in STANZA.finditer(text)]
    if len(starts) < FEW:
        return None
    keys = [match[1] for match in STANZA.finditer(head)]
    lines = _unindented_lines(head)
    keyed = sum(1 for line in lines if STANZA_LINE.match(line))
    blocks = len(re.findall(rb"(?:\A|\n\s*\n)(?=[^\s#])", head))
    alike = keys.count(keys[0]) >= 0.8 * max(len(keys), blocks)
    several = keyed >= 1.5 * len(keys)
    return (starts, []) if alike and several and keyed >= 0.95 * len(lines) else None


def _yaml_headings(text: bytes, head: bytes) -> Heads | None:
    """YAML: the outermost items, or keys with something below them, that are repeated."""
    lines = sum(1 for line in head.split(b"\n") if line.strip())
    if lines < 6 or len(YAML_LINE.findall(head)) < lines * 0.35:
        return None
    depths: dict[int, list[int]] = {}
    for match in ITEM.finditer(text):
        depths.setdefault(len(match[1]) * 2 + (match[2] is not None), []).append(match.start() + len(match[1]))
    repeated = [depth for depth in sorted(depths) if len(depths[depth]) >= FEW]
    if not repeated:
        return None
    return depths[repeated[0]], []


def _listing_headings(text: bytes, head: bytes) -> Heads | None:
    """Groups under a line that ends in a colon: `ls -R`, help texts."""
    if len(LISTED.findall(head)) < 2:
        return None
    return [match.start(1) for match in LISTED.finditer(text)], []


READERS = (
    ("page", _html_headings),
    ("markup", _xml_headings),
    ("stanzas", _stanza_headings),
    ("code", _code_headings),
    ("settings", _settings_headings),
    ("markdown", _markdown_headings),
    ("items", _yaml_headings),
    ("listing", _listing_headings),
)
