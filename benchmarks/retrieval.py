"""How well search finds the right tool: our ranking beside words alone and beside FastMCP's formula, in one run.

`--data` names a retrieval set or a folder of them; `--ranked` also writes what was found for each query. `cache` keeps
the indexes, so that a second run embeds nothing.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.measurement import cpu_time, environment, percentile
from benchmarks.retrieval_sets import PeerBM25, Query, RetrievalSet, find_sets, measures, read_set, sampled
from toolfold.search.encoder import Encoder
from toolfold.search.index import SearchIndex
from toolfold.types import Hit

DEPTH = 20
SAMPLE = 400

Ranked = Callable[[str], list[str]]


def run(
    data: Path,
    *,
    ranked: Path | None = None,
    sample: int | None = SAMPLE,
    seed: int = 0,
    cache: Path | None = None,
    learned: int = 0,
    encoder: Encoder | None = None,
) -> dict[str, Any]:
    """Measures every set found. With `ranked`, all queries of the split are asked and none left out.

    `learned`: first so many requests of the set's train split are told to learning from use, with their tools.
    """
    encoder = encoder or Encoder()
    sets: dict[str, Any] = {}
    lines: list[bytes] = []
    for folder in find_sets(data):
        chosen = read_set(folder)
        queries = sampled(chosen.queries, None if ranked else sample, seed)
        sets[folder.name], found = _measure(chosen, queries, encoder, cache, taught=_lessons(folder, learned, seed))
        lines += [_line(query, hits) for query, hits in zip(queries, found, strict=True)]
    if ranked is not None:
        ranked.write_bytes(b"".join(lines))
    return {
        "name": "retrieval",
        "metrics": {"sets": sets, "mean": _means(list(sets.values()))},
        "environment": {**environment("numpy", "onnxruntime"), "encoder": encoder.record.key, "seed": seed},
    }


def _ids(hits: Sequence[Hit]) -> list[str]:
    """A tool of several servers is one hit: here each of its ids counts."""
    return [tool_id for hit in hits for tool_id in (hit.tool_id, *hit.same_as)]


def _line(query: Query, hits: Sequence[Hit]) -> bytes:
    ids = [(tool_id, hit.confidence) for hit in hits for tool_id in (hit.tool_id, *hit.same_as)]
    found = {
        "qid": query.qid,
        "ranked": [tool_id for tool_id, _ in ids],
        "confidence": [round(confidence, 6) for _, confidence in ids],
    }
    return msgspec.json.encode(found) + b"\n"


def _measure(
    chosen: RetrievalSet, queries: Sequence[Query], encoder: Encoder, cache: Path | None, *, taught: Sequence[Query]
) -> tuple[dict[str, Any], list[list[Hit]]]:
    with tempfile.TemporaryDirectory(prefix="toolfold-bench-") as scratch:
        index = SearchIndex.open((cache or Path(scratch)) / chosen.name, encoder=encoder)
        with cpu_time() as built:
            done = index.sync(chosen.documents())
        index.warm()
        if taught:
            index = SearchIndex.open(None, encoder=encoder, learn=True)
            index.sync(chosen.documents())
            for lesson in taught:
                index.learn(lesson.query, lesson.relevant[0])
        hits: list[list[Hit]] = []
        spent: list[float] = []
        for query in queries:
            with cpu_time() as asked:
                hits.append(index.search(query.query, limit=DEPTH))
            spent.append(asked.seconds * 1000)
        peer = PeerBM25(chosen.rows)
        figures: dict[str, Any] = {
            "tools": len(chosen.rows),
            "queries": len(queries),
            "learned_from": len(taught),
            "embedded": done.embedded,
            "build_cpu_s": round(built.seconds, 2),
            "query_cpu_ms_p50": round(percentile(spent, 0.5), 2),
            "query_cpu_ms_p99": round(percentile(spent, 0.99), 2),
            "toolfold": measures(_pairs(queries, [_ids(found) for found in hits])),
            "words_alone": measures(_pairs(queries, [index.by_words(query.query, limit=DEPTH) for query in queries])),
            "fastmcp_formula": measures(_pairs(queries, [peer.ranked(query.query, DEPTH) for query in queries])),
        }
    return figures, hits


def _lessons(folder: Path, count: int, seed: int) -> list[Query]:
    train = [query for query in read_set(folder, split="train").queries if query.split == "train" and query.relevant]
    return sampled(train, count, seed) if count else []


def _pairs(queries: Sequence[Query], ranked: Sequence[Sequence[str]]) -> list[tuple[Sequence[str], Sequence[str]]]:
    return [(found, query.relevant) for query, found in zip(queries, ranked, strict=True)]


def _means(sets: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Each set counts the same, however many queries it has."""
    found: dict[str, dict[str, float]] = {}
    for way in ("toolfold", "words_alone", "fastmcp_formula"):
        names = sets[0][way] if sets else {}
        found[way] = {name: round(sum(one[way][name] for one in sets) / len(sets), 4) for name in names}
    return found
