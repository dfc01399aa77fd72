"""Search, as everybody above sees it: open an index, keep it up to date, ask it.

One object for one folder. Asking is safe from several threads, and while another process updates the same folder. The
index is built from the catalogue and holds nothing that the catalogue lacks: losing it costs time only.

Categories are ranked through the tools that were found in them, and by their own words. A tool speaks for the category
it stands in, and with every step up a little less, so that of two that hold the same good tools the narrower comes
first. Further tools of a category add less each.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice
from pathlib import Path as FilePath

import numpy as np
from msgspec.structs import replace

from toolfold.errors import InvalidArguments, StoreDamaged
from toolfold.search.array_file import Mask
from toolfold.search.calibration import RANKED_AT_LEAST, _bar_of, features, judge
from toolfold.search.document import Document, document_of
from toolfold.search.encoder import WEIGHTS, Encoder, shared_encoder
from toolfold.search.enrichment import Requests
from toolfold.search.ranker import Ranker, Ranking
from toolfold.search.segment import Allowed, IndexSnapshot, Scope, top_rows
from toolfold.search.store import IndexStore
from toolfold.search.updater import UpdateReport, update_index
from toolfold.search.usage import Usage
from toolfold.types import Hit, NodeHit, Path, Tool, Why
from toolfold.words import query_terms, search_terms

# Hits that are looked at.
NODE_DEPTH = 50
# What a vote is worth one step up, what each further tool adds, and the share of a category's own words.
STEP_UP = 0.7
FURTHER = 0.3
OWN_WORDS = 0.3
SHOWN_TOOLS = 3

# A category's own words besides its name: its summary.
OwnText = Callable[[Path], str]

_NO_REQUESTS: Requests = {}

MAX_HITS = 200
# Words a hit names in its reasons.
MAX_WORDS = 12


class SearchIndex:
    """The tools of one catalogue, searchable."""

    def __init__(self, store: IndexStore, encoder: Encoder, usage: Usage | None = None) -> None:
        self._store = store
        self._usage = usage
        self._encoder = encoder
        self._lock = threading.RLock()
        self._ranker = Ranker(store.snapshot, encoder, usage)

    @classmethod
    def open(cls, folder: FilePath | None, *, encoder: Encoder | None = None, learn: bool = False) -> "SearchIndex":
        """Maps the index in a folder; `None` keeps one in memory. A damaged one opens empty: see `damage`.

        `learn` switches learning from use on: earlier choices are read, and `learn` may be called.
        """
        encoder = encoder or shared_encoder()
        # Each encoder has an index of its own: two processes may use one folder with two.
        own = folder if folder is None or encoder.folder == WEIGHTS else folder / encoder.record.name
        store = IndexStore(own, encoder.record.key)
        store.load()
        return cls(store, encoder, Usage(folder, encoder.record) if learn else None)

    def __len__(self) -> int:
        return self._current().snapshot.count

    @property
    def damage(self) -> str:
        """Why the index on disk could not be used and is now empty; the next update builds it anew."""
        return self._store.damage

    def update(
        self, tools: Iterable[Tool | Document], removed: Iterable[str] = (), *, requests: Requests = _NO_REQUESTS
    ) -> UpdateReport:
        """Puts tools in, or in the place of those with the same id, and takes `removed` out. `requests` are those that
        a model wrote for tools."""
        return self._update(tools, removed, requests, only=False)

    def sync(self, tools: Iterable[Tool | Document], *, requests: Requests = _NO_REQUESTS) -> UpdateReport:
        """Makes the index hold exactly these tools. Cheap when little changed."""
        return self._update(tools, (), requests, only=True)

    def _update(
        self, tools: Iterable[Tool | Document], removed: Iterable[str], requests: Requests, *, only: bool
    ) -> UpdateReport:
        documents = [
            document_of(tool, requests.get(tool.fingerprint, ())) if isinstance(tool, Tool) else tool for tool in tools
        ]
        with self._lock, self._store.writing():
            done = update_index(self._store, self._encoder, documents, removed, only=only)
            self._ranker = Ranker(self._store.snapshot, self._encoder, self._usage)
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
        learned: bool = True,
    ) -> list[Hit]:
        """Tools for a request, the best first, among those inside the path, with all tags, of the ids, allowed.

        `without` names tools to leave out, `learned` whether choices count. Every tool gets its probability, and `fits`
        where that is enough.
        """
        scope = Scope(path=tuple(path), tags=tuple(tags), ids=ids, without=tuple(without), allowed=allowed)
        ranker, mask, ranking = self._ranking(query, scope, limit, learned=learned)
        return list(islice(_without_twins(ranker.snapshot, mask, _hits(ranker, ranking, allowed)), limit))

    def threshold(self, query: str) -> float:
        """The probability from which on a tool is offered for this request."""
        return _bar_of(self._ranking(query, Scope(), 1)[2])

    def explain(
        self, query: str, *, without: Iterable[str] = (), limit: int = 10
    ) -> list[tuple[str, dict[str, float]]]:
        """The ids of hits, each with the numbers its confidence is made of: for fitting, and for whoever doubts one."""
        ranker, _, ranking = self._ranking(query, Scope(without=tuple(without)), limit)
        values = features(ranking)
        return [
            (ranker.snapshot.tool_id(row), {name: float(of_hit[at]) for name, of_hit in values.items()})
            for at, row in enumerate(ranking.rows[:limit].tolist())
        ]

    def learn(self, query: str, tool_id: str) -> bool:
        """Records that a tool was chosen for a request and worked. Does nothing where learning is off."""
        if self._usage is None or not query.strip():
            return False
        vector = self._encoder.queries([query])[0]
        with self._lock, self._store.writing():
            self._usage.learn(vector, tool_id)
        return True

    def is_plausible(self, query: str, tool_id: str, selected_by: str) -> bool:
        """Whether a tool may have been called because of a request: it fits it and no other far better, or so with the
        request that it was selected by, and the two are alike. A name says nothing about words, a tool that does the
        opposite was called for another reason, and what was learned so far is no witness."""
        if self._usage is None or not query.strip():
            return False
        ranker, _, ranking = self._ranking(query, Scope(), MAX_HITS, learned=False)
        if ranking.named or _is_opposed(ranker, ranking, tool_id):
            return False
        if _is_meant(ranker, ranking, tool_id):
            return True
        alike = query != selected_by and self._usage.are_alike(*self._encoder.queries([query, selected_by]))
        return alike and _is_meant(ranker, self._ranking(selected_by, Scope(), MAX_HITS, learned=False)[2], tool_id)

    @property
    def choices(self) -> int:
        return len(self._kept_usage())

    def _kept_usage(self) -> Usage:
        """What was learned, even where learning is off by now."""
        return Usage(self._store.folder, self._encoder.record) if self._usage is None else self._usage

    def forget(self) -> int:
        """Forgets every choice; returns how many there were."""
        forgotten = self.choices
        with self._lock, self._store.writing():
            self._kept_usage().forget()
        return forgotten

    def by_words(self, query: str, *, limit: int = 10) -> list[str]:
        """The ids that words alone would give: for benches that ask what meaning adds."""
        ranker = self._current()
        scores = ranker.lexical.scores(ranker.lexical.terms(query)).astype(np.float64)
        rows = np.flatnonzero((scores > 0) & ranker.snapshot.alive)
        return [
            ranker.snapshot.tool_id(row)
            for row in top_rows(scores[rows], rows, ranker.snapshot.id_hash, limit).tolist()
        ]

    def search_nodes(
        self,
        query: str,
        *,
        path: Sequence[str] = (),
        own_text: OwnText | None = None,
        allowed: Allowed | None = None,
        limit: int = 10,
    ) -> list[NodeHit]:
        """Categories for a request, the best first, through their tools and their own words."""
        ranker, _, ranking = self._ranking(query, Scope(path=tuple(path), allowed=allowed), NODE_DEPTH)
        hits = islice(_hits(ranker, ranking, allowed), NODE_DEPTH)
        placed = [(hit, ranker.snapshot.paths(row)) for hit, row in hits]
        return _rank_nodes(query, placed, within=tuple(path), own_text=own_text, limit=limit)

    def verify(self) -> None:
        """Reads the whole index and compares its checksums. Raises `StoreDamaged`."""
        with self._lock:
            self._store.verify()

    def warm(self) -> None:
        """Loads the encoder now rather than with the first request."""
        self._encoder.load()

    def stop(self) -> None:
        """Has an update that runs in another thread end soon, with an error; what it did not write is lost."""
        self._store.stopped.set()

    def _current(self) -> Ranker:
        if self._store.changed():
            with self._lock:
                if self._store.changed():
                    self._store.load()
                    self._ranker = Ranker(self._store.snapshot, self._encoder, self._usage)
        return self._ranker

    def _ranking(self, query: str, scope: Scope, limit: int, *, learned: bool = True) -> tuple[Ranker, Mask, Ranking]:
        if not query.strip():
            raise InvalidArguments(
                "the request is empty",
                next_action="say in a few words what the tool should do, or list a category instead",
            )
        ranker = self._current()
        try:
            mask = ranker.snapshot.mask(scope)
            # Where tools have twins, one hit may stand for any number of rows.
            depth = MAX_HITS if ranker.snapshot.has_twins else min(max(limit, RANKED_AT_LEAST), MAX_HITS)
            visible = None if scope.allowed is None else ranker.snapshot.mask(Scope(allowed=scope.allowed))
            return ranker, mask, ranker.rank(query, mask, depth, visible, learned=learned)
        except (IndexError, ValueError) as error:
            # The files are mapped without reading them: damage shows only when an array is used.
            self.verify()  # a damaged file says so here
            raise StoreDamaged(
                f"the search index contradicts itself: {error}", next_action="build it again with `toolfold build`"
            ) from error


def _is_opposed(ranker: Ranker, ranking: Ranking, tool_id: str) -> bool:
    """Whether the tool does the opposite of what is asked."""
    return any(ranker.snapshot.tool_id(row) == tool_id for row in ranking.rows[ranking.against > 0].tolist())


def _is_meant(ranker: Ranker, ranking: Ranking, tool_id: str) -> bool:
    """Whether the tool is among the hits that somebody may have meant."""
    rows = zip(ranking.rows.tolist(), judge(ranking, alone=True), strict=True)
    return any(meant and ranker.snapshot.tool_id(row) == tool_id for row, (_, meant) in rows)


def _without_twins(snapshot: IndexSnapshot, mask: Mask, hits: Iterable[tuple[Hit, int]]) -> Iterator[Hit]:
    """Each tool once, whatever number of servers has it: the first of them, which then names the others."""
    shown: set[int] = set()
    for hit, row in hits:
        if row in shown:
            continue
        twins = snapshot.twins_of(row, mask).tolist()
        shown.update(twins)
        yield replace(hit, same_as=tuple(sorted(map(snapshot.tool_id, twins)))) if twins else hit


def _hits(ranker: Ranker, ranking: Ranking, allowed: Allowed | None) -> Iterator[tuple[Hit, int]]:
    """The rows of a ranking as hits, with their rows. What may not be seen is asked once more."""
    rows = ranking.rows.tolist()
    for at, (confidence, fits) in enumerate(judge(ranking)):
        tool_id = ranker.snapshot.tool_id(rows[at])
        if allowed is not None and not allowed(tool_id):
            continue
        matches = ranker.lexical.matches(ranking.terms, rows[at])
        words = sorted(matches, key=lambda pair: -pair[1])[:MAX_WORDS]
        part = int(ranking.part[at])
        why = Why(
            words=tuple(term.word for term, _ in words),
            lexical=round(float(ranking.lexical_z[at]), 4),
            near=round(float(ranking.similarity[at]), 4),
            dense=round(float(ranking.dense_z[at]), 4),
            part=ranking.texts[part] if part else "",
            prior=float(ranking.prior[at]),
        )
        score = float(ranking.score[at])
        yield Hit(tool_id=tool_id, score=score, confidence=confidence, fits=fits, why=why), rows[at]


def _rank_nodes(
    query: str,
    placed: Sequence[tuple[Hit, tuple[Path, ...]]],
    *,
    within: Path,
    own_text: OwnText | None,
    limit: int,
) -> list[NodeHit]:
    """Categories of the hits below `within`, the best first. Equal ones go by path."""
    terms = set(query_terms(query))
    by_node = {path: votes for path, votes in _votes(placed).items() if _is_below(path, within)}
    hits = [_node_hit(path, votes, terms, own_text) for path, votes in by_node.items()]
    ranked = sorted(hits, key=lambda hit: (-hit.score, -len(hit.path), hit.path))[:limit]
    falling = accumulate((hit.confidence for hit in ranked), min)
    return [replace(hit, confidence=least) for hit, least in zip(ranked, falling, strict=True)]


def _is_below(path: Path, within: Path) -> bool:
    return len(path) > len(within) and path[: len(within)] == within


def _votes(placed: Sequence[tuple[Hit, tuple[Path, ...]]]) -> dict[Path, list[tuple[float, Hit]]]:
    """For each category the hits at or below it, each with what it says for it."""
    best = max((hit.score for hit, _ in placed), default=0.0)
    votes: dict[Path, dict[str, tuple[float, Hit]]] = {}
    for hit, paths in placed:
        strength = max(hit.score, 0.0) / best if best > 0 else 0.0
        for path in paths:
            for depth in range(len(path), 0, -1):
                vote = strength * STEP_UP ** (len(path) - depth)
                of_node = votes.setdefault(path[:depth], {})
                if hit.tool_id not in of_node or of_node[hit.tool_id][0] < vote:
                    of_node[hit.tool_id] = (vote, hit)
    return {path: sorted(hits.values(), key=lambda pair: (-pair[0], pair[1].tool_id)) for path, hits in votes.items()}


def _node_hit(path: Path, votes: Sequence[tuple[float, Hit]], terms: set[str], own_text: OwnText | None) -> NodeHit:
    through_tools = sum(vote * FURTHER**at for at, (vote, _) in enumerate(votes)) * (1 - FURTHER)
    name, summary = set(search_terms(path[-1])), set(search_terms(own_text(path))) if own_text else set()
    named = len(name & terms) / len(name) if name else 0.0
    about = len(summary & terms) / max(len(terms), 1)
    score = through_tools * (1 + OWN_WORDS * max(named, about))
    return NodeHit(
        path=path,
        score=round(score, 5),
        confidence=max(hit.confidence for _, hit in votes),
        fits=any(hit.fits for _, hit in votes),
        tools=tuple(hit.tool_id for _, hit in votes[:SHOWN_TOOLS]),
    )
