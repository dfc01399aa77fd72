"""Contrastive fine-tuning of the encoder, and its figures on the test requests.

    train.py DATA BASE OUT RUNS.json       each run: {"name", "without", "steps", ...}; see `Run`

Multi-positive InfoNCE: the tools of all requests in a batch and one near tool by words for each request are the
candidates; every tool that answers a request is a positive; tools that are all but the same text are no negatives.
Afterwards the weights are averaged with the base weights and measured at several shares.
"""

from __future__ import annotations

import gzip
import json
import math
import random
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from encoder import Encoder, Texts, pad

from examples import Examples, build, tool_variants

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass
class Run:
    """One training run."""

    name: str
    without: str | None = None
    steps: int = 400
    batch: int = 1024
    rate: float = 1e-4
    scale: float = 20.0
    hard: int = 1
    generated: bool = True
    near_limit: int = 40
    meaning: float = 0.0  # share of hard negatives that are near by the base model's meaning instead of by words
    same: float = 0.93  # base similarity of two tools from which they are no negatives of each other
    nested: list[int] = field(default_factory=list)  # Matryoshka sizes beside the full one
    shares: list[float] = field(default_factory=lambda: [0.5, 0.7, 1.0])
    weights: dict[str, float] = field(default_factory=dict)  # share of each kind in a batch
    consistent: int = 0  # keep generated requests whose tool stands among this many by the base model
    seed: int = 1
    save: bool = False  # write the trained weights, before averaging with the base
    tests: list[str] = field(default_factory=list)


KINDS = {"generated": 0.42, "metatool": 0.1, "sealtools": 0.06, "name": 0.1, "description": 0.17, "joined": 0.15}


class Pool:
    """Token ids of many texts on the device, cut and padded to one width."""

    def __init__(self, texts: Texts, lines: list[str], width: int) -> None:
        ids = texts.ids(lines, max_tokens=width)
        tokens, _ = pad([*ids, [0] * width])
        self.tokens = tokens[:-1].to(DEVICE)
        self.lengths = torch.tensor([len(one) for one in ids], device=DEVICE)

    def take(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        lengths = self.lengths[rows]
        width = int(lengths.max())
        mask = torch.arange(width, device=DEVICE)[None] < lengths[:, None]
        return self.tokens[rows, :width], mask.long()


def encode(model: Encoder, pool: Pool, rows: torch.Tensor, parts: int = 4) -> torch.Tensor:
    """Vectors of rows of a pool, in parts of like length, so that little is padded."""
    order = pool.lengths[rows].argsort()
    found = torch.cat([model(*pool.take(part)) for part in rows[order].chunk(parts)])
    return found[order.argsort()]


def embed(model: Encoder, texts: Texts, lines: list[str], width: int, size: int = 1024) -> torch.Tensor:
    """Vectors of texts, sorted by length inside so that little is padded."""
    ids = texts.ids(lines, max_tokens=width)
    order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
    found = torch.zeros(len(ids), 384, device=DEVICE)
    with torch.no_grad():
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            tokens, mask = pad([ids[row] for row in rows])
            found[rows] = model(tokens.to(DEVICE), mask.to(DEVICE))
    return found


def standard(scores: torch.Tensor) -> torch.Tensor:
    return (scores - scores.mean(1, keepdim=True)) / scores.std(1, keepdim=True).clamp(min=1e-6)


def figures(scores: torch.Tensor, relevant: list[list[int]]) -> dict[str, float]:
    """nDCG@10, recall at 1 and 5, and how often the first hit is right."""
    top = scores.topk(min(10, scores.shape[1]), dim=1).indices.tolist()
    sums = {"ndcg10": 0.0, "recall1": 0.0, "recall5": 0.0, "first": 0.0}
    for row, wanted in zip(top, relevant, strict=True):
        hits = [one in set(wanted) for one in row]
        best = sum(1 / math.log2(rank + 2) for rank in range(min(10, len(wanted))))
        sums["ndcg10"] += sum(hit / math.log2(rank + 2) for rank, hit in enumerate(hits)) / best
        sums["recall1"] += hits[0] / len(wanted)
        sums["recall5"] += sum(hits[:5]) / len(wanted)
        sums["first"] += hits[0]
    return {name: round(value / len(relevant), 4) for name, value in sums.items()}


def measure(
    model: Encoder, texts: Texts, data: Data, sets: list[str], *, dims: int = 384, width: int = 64
) -> dict[str, Any]:
    """Dense alone and mixed with words, for each set."""
    model.eval()
    found: dict[str, Any] = {}
    for name in sets:
        test = data.bundle["tests"][name]
        tools = torch.nn.functional.normalize(embed(model, texts, test["tools"], width)[:, :dims], dim=-1)
        queries = torch.nn.functional.normalize(embed(model, texts, test["queries"], 128)[:, :dims], dim=-1)
        dense = queries @ tools.T
        lexical = torch.tensor(data.arrays[f"lexical_{name}"].astype(np.float32), device=DEVICE)
        mixed = 0.4 * standard(lexical) + 0.6 * standard(dense)
        light = 0.25 * standard(lexical) + 0.75 * standard(dense)
        kinds = {"hybrid": mixed, "hybrid25": light, "dense": dense, "words": lexical}
        found[name] = {kind: figures(scores, test["relevant"]) for kind, scores in kinds.items()}
    return found


def brief(found: dict[str, Any]) -> str:
    kinds = ("hybrid", "hybrid25", "dense")
    cells = [f"{name} " + "/".join(f"{one[kind]['ndcg10']:.3f}" for kind in kinds) for name, one in found.items()]
    mean = [sum(one["hybrid"][key] for one in found.values()) / len(found) for key in ("ndcg10", "first", "recall5")]
    return "  ".join(cells) + "  mean " + " ".join(f"{value:.4f}" for value in mean)


class Data:
    """The prepared bundle."""

    def __init__(self, folder: Path) -> None:
        self.bundle = json.loads(gzip.decompress((folder / "bundle.json.gz").read_bytes()))
        self.arrays = dict(np.load(folder / "arrays.npz"))


class Batches:
    """Draws requests, their tools and near tools by words."""

    def __init__(self, run: Run, data: Data, examples: Examples, allowed: set[int], meaning: Any) -> None:
        self.run, self.examples, self.near, self.meaning = run, examples, data.arrays["near"], meaning
        self.chance = random.Random(run.seed)
        self.allowed = sorted(allowed)
        self.allowed_set = allowed
        by_kind: dict[str, dict[int, list[int]]] = {}
        for row, kind in enumerate(examples.kind):
            by_kind.setdefault(kind, {}).setdefault(examples.relevant[row][0], []).append(row)
        # First the kind, then the tool, then one of its requests: breadth of tools counts more than number of requests.
        self.by_kind = {kind: list(rows.values()) for kind, rows in by_kind.items()}
        wanted = run.weights or KINDS
        self.kinds = [kind for kind in self.by_kind if wanted.get(kind)]
        self.shares = [wanted[kind] for kind in self.kinds]

    def draw(self) -> tuple[list[int], list[int], list[int]]:
        """Rows of requests, tools, and variants of tools; the first tools belong to the requests in order."""
        requests, tools, variants = [], [], []
        for kind in self.chance.choices(self.kinds, self.shares, k=self.run.batch):
            row = self.chance.choice(self.chance.choice(self.by_kind[kind]))
            requests.append(row)
            tools.append(self.chance.choice(self.examples.relevant[row]))
            variants.append(self.chance.choice(self.examples.variants[row]))
        for row in requests * self.run.hard:
            near = self.examples.near[row]
            place = self.chance.randrange(self.run.near_limit)
            if self.chance.random() < self.run.meaning:
                tool = int(self.meaning[row][place])
            else:
                tool = int(self.near[near][place]) if near >= 0 else -1
            tools.append(tool if tool in self.allowed_set else self.chance.choice(self.allowed))
            variants.append(self.chance.choice((0, 0, 1)))
        return requests, tools, variants


def loss_of(
    queries: torch.Tensor, tools: torch.Tensor, positive: torch.Tensor, ignored: torch.Tensor, scale: float
) -> torch.Tensor:
    """For each positive: its own share against all negatives; the mean over the positives of a request."""
    scores = queries @ tools.T * scale
    negatives = scores.masked_fill(positive | ignored, -1e4).logsumexp(1, keepdim=True)
    each = torch.logaddexp(scores, negatives) - scores
    found: torch.Tensor = ((each * positive).sum(1) / positive.sum(1)).mean()
    return found


def consistent(run: Run, examples: Examples, vectors: torch.Tensor, asked: torch.Tensor) -> None:
    """Drop generated requests that the base model finds far from their tool."""
    rows = [row for row, kind in enumerate(examples.kind) if kind == "generated"]
    for start in range(0, len(rows), 4096):
        part = rows[start : start + 4096]
        scores = asked[part] @ vectors.T
        first = torch.tensor([examples.relevant[row][0] for row in part], device=DEVICE)
        rank = (scores > scores.gather(1, first[:, None])).sum(1).tolist()
        for row, place in zip(part, rank, strict=True):
            if place >= run.consistent:
                examples.kind[row] = "dropped"


def positives(tools: list[int], answers: list[tuple[int, ...]]) -> torch.Tensor:
    """Which of the batch's tools answer which of its requests."""
    columns: dict[int, list[int]] = {}
    for column, tool in enumerate(tools):
        columns.setdefault(tool, []).append(column)
    places = [(row, column) for row, wanted in enumerate(answers) for one in wanted for column in columns.get(one, ())]
    found = torch.zeros(len(answers), len(tools), dtype=torch.bool, device=DEVICE)
    pairs = torch.tensor(places, device=DEVICE)
    found[pairs[:, 0], pairs[:, 1]] = True
    return found


def fit(run: Run, model: Encoder, batches: Batches, pools: tuple[Pool, Pool], vectors: torch.Tensor) -> None:
    """The training loop. The pools hold the requests and the texts of the tools."""
    asked, described = pools
    started = time.monotonic()
    optimiser = torch.optim.AdamW(model.parameters(), lr=run.rate, weight_decay=0.01, fused=DEVICE == "cuda")
    warm = max(1, run.steps // 10)
    shape = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / warm, max(0.02, (run.steps - step) / (run.steps - warm + 1)))
    )
    model.train()
    for step in range(run.steps):
        requests, tools, variants = batches.draw()
        at = torch.tensor(tools, device=DEVICE)
        positive = positives(tools, [batches.examples.relevant[row] for row in requests])
        ignored = (vectors[at[: len(requests)]] @ vectors[at].T > run.same) & ~positive
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            queries = encode(model, asked, torch.tensor(requests, device=DEVICE))
            candidates = encode(model, described, at * 4 + torch.tensor(variants, device=DEVICE))
        loss = loss_of(queries, candidates, positive, ignored, run.scale)
        for size in run.nested:
            short = [torch.nn.functional.normalize(one[:, :size], dim=-1) for one in (queries, candidates)]
            loss = loss + loss_of(short[0], short[1], positive, ignored, run.scale)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves this method untyped
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        shape.step()
        if step % max(1, run.steps // 4) == 0:
            print(f"{run.name} step {step} loss {loss.item():.3f} {time.monotonic() - started:.0f} s", flush=True)


def train(run: Run, data: Data, base: Path, out: Path) -> dict[str, Any]:
    """One run: examples, training, averages with the base, figures."""
    torch.manual_seed(run.seed)
    model = Encoder(base).to(DEVICE).eval()
    texts = Texts(base / "vocab.txt", max_tokens=64)
    original = {name: value.detach().clone() for name, value in model.state_dict().items()}
    rows = range(len(data.bundle["tools"])) if run.without is None else data.bundle["kept_without"][run.without]
    examples = build(data.bundle, set(rows), left_out=run.without, generated=run.generated)
    asked = Pool(texts, examples.text, 80)
    described = Pool(texts, [text for tool in data.bundle["tools"] for text in tool_variants(tool)], 64)
    vectors = embed(model, texts, [tool["text"] for tool in data.bundle["tools"]], 64)
    meaning: Any = None
    if run.consistent or run.meaning:
        placed = embed(model, texts, examples.text, 64)
        meaning = torch.cat([(part @ vectors.T).topk(60).indices for part in torch.split(placed, 4096)]).cpu().numpy()
        if run.consistent:
            consistent(run, examples, vectors, placed)
    batches = Batches(run, data, examples, set(rows), meaning)
    print(run.name, {kind: len(one) for kind, one in batches.by_kind.items()}, flush=True)
    fit(run, model, batches, (asked, described), vectors)
    trained = {name: value.detach().clone() for name, value in model.state_dict().items()}
    result: dict[str, Any] = {"run": asdict(run), "figures": {}}
    for share in run.shares:
        model.load_state_dict({name: share * trained[name] + (1 - share) * original[name] for name in trained})
        found = measure(model, texts, data, run.tests or list(data.bundle["tests"]))
        result["figures"][str(share)] = found
        print(f"{run.name} share {share}: {brief(found)}", flush=True)
    if run.save:
        save(trained, out / f"{run.name}.safetensors")
    return result


def save(state: dict[str, torch.Tensor], path: Path) -> None:
    from safetensors.torch import save_file

    save_file({name: value.half().contiguous().cpu() for name, value in state.items()}, path)


def soup(item: dict[str, Any], data: Data, base: Path, out: Path) -> dict[str, Any]:
    """Average several trained weights, then with the base; write the first average; measure the second."""
    from safetensors.torch import load_file

    model = Encoder(base).to(DEVICE)
    texts = Texts(base / "vocab.txt", max_tokens=64)
    original = {name: value.detach().clone() for name, value in model.state_dict().items()}
    states = [load_file(path, device=DEVICE) for path in item["of"]]
    trained = {name: torch.stack([state[name].float() for state in states]).mean(0) for name in original}
    save(trained, out / f"{item['name']}.safetensors")
    result: dict[str, Any] = {"run": item, "figures": {}}
    cases = [(share, 384, 64) for share in item["shares"]]
    cases += [(item["share"], dims, 64) for dims in (256, 192, 128)]
    cases += [(item["share"], 384, width) for width in (48, 96, 128)]
    for share, dims, width in cases:
        model.load_state_dict({name: share * trained[name] + (1 - share) * original[name] for name in trained})
        found = measure(model, texts, data, list(data.bundle["tests"]), dims=dims, width=width)
        result["figures"][f"{share} dims {dims} tokens {width}"] = found
        print(f"{item['name']} share {share} dims {dims} tokens {width}: {brief(found)}", flush=True)
    return result


def main(data: str, base: str, out: str, runs: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    target = Path(out)
    loaded = Data(Path(data))
    name = Path(runs).stem
    results = []
    for item in json.loads(Path(runs).read_text()):
        if item["name"] == "untrained":
            model = Encoder(Path(base)).to(DEVICE)
            found = measure(model, Texts(Path(base) / "vocab.txt", max_tokens=64), loaded, list(loaded.bundle["tests"]))
            print(f"untrained: {brief(found)}", flush=True)
            results.append({"run": item, "figures": {"0": found}})
        elif "of" in item:
            results.append(soup(item, loaded, Path(base), target))
        else:
            results.append(train(Run(**item), loaded, Path(base), target))
        (target / f"results-{name}.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:5])
