"""What the benches of search share: retrieval sets, measures of a ranking, and a peer's formula to compare with.

A set is a folder with `tools.jsonl` (`id name description parameters category server`) and `queries.jsonl`
(`qid query relevant split`). Nothing here knows how our search works.
"""

import math
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from toolfold.errors import ConfigError
from toolfold.search.array_file import Numbers
from toolfold.search.document import Document, _parameters_of


class ToolRow(Struct, frozen=True):
    id: str
    name: str
    description: str | None = ""
    parameters: Any = None
    category: list[Any] | str | None = None
    server: str | None = ""


class Query(Struct, frozen=True):
    qid: str
    query: str
    relevant: list[str]
    split: str = ""


class RetrievalSet(Struct, frozen=True):
    name: str
    rows: list[ToolRow]
    queries: list[Query]

    def documents(self) -> list[Document]:
        return [document_of(row) for row in self.rows]


def document_of(row: ToolRow) -> Document:
    category = row.category if isinstance(row.category, list) else [row.category or ""]
    steps = tuple(str(step) for step in category if step)
    return Document(
        tool_id=row.id,
        name=row.name,
        description=row.description or "",
        parameters=_parameters_of(row.parameters),
        server=row.server or "",
        category=steps,
        paths=(steps,) if steps else (),
    )


def find_sets(data: Path) -> list[Path]:
    """The folder itself if it is a set, else the sets in it."""
    if (data / "tools.jsonl").is_file():
        return [data]
    found = sorted(file.parent for file in data.glob("*/tools.jsonl"))
    if not found:
        raise ConfigError(
            f"no retrieval set in {data}",
            next_action="name a folder with tools.jsonl and queries.jsonl, or a folder of such folders",
        )
    return found


def read_set(folder: Path, *, split: str = "test") -> RetrievalSet:
    """Tools, and the queries of a split: all of them where the set has no such split."""
    rows = _lines(folder / "tools.jsonl", ToolRow)
    queries = _lines(folder / "queries.jsonl", Query)
    chosen = [query for query in queries if query.split == split]
    return RetrievalSet(folder.name, rows, chosen or queries)


def _lines(file: Path, kind: type[Any]) -> list[Any]:
    decoder = msgspec.json.Decoder(kind)
    with file.open("rb") as lines:
        return [decoder.decode(line) for line in lines if line.strip()]


def sampled(queries: Sequence[Query], count: int | None, seed: int) -> list[Query]:
    if count is None or len(queries) <= count:
        return list(queries)
    return random.Random(seed).sample(list(queries), count)


def ndcg(ranked: Sequence[str], relevant: Iterable[str], depth: int = 10) -> float:
    wanted = set(relevant)
    gained = sum(1 / math.log2(at + 2) for at, tool in enumerate(ranked[:depth]) if tool in wanted)
    best = sum(1 / math.log2(at + 2) for at in range(min(depth, len(wanted))))
    return gained / best if best else 0.0


def measures(results: Sequence[tuple[Sequence[str], Sequence[str]]]) -> dict[str, float]:
    """Means over `(ranked, relevant)` pairs. `first_hit`: how often the first tool is a right one."""
    found: dict[str, float] = {"ndcg_at_10": _mean(ndcg(ranked, relevant) for ranked, relevant in results)}
    for depth in (1, 5, 10):
        shares = (len(set(ranked[:depth]) & set(relevant)) / max(len(set(relevant)), 1) for ranked, relevant in results)
        found[f"recall_at_{depth}"] = _mean(shares)
    found["first_hit"] = _mean(float(bool(ranked) and ranked[0] in relevant) for ranked, relevant in results)
    return found


def _mean(values: Iterable[float]) -> float:
    kept = list(values)
    return round(sum(kept) / len(kept), 4) if kept else 0.0


def auroc(positive: Sequence[float], negative: Sequence[float]) -> float:
    """How often a positive stands above a negative; ties count half."""
    both = np.concatenate([np.asarray(positive, dtype=np.float64), np.asarray(negative, dtype=np.float64)])
    _, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[inverse]
    wins = ranks[: len(positive)].sum() - len(positive) * (len(positive) + 1) / 2
    return float(wins / (len(positive) * len(negative)))


class PeerBM25:
    """FastMCP's search formula: plain BM25 over name, description and top-level parameters, words not stemmed."""

    saturation, length = 1.5, 0.75

    def __init__(self, rows: Sequence[ToolRow]) -> None:
        counts = [Counter(peer_words(peer_text(row))) for row in rows]
        lengths = np.array([sum(count.values()) for count in counts], dtype=np.float64)
        mean = float(lengths.mean()) if len(rows) else 1.0
        self._damping = self.saturation * (1 - self.length + self.length * lengths / (mean or 1.0))
        holders: dict[str, list[tuple[int, int]]] = {}
        for at, count in enumerate(counts):
            for word, times in count.items():
                holders.setdefault(word, []).append((at, times))
        self._postings = {word: np.array(pairs, dtype=np.int64) for word, pairs in holders.items()}
        self._ids = [row.id for row in rows]

    def scores(self, query: str) -> Numbers:
        """A word said twice counts twice, as there."""
        found = np.zeros(len(self._ids))
        for word in peer_words(query):
            pairs = self._postings.get(word)
            if pairs is not None:
                at, times = pairs[:, 0], pairs[:, 1]
                worth = math.log((len(self._ids) - len(pairs) + 0.5) / (len(pairs) + 0.5) + 1.0)
                found[at] += worth * times * (self.saturation + 1) / (times + self._damping[at])
        return found

    def others(self, ids: Iterable[str]) -> list[int]:
        """The places of all tools but these."""
        without = set(ids)
        return [at for at, tool_id in enumerate(self._ids) if tool_id not in without]

    def ranked(self, query: str, limit: int) -> list[str]:
        scores = self.scores(query)
        order = np.argsort(-scores, kind="stable")[:limit]
        return [self._ids[at] for at in order.tolist() if scores[at] > 0]


def peer_text(row: ToolRow) -> str:
    properties = row.parameters.get("properties") if isinstance(row.parameters, dict) else None
    parts = [row.name, row.description or ""]
    for name, inner in (properties or {}).items():
        parts += [name, str(inner.get("description") or "") if isinstance(inner, dict) else ""]
    return " ".join(parts)


def peer_words(text: str) -> list[str]:
    return re.findall(r"[^\W_]{2,}", unicodedata.normalize("NFKC", text).casefold())
