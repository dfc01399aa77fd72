"""Bring everything a training run needs into one file that travels to the machine with the accelerator.

    prepare.py DATA GENERATED OUT

What goes in: the tools' texts as the product embeds them, training requests, generated requests, the nearest tools by
words (hard negatives), and for the test requests the lexical scores of all tools, so that the hybrid can be measured
there. It imports the product's own text and word rules, so both sides agree.
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
from data import ALL_SETS, TRAINING_SETS, Request, Tool, plain, read_set, tool_document, training_corpus
from scipy import sparse

from toolfold.search.document import tool_text, weighted_terms
from toolfold.search.ranker import LENGTH, SATURATION, _idf
from toolfold.words import query_terms, split_identifier

QUERIES = 400
SEED = 20
NEAR = 60


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


def test_requests(requests: list[Request]) -> list[Request]:
    chosen = [one for one in requests if one.split == "test"]
    random.Random(SEED).shuffle(chosen)
    return chosen[:QUERIES]


def write_tests(folder: Path, arrays: dict[str, Any]) -> dict[str, Any]:
    tests: dict[str, Any] = {}
    for name in ALL_SETS:
        corpus = read_set(folder, name)
        tools = list(corpus.tools.values())
        place = {tool.key: row for row, tool in enumerate(tools)}
        chosen = test_requests(corpus.requests)
        arrays[f"lexical_{name}"] = Words(tools).scores([one.text for one in chosen]).astype(np.float16)
        tests[name] = {
            "tools": [tool_text(tool_document(tool))[:1200] for tool in tools],
            "queries": [one.text for one in chosen],
            "relevant": [sorted({place[key] for key in one.relevant if key in place}) for one in chosen],
        }
    return tests


def near(words: Words, texts: list[str]) -> Any:
    """The rows of the nearest tools by words, best first."""
    found = []
    for start in range(0, len(texts), 1000):
        scores = words.scores(texts[start : start + 1000])
        part = np.argpartition(-scores, NEAR, axis=1)[:, :NEAR]
        order = np.argsort(-np.take_along_axis(scores, part, 1), axis=1)
        found.append(np.take_along_axis(part, order, 1).astype(np.int16))
    return np.concatenate(found)


def main(data: str, generated: str, out: str) -> None:
    folder = Path(data)
    corpus = training_corpus(folder)
    tools = list(corpus.tools.values())
    place = {tool.key: row for row, tool in enumerate(tools)}
    requests: list[list[Any]] = [
        [one.source, one.text, [place[key] for key in one.relevant]] for one in corpus.requests
    ]
    banned = {plain(one.text) for name in ALL_SETS for one in read_set(folder, name).requests if one.split == "test"}
    for line in Path(generated).read_text().splitlines():
        item = json.loads(line)
        if plain(item["text"]) not in banned and all(key in place for key in item["tools"]):
            requests.append(["generated", item["text"], [place[key] for key in item["tools"]]])
    arrays: dict[str, Any] = {"near": near(Words(tools), [str(one[1]) for one in requests])}
    kept = {name: [place[key] for key in training_corpus(folder, without=name).tools] for name in TRAINING_SETS}
    bundle = {
        "tools": [
            {
                "source": tool.source,
                "group": tool.group,
                "name": " ".join(split_identifier(tool.name)).lower(),
                "description": tool.description[:1200],
                "text": tool_text(tool_document(tool))[:1200],
            }
            for tool in tools
        ],
        "requests": requests,
        "kept_without": kept,
        "tests": write_tests(folder, arrays),
    }
    target = Path(out)
    target.mkdir(parents=True, exist_ok=True)
    (target / "bundle.json.gz").write_bytes(gzip.compress(json.dumps(bundle).encode(), 6))
    np.savez_compressed(target / "arrays.npz", **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:4])
