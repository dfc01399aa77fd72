"""The index of one document: its format, its segments, its headings, where terms occur. Built on the first question.

Bounded: a few documents, and of each the places of the terms that were asked for lately. A file that changed is read
anew. Questions to one document run one after the other. Above: everything that answers. Below: `source.py`,
`formats.py`, `json_index.py`, `segments.py`, `headings.py`, `term_search.py`.
"""

import threading
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from toolfold.containers import BoundedDict
from toolfold.outputs.json_path import format_path
from toolfold.outputs.local.formats import Format, detect_format
from toolfold.outputs.local.headings import INNER_MARKS, OUTER_MARKS, Headings, detect_headings, find_marked_headings
from toolfold.outputs.local.json_index import JsonIndex
from toolfold.outputs.local.request import Term
from toolfold.outputs.local.segments import Segments, divide
from toolfold.outputs.local.source import Offsets, Source, sorted_unique
from toolfold.outputs.local.term_search import (
    NgramFilter,
    estimate_counts,
    find_terms,
    find_terms_near,
)

T = TypeVar("T")

# Places of terms that are remembered of one document: 64 MB.
MAX_PLACES = 8_000_000

# Values that are remembered of one document, those of all columns that were asked for together.
MAX_CACHED_VALUES = 4_000_000

LARGE = 8 << 20
# In a large document, terms that occur more often than this are looked for around the rare ones only.
COMMON = 20_000
MAX_CENTRES = 2_000
AROUND = 6_000


class DocumentIndex:
    """One document, ready to be asked. The document is readable inside `with index.source:` only."""

    def __init__(self, path: Path) -> None:
        self.source = Source(path)
        self.lock = threading.Lock()
        self._cache: dict[str, Any] = {}
        self._places: dict[tuple[str, str], Offsets] = {}

    def cached(self, key: str, create: Callable[[], T]) -> T:
        """What another step derived from the document, computed once: a column, the times of all lines."""
        value: T = self._cache.pop(key) if key in self._cache else create()
        self._cache[key] = value
        while len(self._cache) > 1 and sum(map(_size, self._cache.values())) > MAX_CACHED_VALUES:
            del self._cache[next(iter(self._cache))]
        return value

    @cached_property
    def format(self) -> Format:
        return detect_format(self.source)

    @cached_property
    def json(self) -> JsonIndex | None:
        if self.format.kind != "json":
            return None
        index = JsonIndex(self.source, self.format.start, literal=self.format.literal)
        return index if index.levels else None

    @property
    def is_records(self) -> bool:
        """Whether it is JSON, whole or in lines."""
        return self.format.kind in {"json", "json-lines"}

    @cached_property
    def segments(self) -> Segments:
        return divide(self.source, self.json)

    @cached_property
    def structure(self) -> Headings | None:
        """For plain text: its titles, definitions, sections or items; `None` for other formats, and without any."""
        headings = detect_headings(self.source) if self.format.kind == "text" else None
        return headings if headings is not None and headings.kind != "plain" else None

    @cached_property
    def outer(self) -> Offsets:
        """The segments that head whole files of a diff, commits, chapters, items."""
        if self.structure is not None:
            return sorted_unique(self.segments.at(self.structure.outer))
        return self._marked(OUTER_MARKS)

    @cached_property
    def headings(self) -> Offsets:
        """All segments that head what follows them: also those of a hunk or a section."""
        structure = self.structure
        inner = self.segments.at(structure.inner) if structure is not None else self._marked(INNER_MARKS)
        return sorted_unique(np.concatenate([self.outer, inner]))

    def _marked(self, marks: tuple[bytes, ...]) -> Offsets:
        if self.format.kind in {"table", "log", "json-lines"}:
            return np.zeros(0, np.int64)
        return sorted_unique(self.segments.at(find_marked_headings(self.source, marks)))

    @cached_property
    def _filter(self) -> NgramFilter | None:
        """For a large document: which parts can hold a term."""
        return NgramFilter.of(self.source) if self.source.size > LARGE else None

    def places(self, terms: Sequence[Term]) -> dict[str, Offsets]:
        """Where each term occurs."""
        missing = [term for term in terms if (term.kind, term.text) not in self._places]
        new = find_terms(self.source, missing, self._filter) if missing else {}
        for term in missing:
            self._places[term.kind, term.text] = new[term.text]
        places = {}
        for term in terms:  # taken out and put back: the newest stand last
            key = (term.kind, term.text)
            places[term.text] = self._places[key] = self._places.pop(key)
        while sum(map(len, self._places.values())) > MAX_PLACES and len(self._places) > len(terms):
            del self._places[next(iter(self._places))]
        return places

    def places_near(self, terms: Sequence[Term]) -> tuple[dict[str, Offsets], dict[str, int]]:
        """The same, but common terms only around the rare ones; the second value estimates how often they occur."""
        if self.source.size <= LARGE:
            return self.places(terms), {}
        counts = estimate_counts(self.source, terms)
        rare = [term for term in terms if counts[term.text] < COMMON]
        common = [term for term in terms if counts[term.text] >= COMMON]
        places = self.places(rare)
        centres = _fewest(places, rare)
        if not common or not 0 < len(centres) <= MAX_CENTRES:
            return places | self.places(common), {}
        # The heading of a diff's file may stand far above its hunk.
        reach = AROUND * (4 if self.format.kind == "diff" else 1)
        near = find_terms_near(self.source, common, centres, reach)
        return places | near, {term.text: counts[term.text] for term in common}

    def text(self, segment: int) -> str:
        return self.source.text(*self.segments.span(segment))

    def path(self, offset: int) -> str:
        """For JSON: the path of the innermost container around a byte."""
        return format_path(self.json.path_at(offset)) if self.json is not None else ""

    def names_above(self, offset: int) -> list[str]:
        """For JSON: what the objects around a byte call themselves, the outermost first."""
        return self.json.names_above(offset) if self.json is not None else []


class IndexCache:
    """The indexes of the documents asked lately, by path, size and time of change."""

    def __init__(self, max_size: int = 4) -> None:
        self._lock = threading.Lock()
        self._indexes: BoundedDict[tuple[str, int, int], DocumentIndex] = BoundedDict(max_size)

    @contextmanager
    def of(self, path: Path) -> Iterator[DocumentIndex]:
        """The document's index, held until the block is left."""
        facts = path.stat()
        key = (str(path), facts.st_size, facts.st_mtime_ns)
        with self._lock:
            for other in [other for other in self._indexes if other != key and other[0] == key[0]]:
                del self._indexes[other]
            self._drop_gone()
            index = self._indexes.get(key) or DocumentIndex(path)
            self._indexes.renew(key, index)
        with index.lock, index.source:
            yield index

    def drop_gone(self) -> None:
        """Forgets documents whose file is gone."""
        with self._lock:
            self._drop_gone()

    def _drop_gone(self) -> None:
        for key in [key for key in self._indexes if not Path(key[0]).exists()]:
            del self._indexes[key]


def _fewest(places: dict[str, Offsets], terms: Sequence[Term]) -> Offsets:
    """The places of the term that occurs least of those that the request names and that occur."""
    named = (places[term.text] for term in terms if term.is_named)
    return min(filter(len, named), key=len, default=np.zeros(0, np.int64))


def _size(value: Any) -> int:
    return len(value) if isinstance(value, Sized) else 1
