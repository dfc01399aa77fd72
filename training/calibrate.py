"""Fits the confidence of search and writes `src/toolfold/search/calibration.json`.

    python training/calibrate.py --data RETRIEVAL_SETS --servers RECORDED_SERVERS [--cache DIR] [--write]

Requests with known answers teach what a fitting tool looks like. The same requests with their tools taken away, and
requests of another world than the catalogue's, teach what none looks like. Test requests of the benches are never used:
train splits where a set has one, else requests outside the benches' sample. Figures are printed for each set with the
model fitted on the others; what is written is fitted on all.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

import numpy as np

from toolfold.bench.abstain import WORLD, reliability
from toolfold.bench.common import recorded_servers
from toolfold.bench.retrieval_common import Query, auroc, find_sets, read_set, sampled
from toolfold.search import cohort
from toolfold.search.calibrate import FILE
from toolfold.search.encoder import Encoder
from toolfold.search.index import SearchIndex
from toolfold.search.text import document

NAMES = ("near", "apart", "alone", "ours")
QUERIES = 400
BENCH_SAMPLES = (200, 400)
"""Of `abstain` and of `retrieval`; the smaller is not always a part of the larger."""
HITS = 3
GONE_WEIGHT = 0.5
AWAY_WEIGHT = 0.5
PENALTY = 1e-3
FALSE_REFUSALS = 0.05

Rows = list[tuple[list[float], bool, int]]
"""Features of a hit, whether it was right, its place."""


def requests(folder: Path) -> list[Query]:
    """Requests that no bench reports on."""
    train = read_set(folder, split="train").queries
    if any(query.split == "train" for query in train):
        return sampled(train, QUERIES, 1)
    tested = read_set(folder).queries
    used = {query.qid for count in BENCH_SAMPLES for query in sampled(tested, count, 0)}
    return sampled([query for query in train if query.qid not in used], QUERIES, 1)


def rows_of(index: SearchIndex, query: Query, *, without: list[str], right: bool) -> Rows:
    found = index.explained(query.query, without=without, limit=HITS)
    return [
        ([seen[name] for name in NAMES], right and hit.tool_id in query.relevant, at)
        for at, (hit, seen) in enumerate(found)
    ]


def collect(data: Path, servers: Path, cache: Path) -> dict[str, dict[str, list[Rows]]]:
    """For each set: hits with the tools there, with them gone, and in the other world."""
    encoder = Encoder()
    other = SearchIndex.open(cache / "other-world", encoder=encoder)
    world = set(WORLD.split())
    other.sync(document(tool) for tool in recorded_servers(servers).tools if tool.server in world)
    found = {}
    for folder in find_sets(data):
        index = SearchIndex.open(cache / folder.name, encoder=encoder)
        index.sync(read_set(folder).documents())
        asked = requests(folder)
        found[folder.name] = {
            "there": [rows_of(index, query, without=[], right=True) for query in asked],
            "gone": [rows_of(index, query, without=query.relevant, right=False) for query in asked],
            "away": [rows_of(other, query, without=[], right=False) for query in asked],
        }
    return found


def fit(cases: list[dict[str, list[Rows]]]) -> np.ndarray:
    """Logistic regression by Newton's method; every set counts the same, and the first hit more than the third."""
    inputs, answers, weights = [], [], []
    for case in cases:
        for kind, weight in (("there", 1.0), ("gone", GONE_WEIGHT), ("away", AWAY_WEIGHT)):
            for rows in case[kind]:
                for features, right, at in rows:
                    inputs.append([*features, 1.0])
                    answers.append(float(right))
                    weights.append(weight / (at + 1) / len(case[kind]))
    x, y, w = np.array(inputs), np.array(answers), np.array(weights)
    w /= w.mean()
    found = np.zeros(x.shape[1])
    for _ in range(50):
        said = 1 / (1 + np.exp(-x @ found))
        slope = x.T @ (w * (said - y)) / len(y) + PENALTY * found
        bend = (x * (w * said * (1 - said))[:, None]).T @ x / len(y) + PENALTY * np.eye(len(found))
        step = np.linalg.solve(bend, slope)
        found -= step
        if np.abs(step).max() < 1e-9:
            break
    return found


def said(model: np.ndarray, rows: Rows) -> float:
    return float(1 / (1 + np.exp(-(np.array([*rows[0][0], 1.0]) @ model)))) if rows else 0.0


def figures(model: np.ndarray, case: dict[str, list[Rows]]) -> dict[str, float]:
    there, gone, away = ([said(model, rows) for rows in case[kind]] for kind in ("there", "gone", "away"))
    bar = float(np.quantile(there, FALSE_REFUSALS))
    return {
        "a_auroc": round(auroc(there, gone), 4),
        "b_auroc": round(auroc(there, away), 4),
        "b_refused": round(float(np.mean(np.array(away) < bar)), 4),
        "bar": round(bar, 4),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--data", type=Path, required=True)
    arguments.add_argument("--servers", type=Path, required=True)
    arguments.add_argument("--cache", type=Path, required=True)
    arguments.add_argument("--threshold", type=float, default=None)
    arguments.add_argument("--write", action="store_true")
    given = arguments.parse_args()
    cases = collect(given.data, given.servers, given.cache)
    judged = {}
    known: list[tuple[float, bool]] = []
    for name, case in cases.items():
        model = fit([other for key, other in cases.items() if key != name])
        judged[name] = figures(model, case)
        known += [
            (float(1 / (1 + np.exp(-(np.array([*features, 1.0]) @ model)))), right)
            for rows in case["there"]
            for features, right, _ in rows
        ]
        print(name, judged[name])
    means = {
        key: round(float(np.mean([one[key] for one in judged.values()])), 4) for key in next(iter(judged.values()))
    }
    print("mean, each set left out of its fit:", means)
    print("reliability:", reliability(known))
    model = fit(list(cases.values()))
    there = np.concatenate([[said(model, rows) for rows in case["there"]] for case in cases.values()])
    threshold = given.threshold or float(np.quantile(there, FALSE_REFUSALS))
    away = np.concatenate([[said(model, rows) for rows in case["away"]] for case in cases.values()])
    print("threshold", round(threshold, 4), "refuses", round(float(np.mean(away < threshold)), 4), "of another world's")
    written = {
        "encoder": Encoder().record.key,
        "cohort": hashlib.sha256(cohort.FILE.read_bytes()).hexdigest(),
        "weights": {name: round(float(weight), 4) for name, weight in zip(NAMES, model, strict=False)},
        "intercept": round(float(model[-1]), 4),
        "threshold": round(threshold, 4),
    }
    print(json.dumps(written, indent=2))
    if given.write:
        FILE.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
