"""Fits the confidence of search and writes `calibration.json` into the folder of an encoder.

    python training/calibrate.py --data DATA [--weights FOLDER] [--cache DIR] [--write]

DATA holds `servers`, `retrieval` and `everyday`. Three things are fitted, none on a request that a bench reports on and
none on a request that the encoder was trained with, except where a set has a train split only:

1. What a fitting tool looks like: requests with known answers, against the same requests with their tools taken away,
   near misses, and requests for services that are not there. From the retrieval sets, and from the servers that we made
   up and kept out of training (`training/everyday`, split `calibration`), in catalogues of three servers, ten and all,
   in people's words and in those of a model that searches.
2. How probable a fit then is, on the requests whose tools are there, which changes no order.
3. Whether a request reads like the description of a tool: a linear model of its vector.

The two bars are chosen by hand on the same requests: see `search.md`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmarks.everyday import HELD_OUT, Memory, our_servers, written_queries
from benchmarks.recorded import recorded_servers
from benchmarks.retrieval_sets import Query, auroc, find_sets, read_set, sampled
from toolfold.search.calibration import FILE
from toolfold.search.document import Document, document_of
from toolfold.search.encoder import WEIGHTS, Encoder
from toolfold.search.index import SearchIndex
from toolfold.search.ranker import BACKGROUND_FILE

NAMES = ("near", "apart", "alone", "ours")
QUERIES = 300
BENCH_SAMPLES = (200, 400)
"""Of `abstain` and of `retrieval`; the smaller is not always a part of the larger."""
HITS = 3
PENALTY = 1e-3
SIZES = (3, 10, 0)
"""Servers in a catalogue; 0 is all."""
# What a group of requests weighs beside the others, whatever its number.
OF_SETS = {"there": 0.5, "gone": 0.15, "away": 0.4}
OF_OURS = {"there": 2.0, "near-miss": 1.0, "far": 1.0, "other": 2.0}

Hits = list[tuple[list[float], bool, int]]
"""Of one request: the features of a hit, whether it is right, its place."""
Groups = dict[tuple[str, str], list[Hits]]
"""By source, and by whether the tools are there and who asks."""
Asked = tuple[str, tuple[str, ...], str, str, str]
"""Query, right tools, server, kind, asker."""


def rows_of(index: SearchIndex, query: str, relevant: Iterable[str], *, without: Iterable[str] = ()) -> Hits:
    found = index.explain(query, without=without, limit=HITS)
    right = set(relevant)
    return [([seen[name] for name in NAMES], tool in right, at) for at, (tool, seen) in enumerate(found)]


def set_requests(folder: Path) -> list[Query]:
    """Requests of a retrieval set that no bench reports on: of its train split, else outside the samples."""
    tested = read_set(folder).queries
    used = {query.query for count in BENCH_SAMPLES for query in sampled(tested, count, 0)}
    chosen = read_set(folder, split="train").queries
    return sampled([query for query in chosen if query.query not in used], QUERIES, 1)


def of_sets(data: Path, cache: Path, encoder: Encoder, elsewhere: SearchIndex) -> Groups:
    found: Groups = {}
    for folder in find_sets(data / "retrieval"):
        index = SearchIndex.open(cache / folder.name, encoder=encoder)
        index.sync(read_set(folder).documents())
        asked = set_requests(folder)
        found[folder.name, "there"] = [rows_of(index, one.query, one.relevant) for one in asked]
        found[folder.name, "gone"] = [rows_of(index, one.query, (), without=one.relevant) for one in asked]
        found[folder.name, "away"] = [rows_of(elsewhere, one.query, ()) for one in asked]
    return found


def our_requests() -> tuple[list[Document], list[Asked]]:
    """The tools of our servers of the split `calibration`, and what is asked of them, and of servers like them."""
    chance = random.Random(5)
    tools: list[Document] = []
    asked: list[Asked] = []
    for server in our_servers("calibration"):
        name = server["server"]
        for tool in server["tools"]:
            parameters = tuple((one, "") for one in tool["params"])
            tools.append(
                Document(
                    tool_id=f"{name}.{tool['name']}",
                    name=tool["name"],
                    description=tool["description"],
                    parameters=parameters,
                    server=name,
                )
            )
            right = tuple(f"{name}.{one}" for one in (tool["name"], *tool.get("also", ())))
            for query, asker in ((chance.choice(tool["requests"]), "person"), (tool["planner"], "planner")):
                asked.append((query, right, name, "there", asker))
                if chance.random() < 0.5:
                    asked.append((query, (), "", "other", asker))
        asked += [(query, (), name, "near-miss", "person") for query in server["near"]]
    for row in written_queries("calibration"):
        right = tuple(f"{row['server']}.{one}" for one in row["relevant"])
        server = "" if row["kind"] == "far" else row["server"]
        asked.append((row["query"], right, server, row["kind"], "model"))
        if row["kind"] == "far":
            asked.append((row["request"], (), "", "far", "person"))
    return tools, asked


def of_ours(recorded: list[Document], encoder: Encoder) -> Groups:
    """Every request in a catalogue of three servers, of ten and of all; `other` and `far` where their server is not."""
    ours, asked = our_requests()
    others = sorted({tool.server for tool in recorded})
    found: Groups = {}
    for size in SIZES:
        index = SearchIndex.open(None, encoder=encoder)
        by_server: dict[str, list[Asked]] = {}
        for one in asked:
            by_server.setdefault(one[2], []).append(one)
        for server, group in by_server.items():
            chance = random.Random(f"{server}{size}")
            chosen = {server, *chance.sample(others, size - bool(server))} if size else {*others, server}
            index.sync(tool for tool in (*recorded, *ours) if tool.server in chosen)
            for query, right, _, kind, asker in group:
                found.setdefault(("ours", f"{kind} {asker}"), []).append(rows_of(index, query, right))
    return found


def logistic(inputs: np.ndarray, answers: np.ndarray, weights: np.ndarray, penalty: float = PENALTY) -> np.ndarray:
    """Newton's method, on inputs brought to one spread so that the penalty means the same for each."""
    spread = inputs.std(axis=0)
    spread[spread == 0] = 1.0  # two numbers of the encoder's vectors never move
    x = np.column_stack([inputs / spread, np.ones(len(inputs))])
    w = weights / weights.mean()
    found = np.zeros(x.shape[1])
    for _ in range(60):
        said = 1 / (1 + np.exp(-x @ found))
        slope = x.T @ (w * (said - answers)) / len(x) + penalty * found
        bend = (x * (w * said * (1 - said))[:, None]).T @ x / len(x) + penalty * np.eye(len(found))
        step = np.linalg.solve(bend, slope)
        found -= step
        if np.abs(step).max() < 1e-9:
            break
    return np.asarray(found / np.append(spread, 1.0))


def fit(groups: Groups) -> np.ndarray:
    """What tells fitting tools from all others; then what that means as a probability, where the tools are there."""
    model = logistic(*weighted(groups))
    inputs, answers, weights = weighted(
        {key: rows for key, rows in groups.items() if key[1].startswith("there")}, by_place=False
    )
    score = inputs @ model[:-1] + model[-1]
    scale, shift = logistic(score[:, None], answers, weights)
    return np.append(model[:-1] * scale, model[-1] * scale + shift)


def weighted(groups: Groups, *, by_place: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each group by its own weight; of the hits, the first more than the third, unless told otherwise."""
    hits = []
    for (source, kind), requests in groups.items():
        weight = OF_OURS[kind.split()[0]] if source == "ours" else OF_SETS[kind]
        for rows in requests:
            hits += [(seen, right, weight / len(requests) / (at + 1 if by_place else 1)) for seen, right, at in rows]
    inputs, answers, weights = (np.array(part, dtype=float) for part in zip(*hits, strict=True))
    return inputs, answers, weights


def fit_asker(data: Path, encoder: Encoder) -> np.ndarray:
    """Whether a request was written like the description of a tool."""
    rows = [json.loads(line) for line in (data / "everyday" / "requests.jsonl").read_text("utf-8").splitlines()]
    rows = [row for row in rows if row["relevant"][0].partition(".")[0] not in HELD_OUT]
    people = [row["query"] for row in rows if row["kind"] != "planner"]
    models = [row["query"] for row in rows if row["kind"] == "planner"]
    chance = random.Random(2)
    for server in (*our_servers("training"), *our_servers("calibration")):
        people += [chance.choice(tool["requests"]) for tool in server["tools"]]
        models += [tool["planner"] for tool in server["tools"]]
    models += [row["query"] for row in written_queries("calibration")] * 4
    people, models = chance.sample(people, 5000), chance.sample(models, 5000)
    vectors = np.concatenate([encoder.queries([query]) for query in (*people, *models)]).astype(float)
    answers = np.repeat([0.0, 1.0], 5000)
    model = logistic(vectors, answers, np.ones(len(answers)), penalty=1e-2)
    said = vectors @ model[:-1] + model[-1]
    print("asker: AUROC on the requests of the fit", round(auroc(said[answers == 1], said[answers == 0]), 3))
    return model


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--data", type=Path, required=True)
    arguments.add_argument("--weights", type=Path, default=WEIGHTS, help="the folder of an encoder")
    arguments.add_argument("--cache", type=Path, required=True)
    arguments.add_argument("--bars", type=float, nargs=2, default=(0.068, 0.2), help="people's words, a model's")
    arguments.add_argument("--write", action="store_true")
    given = arguments.parse_args()
    encoder = Memory(Encoder(given.weights))
    recorded = [document_of(tool) for tool in recorded_servers(given.data / "servers").tools]
    recorded = [tool for tool in recorded if tool.server not in HELD_OUT]
    elsewhere = SearchIndex.open(None, encoder=encoder)
    elsewhere.sync(recorded)
    groups = {**of_ours(recorded, encoder), **of_sets(given.data, given.cache, encoder, elsewhere)}
    model = fit(groups)
    found = {
        "encoder": encoder.record.key,
        "cohort": hashlib.sha256((given.weights / BACKGROUND_FILE).read_bytes()).hexdigest(),
        "weights": {name: round(float(weight), 4) for name, weight in zip(NAMES, model, strict=False)},
        "intercept": round(float(model[-1]), 4),
        "threshold": dict(zip(("person", "model"), given.bars, strict=True)),
    }
    print(json.dumps(found, indent=2))
    if given.write:
        asker = [round(float(weight), 3) for weight in fit_asker(given.data, encoder)]
        (given.weights / FILE).write_text(json.dumps({**found, "asker": asker}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
