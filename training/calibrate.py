"""Fits the confidence of search and writes `src/toolfold/search/calibration.json`.

    python training/calibrate.py --data RETRIEVAL_SETS --servers RECORDED_SERVERS [--cache DIR] [--write]

Requests with known answers teach what a fitting tool looks like. The same requests with their tools taken away, and put
to the catalogue of another world, teach what none looks like. How probable a fit then is, is set on the requests whose
tools are there, which changes no order. Test requests of the benches are never used: train splits where a set has one,
else requests outside the benches' sample. Figures are printed for each set with the model fitted on the others; what is
written is fitted on all.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

import numpy as np

from benchmarks.abstain import WORLD, reliability
from benchmarks.recorded import recorded_servers
from benchmarks.retrieval_sets import Query, auroc, find_sets, read_set, sampled
from toolfold.search import ranker
from toolfold.search.calibration import FILE
from toolfold.search.document import document_of
from toolfold.search.encoder import Encoder
from toolfold.search.index import SearchIndex

NAMES = ("near", "apart", "alone", "ours")
QUERIES = 800
BENCH_SAMPLES = (200, 400)
"""Of `abstain` and of `retrieval`; the smaller is not always a part of the larger."""
HITS = 3
GONE_WEIGHT = 0.5
AWAY_WEIGHT = 2.0
PENALTY = 1e-3
FALSE_REFUSALS = 0.05

Rows = list[tuple[dict[str, float], bool, int]]
"""Features of a hit, whether it was right, its place."""
Case = dict[str, list[Rows]]
"""Of one set: its requests' hits with the tools `there`, with them `gone`, and `away`, in the other world."""


def requests(folder: Path, *, held_out: bool) -> list[Query]:
    """Requests that no bench reports on: of the train split, or of the test split outside the samples."""
    tested = read_set(folder).queries
    used = {query.query for count in BENCH_SAMPLES for query in sampled(tested, count, 0)}
    chosen = tested if held_out else read_set(folder, split="train").queries
    return sampled([query for query in chosen if query.query not in used], QUERIES, 1)


def rows_of(index: SearchIndex, query: Query, *, without: list[str], right: bool) -> Rows:
    found = index.explain(query.query, without=without, limit=HITS)
    return [(seen, right and hit.tool_id in query.relevant, at) for at, (hit, seen) in enumerate(found)]


def collect(data: Path, servers: Path, cache: Path, *, held_out: bool) -> dict[str, Case]:
    encoder = Encoder()
    other = SearchIndex.open(cache / "other-world", encoder=encoder)
    world = set(WORLD.split())
    other.sync(document_of(tool) for tool in recorded_servers(servers).tools if tool.server in world)
    found = {}
    for folder in find_sets(data):
        index = SearchIndex.open(cache / folder.name, encoder=encoder)
        index.sync(read_set(folder).documents())
        asked = requests(folder, held_out=held_out)
        found[folder.name] = {
            "there": [rows_of(index, query, without=[], right=True) for query in asked],
            "gone": [rows_of(index, query, without=query.relevant, right=False) for query in asked],
            "away": [rows_of(other, query, without=[], right=False) for query in asked],
        }
    return found


def logistic(inputs: np.ndarray, answers: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Newton's method, on inputs brought to one spread so that the penalty means the same for each."""
    spread = inputs.std(axis=0)
    x = np.column_stack([inputs / spread, np.ones(len(inputs))])
    w = weights / weights.mean()
    found = np.zeros(x.shape[1])
    for _ in range(50):
        said = 1 / (1 + np.exp(-x @ found))
        slope = x.T @ (w * (said - answers)) / len(x) + PENALTY * found
        bend = (x * (w * said * (1 - said))[:, None]).T @ x / len(x) + PENALTY * np.eye(len(found))
        step = np.linalg.solve(bend, slope)
        found -= step
        if np.abs(step).max() < 1e-9:
            break
    return np.asarray(found / np.append(spread, 1.0))


def fit(cases: list[Case]) -> np.ndarray:
    """What tells fitting tools from all others; then what that means as a probability, where the tools are there."""
    model = logistic(*hits_of(cases, {"there": 1.0, "gone": GONE_WEIGHT, "away": AWAY_WEIGHT}))
    inputs, answers, weights = hits_of(cases, {"there": 1.0}, every_place_alike=True)
    score = inputs @ model[:-1] + model[-1]
    scale, shift = logistic(score[:, None], answers, weights)
    return np.append(model[:-1] * scale, model[-1] * scale + shift)


def hits_of(
    cases: list[Case], kinds: dict[str, float], *, every_place_alike: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every set counts the same; of the hits, the first more than the third, unless told otherwise."""
    hits = [
        ([seen[name] for name in NAMES], right, weight / (1 if every_place_alike else at + 1) / len(case[kind]))
        for case in cases
        for kind, weight in kinds.items()
        for rows in case[kind]
        for seen, right, at in rows
    ]
    inputs, answers, weights = (np.array(part, dtype=float) for part in zip(*hits, strict=True))
    return inputs, answers, weights


def probability(model: np.ndarray, seen: dict[str, float]) -> float:
    return 1 / (1 + float(np.exp(-(model[-1] + np.dot(model[:-1], [seen[name] for name in NAMES])))))


def said(model: np.ndarray, rows: Rows) -> float:
    return probability(model, rows[0][0]) if rows else 0.0


def figures(model: np.ndarray, case: Case) -> dict[str, float]:
    there, gone, away = ([said(model, rows) for rows in case[kind]] for kind in ("there", "gone", "away"))
    bar = float(np.quantile(there, FALSE_REFUSALS))
    return {
        "a_auroc": round(auroc(there, gone), 4),
        "b_auroc": round(auroc(there, away), 4),
        "b_refused": round(float(np.mean(np.array(away) < bar)), 4),
        "bar": round(bar, 4),
    }


def judge(fitted: dict[str, Case], judged: dict[str, Case]) -> None:
    """Prints the figures of each set, with the model fitted on the other sets."""
    found = {}
    known: list[tuple[float, bool]] = []
    for name, case in judged.items():
        model = fit([other for key, other in fitted.items() if key != name])
        found[name] = figures(model, case)
        known += [(probability(model, seen), right) for rows in case["there"] for seen, right, _ in rows]
        print(name, found[name])
    means = {key: round(float(np.mean([one[key] for one in found.values()])), 4) for key in next(iter(found.values()))}
    print("mean, each set left out of its fit:", means)
    print("reliability:", reliability(known))


def threshold_for(model: np.ndarray, cases: list[Case]) -> float:
    """Where so many of the requests with their tools there are refused, in the mean of the sets."""
    there = [np.array([said(model, rows) for rows in case["there"]]) for case in cases]
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        refused = float(np.mean([np.mean(one < middle) for one in there]))
        low, high = (low, middle) if refused > FALSE_REFUSALS else (middle, high)
    return low


def written(model: np.ndarray, threshold: float) -> dict[str, object]:
    return {
        "encoder": Encoder().record.key,
        "cohort": hashlib.sha256(ranker.BACKGROUND_FILE.read_bytes()).hexdigest(),
        "weights": {name: round(float(weight), 4) for name, weight in zip(NAMES, model, strict=False)},
        "intercept": round(float(model[-1]), 4),
        "threshold": round(threshold, 4),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--data", type=Path, required=True)
    arguments.add_argument("--servers", type=Path, required=True)
    arguments.add_argument("--cache", type=Path, required=True)
    arguments.add_argument("--threshold", type=float, default=None)
    arguments.add_argument("--write", action="store_true")
    given = arguments.parse_args()
    cases = collect(given.data, given.servers, given.cache, held_out=False)
    print("on the requests of the fit:")
    judge(cases, cases)
    print("on requests of the test splits that no bench reports on:")
    judge(cases, collect(given.data, given.servers, given.cache, held_out=True))
    every = list(cases.values())
    model = fit(every)
    threshold = given.threshold or threshold_for(model, every)
    away = [np.array([said(model, rows) for rows in case["away"]]) for case in every]
    refused = float(np.mean([np.mean(one < threshold) for one in away]))
    print("threshold", round(threshold, 4), "refuses", round(refused, 4), "of another world's")
    found = json.dumps(written(model, threshold), indent=2)
    print(found)
    if given.write:
        FILE.write_text(found + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
