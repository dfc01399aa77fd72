"""Whether search knows when nothing fits, by two protocols, beside FastMCP's score.

(a) The right tool is taken out of the catalogue, near ones stay: how well the confidence of the first hit tells the two
cases apart (AUROC). (b) Requests of another world than the catalogue's: consumer requests against cloud and database
servers. The bar stands where 5 % of the requests whose tool is there are refused; the figure is how many of the others
are refused too. Both also at the threshold that ships.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measurement import environment
from benchmarks.recorded import recorded_servers
from benchmarks.retrieval_sets import PeerBM25, Query, ToolRow, auroc, find_sets, read_set, sampled
from toolfold.search.document import document_of
from toolfold.search.encoder import Encoder
from toolfold.search.index import SearchIndex

SAMPLE = 400
FALSE_REFUSALS = 0.05
BINS = 10

WORLD = (
    "awslabs-aws-dataprocessing awslabs-aws-iac awslabs-aws-network awslabs-cloudtrail awslabs-cloudwatch "
    "awslabs-documentdb awslabs-dynamodb awslabs-eks awslabs-elasticache awslabs-redshift "
    "awslabs-timestream-for-influxdb clickhouse couchbase dbt elasticsearch-cr kubectl kubernetes mcp-alchemy "
    "motherduck neo4j-aura oci-api postgres redis sqlite supabase"
)
"""The servers of clouds and databases among the recorded ones: the other world."""


def run(
    data: Path,
    *,
    servers: Path,
    sample: int = SAMPLE,
    seed: int = 0,
    cache: Path | None = None,
    encoder: Encoder | None = None,
) -> dict[str, Any]:
    """`data` holds retrieval sets, `servers` recorded servers."""
    encoder = encoder or Encoder()
    sets: dict[str, Any] = {}
    known: list[tuple[float, bool]] = []
    with tempfile.TemporaryDirectory(prefix="toolfold-bench-") as scratch:
        keep = cache or Path(scratch)
        other, other_peer = _other_world(servers, keep, encoder)
        for folder in find_sets(data):
            chosen = read_set(folder)
            queries = sampled(chosen.queries, sample, seed)
            index = SearchIndex.open(keep / folder.name, encoder=encoder)
            index.sync(chosen.documents())
            asked = _Asked(index, PeerBM25(chosen.rows), queries)
            known += asked.known
            outside = [_first(other, query.query) for query in queries]
            away = [confidence for confidence, _ in outside]
            away_peer = [float(other_peer.scores(query.query).max()) for query in queries]
            sets[folder.name] = {
                "queries": len(queries),
                "a_auroc": round(auroc(asked.there, asked.gone), 4),
                "a_auroc_fastmcp_score": round(auroc(asked.peer_there, asked.peer_gone), 4),
                "b_refused_at_5_percent_false": _refused(asked.there, away),
                "b_refused_at_5_percent_false_of_found": _refused(asked.found, away),
                "b_refused_fastmcp_score": _refused(asked.peer_there, away_peer),
                "b_refused_fastmcp_as_it_is": _share([score <= 0 for score in away_peer]),
                "b_refused_as_shipped": _share([not fits for _, fits in outside]),
                "false_refusals_as_shipped": _share(asked.refused),
                "false_refusals_as_shipped_of_found": _share(asked.refused_of_found),
            }
    metrics = {"sets": sets, "mean": _means(sets), "reliability": reliability(known)}
    facts = {**environment("numpy", "onnxruntime"), "encoder": encoder.record.key, "seed": seed}
    return {"name": "abstain", "metrics": metrics, "environment": facts}


class _Asked:
    """Confidences of the first hit: with the right tools there, and with them gone."""

    def __init__(self, index: SearchIndex, peer: PeerBM25, queries: Sequence[Query]) -> None:
        self.there: list[float] = []
        self.found: list[float] = []
        """Of the requests whose right tool is among the first ten."""
        self.refused: list[bool] = []
        self.refused_of_found: list[bool] = []
        self.gone: list[float] = []
        self.peer_there: list[float] = []
        self.peer_gone: list[float] = []
        self.known: list[tuple[float, bool]] = []
        for query in queries:
            hits = index.search(query.query, limit=10)
            self.there.append(hits[0].confidence if hits else 0.0)
            self.refused.append(not any(hit.fits for hit in hits))
            right = [bool({hit.tool_id, *hit.same_as} & set(query.relevant)) for hit in hits]
            if any(right):
                self.found.append(self.there[-1])
                self.refused_of_found.append(self.refused[-1])
            self.known += [(hit.confidence, fit) for hit, fit in zip(hits[:3], right, strict=False)]
            self.gone.append(_first(index, query.query, without=query.relevant)[0])
            scores = peer.scores(query.query)
            self.peer_there.append(float(scores.max()))
            self.peer_gone.append(float(scores[peer.others(query.relevant)].max(initial=0.0)))


def _other_world(servers: Path, keep: Path, encoder: Encoder) -> tuple[SearchIndex, PeerBM25]:
    wanted = set(WORLD.split())
    tools = [tool for tool in recorded_servers(servers).tools if tool.server in wanted]
    documents = [document_of(tool) for tool in tools]
    index = SearchIndex.open(keep / "other-world", encoder=encoder)
    index.sync(documents)
    rows = [
        ToolRow(
            one.tool_id, one.name, one.description, {"properties": {a: {"description": b} for a, b in one.parameters}}
        )
        for one in documents
    ]
    return index, PeerBM25(rows)


def _first(index: SearchIndex, query: str, *, without: Sequence[str] = ()) -> tuple[float, bool]:
    """The confidence of the first hit, and whether that is enough."""
    hits = index.search(query, without=without, limit=1)
    return hits[0].confidence if hits else 0.0, any(hit.fits for hit in hits)


def _refused(there: Sequence[float], away: Sequence[float]) -> float:
    """How many of `away` lie below the bar under which only 5 % of `there` lie."""
    bar = float(np.quantile(np.asarray(there), FALSE_REFUSALS)) if there else 0.0
    return _share([value < bar for value in away])


def _share(found: Sequence[bool]) -> float:
    return round(sum(found) / len(found), 4) if found else 0.0


def _means(sets: dict[str, Any]) -> dict[str, float]:
    names = [name for name in next(iter(sets.values())) if name != "queries"] if sets else []
    return {name: round(sum(one[name] for one in sets.values()) / len(sets), 4) for name in names}


def reliability(known: Sequence[tuple[float, bool]]) -> list[dict[str, float]]:
    """Of the hits with about this confidence, how many were right. Pooled over the sets, first three hits each."""
    found = []
    for at in range(BINS):
        inside = [pair for pair in known if min(int(pair[0] * BINS), BINS - 1) == at]
        if inside:
            said = sum(confidence for confidence, _ in inside) / len(inside)
            found.append({"said": round(said, 3), "right": _share([right for _, right in inside]), "hits": len(inside)})
    return found
