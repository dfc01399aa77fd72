"""All that is known of one document, found on the first question and kept for the next ones.

Bounded: a few documents, and of each the places of the terms that were asked for lately. A file that changed is read
anew. Questions to one document run one after the other.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from toolfold.outputs.json_path import format_path
from toolfold.outputs.local import formats
from toolfold.outputs.local import json_index as jsonpath
from toolfold.outputs.local.formats import Format
from toolfold.outputs.local.headings import INNER_MARKS, OUTER_MARKS, Headings, detect_headings, find_marked_headings
from toolfold.outputs.local.json_index import JsonIndex, build_json_index
from toolfold.outputs.local.ngram_filter import NgramFilter, build_ngram_filter
from toolfold.outputs.local.request import Term
from toolfold.outputs.local.segments import Segments, json_segments, text_segments
from toolfold.outputs.local.source import Offsets, Source, sorted_unique
from toolfold.outputs.local.term_search import estimate_counts, find_terms, find_terms_near

T = TypeVar("T")

MAX_PLACES = 8_000_000
"""Places of terms that are kept of one document: 64 MB."""

MAX_CACHED_VALUES = 4_000_000
"""Values that are kept of one document, those of all columns that were asked for together."""

LARGE = 8 << 20
COMMON = 20_000
"""Words that stand more often than this are looked for around the rare ones only, where there are any."""
MAX_CENTRES = 2_000
AROUND = 6_000


class DocumentIndex:
    """One document, ready to be asked."""

    def __init__(self, path: Path) -> None:
        self.source = Source(path)
        self.lock = threading.Lock()
        self._notes: OrderedDict[str, Any] = OrderedDict()
        self._places: OrderedDict[tuple[str, str], Offsets] = OrderedDict()

    def kept(self, key: str, make: Callable[[], T]) -> T:
        """What another step made of the document, made once: a column that was read, the times of all lines."""
        found: T = self._notes.pop(key) if key in self._notes else make()
        self._notes[key] = found
        while len(self._notes) > 1 and sum(map(_size, self._notes.values())) > MAX_CACHED_VALUES:
            self._notes.popitem(last=False)
        return found

    @cached_property
    def format(self) -> Format:
        return formats.detect_format(self.source)

    @cached_property
    def tape(self) -> JsonIndex | None:
        return (
            build_json_index(self.source, self.format.start, literal=self.format.literal)
            if self.format.kind == "json"
            else None
        )

    @cached_property
    def units(self) -> Segments:
        return json_segments(self.source, self.tape) if self.tape and self.tape.levels else text_segments(self.source)

    @cached_property
    def blocks(self) -> Headings | None:
        """For plain text: its titles, definitions, sections or items; `None` for what is divided by other marks."""
        return detect_headings(self.source) if self.format.kind == "text" else None

    @cached_property
    def outer(self) -> Offsets:
        """The units that head whole files of a diff, commits, chapters, items."""
        if self.blocks is not None and self.blocks.kind != "plain":
            return sorted_unique(self.units.of(self.blocks.outer))
        return self._headings(OUTER_MARKS)

    @cached_property
    def headings(self) -> Offsets:
        """All units that head what follows them: also those of a hunk or a section."""
        if self.blocks is not None and self.blocks.kind != "plain":
            return sorted_unique(np.concatenate([self.outer, self.units.of(self.blocks.inner)]))
        return sorted_unique(np.concatenate([self.outer, self._headings(INNER_MARKS)]))

    def _headings(self, marks: tuple[bytes, ...]) -> Offsets:
        if self.format.kind in {"table", "log", "json-lines"}:
            return np.zeros(0, np.int64)
        return sorted_unique(self.units.of(find_marked_headings(self.source, marks)))

    @cached_property
    def grams(self) -> NgramFilter | None:
        """For a large document: which parts can hold a word."""
        return build_ngram_filter(self.source) if self.source.size > LARGE else None

    def places(self, terms: Sequence[Term]) -> dict[str, Offsets]:
        """Where each term stands."""
        missing = [term for term in terms if (term.kind, term.text) not in self._places]
        for text, found in find_terms(self.source, missing, self.grams).items() if missing else ():
            kind = next(term.kind for term in missing if term.text == text)
            self._places[kind, text] = found
        result = {}
        for term in terms:
            self._places.move_to_end((term.kind, term.text))
            result[term.text] = self._places[term.kind, term.text]
        while sum(map(len, self._places.values())) > MAX_PLACES and len(self._places) > len(terms):
            self._places.popitem(last=False)
        return result

    def places_near(self, terms: Sequence[Term]) -> tuple[dict[str, Offsets], dict[str, int]]:
        """The same, but words that stand everywhere are only looked for around the rare ones, and their number is
        estimated: the second value.
        """
        if self.source.size <= LARGE:
            return self.places(terms), {}
        known = estimate_counts(self.source, terms)
        rare = [term for term in terms if known[term.text] < COMMON]
        found = self.places(rare)
        telling = [found[term.text] for term in rare if term.kind != "hint" and not term.of and len(found[term.text])]
        centres = min(telling, key=len, default=np.zeros(0, np.int64))
        common = [term for term in terms if known[term.text] >= COMMON]
        if not common or not 0 < len(centres) <= MAX_CENTRES:
            return found | self.places(common), {}
        reach = AROUND * (4 if self.format.kind == "diff" else 1)
        near = find_terms_near(self.source, common, centres, reach)
        return found | near, {term.text: known[term.text] for term in common}

    def text(self, unit: int) -> str:
        start, end = self.units.span(unit)
        return self.source.read(start, end).decode(errors="replace")

    def path(self, offset: int) -> str:
        """For JSON: the path of the innermost container around a byte."""
        return format_path(jsonpath.path_at(self.source, self.tape, offset)) if self.tape else ""

    def named(self, offset: int) -> list[str]:
        """For JSON: what the objects around a byte call themselves, the outermost first."""
        return jsonpath.names_above(self.source, self.tape, offset) if self.tape else []


class IndexCache:
    """The documents asked lately, by path, size and time of change."""

    def __init__(self, most: int = 4) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, int, int], DocumentIndex] = OrderedDict()

    @contextmanager
    def of(self, path: Path) -> Iterator[DocumentIndex]:
        """The document's index, held until the block is left."""
        facts = path.stat()
        key = (str(path), facts.st_size, facts.st_mtime_ns)
        with self._lock:
            index = self._kept.pop(key, None) or DocumentIndex(path)
            self._kept[key] = index
            for other in [other for other in self._kept if other != key and other[0] == key[0]]:
                del self._kept[other]
            self._drop_gone()
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        with index.lock, index.source:
            yield index

    def drop_gone(self) -> None:
        """Lets go of documents whose file is gone."""
        with self._lock:
            self._drop_gone()

    def _drop_gone(self) -> None:
        for known in [known for known in self._kept if not Path(known[0]).exists()]:
            del self._kept[known]


def _size(note: Any) -> int:
    return len(note) if isinstance(note, Sized) else 1
