"""Bring everything a training run needs into one folder that travels to the machine with the accelerator.

    prepare.py DATA OUT

What goes in: the tools' texts as the product embeds them, the training requests, for each the nearest tools by words
(hard negatives), and the tests: requests with the lexical scores of all tools, so that the mix of words and meaning can
be measured there. It imports the product's own text and word rules, so both sides agree.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from data import (
    ALL_SETS,
    PLANNER,
    Corpus,
    Request,
    Tool,
    read_ours,
    read_recorded,
    read_set,
    tool_document,
    training_corpus,
)
from scipy import sparse

from toolfold.search.document import tool_text, weighted_terms
from toolfold.search.ranker import LENGTH, SATURATION, _idf
from toolfold.words import query_terms, split_identifier

QUERIES = 400
"""Test requests of a public set."""
SEED = 20
NEAR = 60
MAX_TEXT = 1200
"""Characters of a tool that travel: far more than the tokens that are read."""


class Words:
    """Weighted BM25 over a list of tools, as one sparse matrix."""

    def __init__(self, tools: list[Tool]) -> None:
        counts = [weighted_terms(tool_document(tool)) for tool in tools]
        self.index = {term: row for row, term in enumerate(sorted({term for one in counts for term in one}))}
        holders = Counter(term for one in counts for term in one)
        lengths = np.array([sum(one.values()) for one in counts])
        damping = SATURATION * (1 - LENGTH + LENGTH * lengths / lengths.mean())
        rows, columns, values = [], [], []
        for column, one in enumerate(counts):
            for term, count in one.items():
                rows.append(self.index[term])
                columns.append(column)
                values.append(_idf(len(tools), holders[term]) * (SATURATION + 1) * count / (count + damping[column]))
        shape = (len(self.index), len(tools))
        self.matrix = sparse.csr_matrix((values, (rows, columns)), shape=shape, dtype=np.float32)

    def scores(self, texts: list[str]) -> Any:
        """A row of scores for each text."""
        rows, columns = [], []
        for row, text in enumerate(texts):
            known = [self.index[term] for term in query_terms(text) if term in self.index]
            rows += [row] * len(known)
            columns += known
        ones = np.ones(len(rows), np.float32)
        asked = sparse.csr_matrix((ones, (rows, columns)), shape=(len(texts), len(self.index)))
        return (asked @ self.matrix).toarray()

    def nearest(self, texts: list[str]) -> Any:
        """The rows of the nearest tools, best first."""
        found = []
        for start in range(0, len(texts), 1000):
            scores = self.scores(texts[start : start + 1000])
            part = np.argpartition(-scores, NEAR, axis=1)[:, :NEAR]
            order = np.argsort(-np.take_along_axis(scores, part, 1), axis=1)
            found.append(np.take_along_axis(part, order, 1).astype(np.int16))
        return np.concatenate(found)


def text_of(tool: Tool) -> str:
    """What the product embeds."""
    return tool_text(tool_document(tool))[:MAX_TEXT]


def tests(folder: Path) -> dict[str, tuple[list[Tool], list[Request]]]:
    """The public sets; the held-out servers among all recorded ones; our own held-out servers beside all those."""
    found = {}
    for name in ALL_SETS:
        corpus = read_set(folder, name)
        chosen = [one for one in corpus.requests if one.split == "test"]
        random.Random(SEED).shuffle(chosen)
        found[name] = (list(corpus.tools.values()), chosen[:QUERIES])
    recorded = read_recorded(folder)
    ours = Corpus()
    for part in (read_ours("calibration"), read_ours("bench")):
        ours.add(part.tools.values())
        ours.requests += part.requests
    tools = list(recorded.tools.values())
    held_out = [one for one in recorded.requests if one.split == "test"]
    for name, pool, requests in (("", tools, held_out), ("ours_", [*tools, *ours.tools.values()], ours.requests)):
        found[f"{name}everyday"] = (pool, [one for one in requests if one.kind != PLANNER])
        found[f"{name}planner"] = (pool, [one for one in requests if one.kind == PLANNER])
    return found


def main(data: str, out: str) -> None:
    folder, target = Path(data), Path(out)
    corpus = training_corpus(folder)
    tools = list(corpus.tools.values())
    place = {tool.key: row for row, tool in enumerate(tools)}
    arrays = {"near": Words(tools).nearest([one.text for one in corpus.requests])}
    bundle: dict[str, Any] = {
        "tools": [
            {
                "source": tool.source,
                "group": tool.group,
                "name": " ".join(split_identifier(tool.name)).lower(),
                "description": tool.description[:MAX_TEXT],
                "text": text_of(tool),
            }
            for tool in tools
        ],
        "requests": [
            [one.kind, one.text, [place[key] for key in one.relevant if key in place]] for one in corpus.requests
        ],
        "tests": {},
    }
    for name, (pool, requests) in tests(folder).items():
        rows = {tool.key: row for row, tool in enumerate(pool)}
        arrays[f"lexical_{name}"] = Words(pool).scores([one.text for one in requests]).astype(np.float16)
        bundle["tests"][name] = {
            "tools": [text_of(tool) for tool in pool],
            "queries": [one.text for one in requests],
            "relevant": [sorted({rows[key] for key in one.relevant if key in rows}) for one in requests],
        }
        print(name, len(requests), "requests,", len(pool), "tools")
    target.mkdir(parents=True, exist_ok=True)
    (target / "bundle.json.gz").write_bytes(gzip.compress(json.dumps(bundle).encode(), 6))
    np.savez_compressed(target / "arrays.npz", **arrays)
    print(len(tools), "tools,", Counter(one.kind for one in corpus.requests))


if __name__ == "__main__":
    main(*sys.argv[1:3])
