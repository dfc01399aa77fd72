"""Search, as everybody above sees it: open an index, keep it up to date, ask it.

One object for one folder. Asking is safe from several threads, and while another process updates the same folder. The
index is built from the catalogue and holds nothing that the catalogue lacks: losing it costs time only.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from toolfold.errors import InvalidArguments, StoreDamaged
from toolfold.search import calibration as calibrate
from toolfold.search import node_ranker as nodes
from toolfold.search.document import Document, document_of
from toolfold.search.encoder import Encoder
from toolfold.search.ranker import Ranker, Ranking
from toolfold.search.snapshot import Allowed, Scope, top_rows
from toolfold.search.store import IndexStore
from toolfold.search.updater import UpdateReport, update_index
from toolfold.search.usage import Usage
from toolfold.types import Hit, NodeHit, Tool, Why
from toolfold.types import Path as NodePath

MAX_HITS = 200
MAX_WORDS = 12
"""Words a hit names in its reasons."""


class SearchIndex:
    """The tools of one catalogue, searchable."""

    def __init__(self, store: IndexStore, encoder: Encoder, usage: Usage | None = None) -> None:
        self._store = store
        self._usage = usage
        self._encoder = encoder
        self._lock = threading.RLock()
        self._ranker = Ranker(store.view, encoder, usage)

    @classmethod
    def open(cls, folder: Path | None, *, encoder: Encoder | None = None, learn: bool = False) -> "SearchIndex":
        """Maps the index in a folder; `None` keeps one in memory. A damaged one opens empty: see `damage`.

        `learn` switches learning from use on: earlier choices are read, and `learn` may be called.
        """
        encoder = encoder or Encoder()
        store = IndexStore(folder, encoder.record.key)
        store.load()
        return cls(store, encoder, Usage(folder, encoder.record) if learn else None)

    def __len__(self) -> int:
        return self._current().view.count

    @property
    def damage(self) -> str:
        """Why the index on disk could not be used and is now empty; the next update builds it anew."""
        return self._store.damage

    def update(self, tools: Iterable[Tool | Document], removed: Iterable[str] = ()) -> UpdateReport:
        """Puts tools in, or in the place of those with the same id, and takes `removed` out."""
        return self._update(tools, removed, only=False)

    def sync(self, tools: Iterable[Tool | Document]) -> UpdateReport:
        """Makes the index hold exactly these tools. Cheap when little changed."""
        return self._update(tools, (), only=True)

    def _update(self, tools: Iterable[Tool | Document], removed: Iterable[str], *, only: bool) -> UpdateReport:
        documents = [document_of(tool) if isinstance(tool, Tool) else tool for tool in tools]
        with self._lock, self._store.writing():
            done = update_index(self._store, self._encoder, documents, removed, only=only)
            self._ranker = Ranker(self._store.view, self._encoder, self._usage)
        return done

    def search(
        self,
        query: str,
        *,
        path: Sequence[str] = (),
        tags: Iterable[str] = (),
        ids: Iterable[str] | None = None,
        without: Iterable[str] = (),
        allowed: Allowed | None = None,
        limit: int = 10,
    ) -> list[Hit]:
        """Tools for a request, the best first, among those inside the path, with all tags, of the ids, allowed.

        `without` names tools to leave out. Every tool gets its probability; whether the best is good enough is asked
        with `calibrate.fits`.
        """
        scope = Scope(path=tuple(path), tags=tuple(tags), ids=ids, without=tuple(without), allowed=allowed)
        ranker, ranking = self._ranking(query, scope, limit)
        return [hit for hit, _ in _hits(ranker, ranking, limit, allowed)]

    def explained(
        self, query: str, *, without: Iterable[str] = (), limit: int = 10
    ) -> list[tuple[Hit, dict[str, float]]]:
        """Hits, each with the numbers its confidence was made of: for fitting, and for whoever doubts one."""
        ranker, ranking = self._ranking(query, Scope(without=tuple(without)), limit)
        found = _hits(ranker, ranking, limit, None)
        return [(hit, calibrate.features(ranking, at)) for at, (hit, _) in enumerate(found)]

    def learn(self, query: str, tool_id: str) -> bool:
        """Notes that a tool was chosen for a request and worked. Does nothing where learning is off."""
        if self._usage is None or not query.strip():
            return False
        with self._lock:
            self._usage.learn(self._encoder.queries([query])[0], tool_id)
        return True

    def by_words(self, query: str, *, limit: int = 10) -> list[str]:
        """The ids that words alone would give: for benches that ask what meaning adds."""
        ranker = self._current()
        scores = ranker.lexical.scores(ranker.lexical.terms(query)).astype(np.float64)
        rows = np.flatnonzero((scores > 0) & ranker.view.alive)
        return [ranker.view.tool_id(row) for row in top_rows(scores[rows], rows, ranker.view.id_hash, limit).tolist()]

    def search_nodes(
        self,
        query: str,
        *,
        path: Sequence[str] = (),
        own_text: nodes.OwnText = nodes.no_text,
        allowed: Allowed | None = None,
        limit: int = 10,
    ) -> list[NodeHit]:
        """Categories for a request, the best first, through their tools and their own words."""
        ranker, ranking = self._ranking(query, Scope(path=tuple(path), allowed=allowed), nodes.DEPTH)
        placed = [(hit, ranker.view.paths(row)) for hit, row in _hits(ranker, ranking, nodes.DEPTH, allowed)]
        return nodes.rank_nodes(query, placed, within=tuple(path), own_text=own_text, limit=limit)

    def paths(self, tool_id: str) -> tuple[NodePath, ...]:
        """Where a tool stands, as the index knows it."""
        view = self._current().view
        row = view.find(tool_id)
        return () if row is None else view.paths(row)

    def verify(self) -> None:
        """Reads the whole index and compares its checksums. Raises `StoreDamaged`."""
        with self._lock:
            self._store.verify()

    def warm(self) -> None:
        """Loads the encoder now rather than with the first request."""
        self._encoder.load()

    def _current(self) -> Ranker:
        if self._store.changed():
            with self._lock:
                if self._store.changed():
                    self._store.load()
                    self._ranker = Ranker(self._store.view, self._encoder, self._usage)
        return self._ranker

    def _ranking(self, query: str, scope: Scope, limit: int) -> tuple[Ranker, Ranking]:
        if not query.strip():
            raise InvalidArguments(
                "the request is empty",
                next_action="say in a few words what the tool should do, or list a category instead",
            )
        ranker = self._current()
        try:
            mask = ranker.view.mask(scope)
            return ranker, ranker.rank(query, mask, min(limit, MAX_HITS))
        except (IndexError, ValueError) as error:
            self.verify()  # a damaged file says so here
            raise StoreDamaged(
                f"the search index contradicts itself: {error}", next_action="build it again with `toolfold build`"
            ) from error


def _hits(ranker: Ranker, ranking: Ranking, limit: int, allowed: Allowed | None) -> Iterator[tuple[Hit, int]]:
    """The first rows of a ranking as hits, with their rows. What may not be seen is asked once more."""
    rows = ranking.rows[: min(limit, MAX_HITS)].tolist()
    for at, confidence in enumerate(calibrate.confidences(ranking, len(rows))):
        tool_id = ranker.view.tool_id(rows[at])
        if allowed is not None and not allowed(tool_id):
            continue
        held = ranker.lexical.held(ranking.terms, rows[at])
        words = sorted(held, key=lambda pair: -pair[1])[:MAX_WORDS]
        part = int(ranking.part[at])
        why = Why(
            words=tuple(term.word for term, _ in words),
            lexical=round(float(ranking.lexical_z[at]), 4),
            near=round(float(ranking.near[at]), 4),
            dense=round(float(ranking.near_z[at]), 4),
            part=ranking.texts[part] if part else "",
            prior=float(ranking.prior[at]),
        )
        yield Hit(tool_id=tool_id, score=float(ranking.score[at]), confidence=confidence, why=why), rows[at]
