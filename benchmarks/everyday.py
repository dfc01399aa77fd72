"""Requests in people's own words, and queries as models write them, against recorded servers kept out of training.

A split by server: version 2 of the encoder and the confidence were made without the servers named in `HELD_OUT` and
without their requests; only those are asked for here. (Version 1, where it began, had read their listings.) Catalogues
of 3 and of 10 servers, the right one among them, and of all. Besides requests whose tool is there: near misses (what a
user of the product may ask and no tool does), requests for services that are not there, and far ones. Whether the hints
of a refusal hold the tool is counted on its own.

`data` has `servers/NAME.json` and `everyday/{requests,near_misses}.jsonl`; requests for other services come from the
servers that we made up ourselves (`training/everyday`), of which the held-out ones are asked for.
"""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.abstain import reliability
from benchmarks.measurement import environment
from benchmarks.recorded import recorded_servers
from benchmarks.retrieval_sets import PeerBM25, ToolRow, auroc
from toolfold.errors import ConfigError
from toolfold.search.array_file import Floats
from toolfold.search.document import Document, document_of
from toolfold.search.encoder import Encoder
from toolfold.search.index import SearchIndex

HELD_OUT = frozenset(
    (
        "aws-kb-retrieval",
        "awslabs-aws-dataprocessing",
        "awslabs-aws-iac",
        "awslabs-aws-network",
        "awslabs-cloudtrail",
        "awslabs-cloudwatch",
        "awslabs-timestream-for-influxdb",
        "dbt",
        "grafana",
        "kagi",
        "memory",
        "n8n",
        "neo4j-data-modeling",
        "postman-full",
        "sentry",
        "tavily",
        "xero",
    )
)
OURS = Path(__file__).resolve().parent.parent / "training" / "everyday"
DEPTH = 10
HINTS = 5
SIZES = (3, 10, 0)
"""Servers in a catalogue; 0 is all."""
SEED = 16


class Request(msgspec.Struct, frozen=True):
    query: str
    relevant: tuple[str, ...]
    """None: it cannot be served."""
    server: str
    """The one it is asked of; empty where it is no server's."""
    kind: str
    """`there`; or what cannot be served: `near-miss`, `other` (another service) or `far`."""
    by_model: bool = False


class Memory(Encoder):
    """Embeds each text once, however many catalogues it stands in."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self.record, self.folder = encoder, encoder.record, encoder.folder
        self._seen: dict[str, Floats] = {}

    def queries(self, texts: Sequence[str]) -> Floats:
        return self._encoder.queries(texts)

    def tools(self, texts: Sequence[str]) -> Floats:
        for text in texts:
            if text not in self._seen:
                self._seen[text] = self._encoder.tools([text])
        return np.concatenate([self._seen[text] for text in texts])

    def load(self) -> None:
        self._encoder.load()


def run(data: Path | None, *, encoder: Encoder | None = None, sample: int | None = None) -> dict[str, Any]:
    """All figures by asker and by size of the catalogue. `sample`: so many requests of each kind."""
    if data is None:
        raise ConfigError(
            "bench everyday measures on recorded servers",
            next_action="give --data a folder with servers/NAME.json and everyday/requests.jsonl, near_misses.jsonl",
        )
    memory = Memory(encoder or Encoder())
    tools = [document_of(tool) for tool in recorded_servers(data / "servers").tools]
    requests = sampled(held_out_requests(data), sample)
    found: dict[str, Any] = {}
    for size in SIZES:
        answered = list(asked(requests, tools, memory, size))
        found[f"{size or 'all'} servers"] = {
            asker: figures([one for one in answered if one[0].by_model == (asker == "model")])
            for asker in ("raw", "model")
        }
    found["all servers"]["fastmcp_formula"] = peer_figures(data, requests)
    facts = {**environment("numpy", "onnxruntime"), "encoder": memory.record.key}
    return {"name": "everyday", "metrics": found, "environment": facts}


def held_out_requests(data: Path) -> list[Request]:
    """What is asked of the held-out servers, and what nobody there can serve."""
    found = [
        Request(row["query"], tuple(row["relevant"]), server, "there")
        for row in _lines(data / "everyday" / "requests.jsonl")
        if (server := row["relevant"][0].partition(".")[0]) in HELD_OUT and row["kind"] != "planner"
    ]
    found += [
        Request(row["query"], (), row["server"], row["kind"])
        for row in _lines(data / "everyday" / "near_misses.jsonl")
        if row["server"] in HELD_OUT or (row["kind"] == "far" and not row["server"])
    ]
    for server in our_servers("bench"):
        found += [Request(tool["requests"][0], (), "", "other") for tool in server["tools"]]
    found += [
        Request(row["query"], tuple(row["relevant"]), row["server"], row["kind"], by_model=True)
        for row in written_queries("bench")
    ]
    return found


def our_servers(split: str) -> list[dict[str, Any]]:
    """Servers, tools and requests that we made up: those of a split, or for training."""
    rows = [row for file in sorted(OURS.glob("servers-*.jsonl")) for row in _lines(file)]
    return [row for row in rows if row.get("split", "training") == split]


def written_queries(use: str) -> list[dict[str, Any]]:
    """What a strong model searched for, given a request and the search operations' descriptions, but no tools."""
    return [row for row in _lines(OURS / "queries.jsonl") if row["use"] == use]


def sampled(requests: Sequence[Request], count: int | None) -> list[Request]:
    if count is None:
        return list(requests)
    groups: dict[tuple[str, bool], list[Request]] = {}
    for one in requests:
        groups.setdefault((one.kind, one.by_model), []).append(one)
    chance = random.Random(SEED)
    return [one for group in groups.values() for one in chance.sample(group, min(count, len(group)))]


Answer = tuple[Request, list[set[str]], list[float], bool]
"""The request, the ids of each hit (a tool of several servers has several), confidences, whether any is good enough."""


def asked(requests: Sequence[Request], tools: Sequence[Document], encoder: Encoder, size: int) -> Iterator[Answer]:
    """Every request against a catalogue of its own server and others."""
    others = sorted({tool.server for tool in tools} - HELD_OUT)
    by_server: dict[str, list[Request]] = {}
    for one in requests:
        by_server.setdefault(one.server, []).append(one)
    for server, group in by_server.items():
        chance = random.Random(f"{SEED}{server}{size}")
        chosen = {server, *chance.sample(others, size - bool(server))} if size else None
        index = SearchIndex.open(None, encoder=encoder)
        index.sync(tool for tool in tools if chosen is None or tool.server in chosen)
        for one in group:
            hits = index.search(one.query, limit=DEPTH)
            yield (
                one,
                [{hit.tool_id, *hit.same_as} for hit in hits],
                [hit.confidence for hit in hits],
                any(hit.fits for hit in hits),
            )


def figures(answers: Sequence[Answer]) -> dict[str, Any]:
    there = [one for one in answers if one[0].kind == "there"]
    away = {kind: [one for one in answers if one[0].kind == kind] for kind in ("far", "other", "near-miss")}
    first = [confidences[0] for _, _, confidences, _ in there]
    refused = [one for one in there if not one[3]]
    return {
        "requests": len(there),
        "first": _share(_holds(one, 1) for one in there),
        "among_5": _share(_holds(one, 5) for one in there),
        "among_10": _share(_holds(one, 10) for one in there),
        "false_refusals": _share(not one[3] for one in there),
        "hints_hold_it": _share(_holds(one, HINTS) for one in refused),
        "refused": {kind: [_share(not one[3] for one in rows), len(rows)] for kind, rows in away.items() if rows},
        "auroc": {
            kind: round(auroc(first, [one[2][0] for one in rows]), 3) for kind, rows in away.items() if rows and first
        },
        "reliability": reliability([(one[2][0], _holds(one, 1)) for one in there]),
    }


def _holds(answer: Answer, count: int) -> bool:
    """Whether a right tool is among the first so many hits."""
    return any(ids & set(answer[0].relevant) for ids in answer[1][:count])


def peer_figures(data: Path, requests: Sequence[Request]) -> dict[str, Any]:
    """FastMCP's formula over all tools."""
    tools = recorded_servers(data / "servers").tools
    rows = [
        ToolRow(tool.tool_id, tool.name, tool.definition.description, msgspec.json.decode(tool.definition.input_schema))
        for tool in tools
    ]
    peer = PeerBM25(rows)
    found = {}
    for asker, by_model in (("raw", False), ("model", True)):
        there = [one for one in requests if one.kind == "there" and one.by_model == by_model]
        ranked = [peer.ranked(one.query, 5) for one in there]
        found[asker] = {
            "first": _share(ids[:1] != [] and ids[0] in one.relevant for one, ids in zip(there, ranked, strict=True)),
            "among_5": _share(bool(set(ids) & set(one.relevant)) for one, ids in zip(there, ranked, strict=True)),
        }
    return found


def _share(kept: Any) -> float:
    values = [float(one) for one in kept]
    return round(sum(values) / len(values), 3) if values else 0.0


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
