"""Training of the encoders, and their figures on the tests.

    train.py DATA STARTS OUT RUNS.json       each run: {"name", "model", "steps", ...}; see `Run`

DATA is what `prepare.py` wrote. STARTS/minilm holds `encoder.onnx` and `vocab.txt` of version 1, STARTS/mpnet
`model.safetensors` and `vocab.txt` of all-mpnet-base-v2. Runs follow each other, and each leaves OUT/NAME.safetensors,
which later ones may start from or learn from.

Two kinds of loss. Contrast: multi-positive InfoNCE over the tools of all requests in a batch and a hard negative for
each; every tool that answers a request is a positive; tools that are all but the same text are no negatives. Likeness:
KL divergence between this encoder's similarities and another's over the same batch, from the teacher for requests of
our own, from version 1 for the public ones, so that what it knew is kept.
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
from encoder import Encoder, FourBits, Texts, layers_of, load, mix, save
from torch.nn.functional import kl_div, log_softmax, normalize, softmax
from torch.nn.utils import parametrize

from examples import FULL, UNPLACED, VARIANTS, Examples, build, place_of, tool_variants

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

VERSION_1 = "version-1"
OUR_KINDS = {"everyday", "ours", "planner"}
KINDS = {
    "everyday": 0.20,
    "ours": 0.28,
    "planner": 0.08,
    "metatool": 0.08,
    "sealtools": 0.05,
    "name": 0.06,
    "description": 0.13,
    "joined": 0.12,
}
"""The share of each kind of example in a batch."""

CONTRAST_SCALE = 20.0
LIKENESS_SCALE = 30.0
SAME = 0.95
"""The similarity of two tools, before training, from which they are no negatives of each other."""
NEAREST = 40
"""Hard negatives are drawn from so many near tools."""
UNLABELLED = 3
"""By meaning, so many of the nearest are left out: they may well be right."""
REQUEST_TOKENS, TOOL_TOKENS = 80, 56
"""What is read in training. The tests read what the product reads: 128 and 48."""
TESTED_REQUEST_TOKENS, TESTED_TOOL_TOKENS = 128, 48

PUBLIC = ("metatool", "sealtools", "toolbench", "toollens", "mcpflow_toucan", "mcptoolbenchpp")
WORD_SHARES = (0.0, 0.15, 0.2, 0.25)
MAX_LEXICAL = 12.0
"""As in the product: one rare word stands out by any number of standard deviations in a large catalogue."""


@dataclass(frozen=True)
class Run:
    """One training run."""

    name: str
    model: str  # minilm or mpnet
    start: str = ""  # the run whose weights it goes on from; else those in STARTS
    teacher: str = ""  # the run whose similarities it learns for requests of our own
    anchored: bool = False  # whether it keeps to version 1's similarities for all others
    steps: int = 400
    batch: int = 768
    rate: float = 1e-4
    contrast: float = 1.0  # weights of the losses: InfoNCE,
    likeness: float = 1.0  # KL between similarities of requests and tools,
    tool_likeness: float = 0.0  # and, as a part of that one, of tools and tools (the teacher's only)
    vectors: float = 0.0  # the distance of its vectors from the teacher's, of as many numbers; without dropout then
    layers: tuple[int, ...] = ()  # of those it starts with, the ones that are kept; all, if none are named
    four_bits: bool = False  # whether it learns with its weights as int4 gives them back
    siblings: float = 0.45  # share of hard negatives that are tools of the same server or category
    meaning: float = 0.3  # share that are near by meaning, before training; the rest is near by words
    kinds: dict[str, float] = field(default_factory=lambda: KINDS)
    measured: tuple[float, ...] = (0.5, 0.75, 1.0)  # shares of the trained weights, the rest as in STARTS
    kept: float = 1.0  # the share that is written
    seed: int = 1


class Data:
    """The prepared bundle."""

    def __init__(self, folder: Path) -> None:
        self.bundle = json.loads(gzip.decompress((folder / "bundle.json.gz").read_bytes()))
        self.arrays = dict(np.load(folder / "arrays.npz"))


class Pool:
    """Token ids of many texts on the device, cut and padded to one width."""

    def __init__(self, texts: Texts, lines: list[str], width: int) -> None:
        ids = texts.ids(lines, width)
        tokens = np.full((len(ids), width), texts.pad, np.int32)
        for row, one in enumerate(ids):
            tokens[row, : len(one)] = one
        self.tokens = torch.tensor(tokens, device=DEVICE)
        self.lengths = torch.tensor([len(one) for one in ids], device=DEVICE)

    def take(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        lengths = self.lengths[rows]
        width = int(lengths.max())
        mask = torch.arange(width, device=DEVICE)[None] < lengths[:, None]
        return self.tokens[rows, :width].long(), mask.long()


@dataclass(frozen=True)
class Pools:
    """All requests, and all texts of all tools: the variants of a tool follow each other."""

    requests: Pool
    tools: Pool

    @classmethod
    def read(cls, texts: Texts, data: Data, examples: Examples) -> Pools:
        lines = [text for tool in data.bundle["tools"] for text in tool_variants(tool)]
        return cls(Pool(texts, examples.text, REQUEST_TOKENS), Pool(texts, lines, TOOL_TOKENS))


def encode(model: Encoder, pool: Pool, rows: torch.Tensor, parts: int = 4) -> torch.Tensor:
    """Vectors of rows of a pool, in parts of like length, so that little is padded."""
    order = pool.lengths[rows].argsort()
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        found = torch.cat([model(*pool.take(part)) for part in rows[order].chunk(parts)])
    return found[order.argsort()]


@torch.no_grad()
def embed(model: Encoder, pool: Pool, size: int = 2048) -> torch.Tensor:
    """Vectors of a whole pool."""
    rows = torch.arange(len(pool.lengths), device=DEVICE)
    return encode(model, pool, rows, parts=-(-len(rows) // size))


# Figures


def standard(scores: torch.Tensor) -> torch.Tensor:
    return (scores - scores.mean(1, keepdim=True)) / scores.std(1, keepdim=True).clamp(min=1e-6)


def mixed(lexical: torch.Tensor, dense: torch.Tensor, share: float) -> torch.Tensor:
    """Words and meaning as the product adds them."""
    return share * standard(lexical).clamp(max=MAX_LEXICAL) + (1 - share) * standard(dense)


def figures(scores: torch.Tensor, relevant: list[list[int]]) -> dict[str, float]:
    """nDCG@10, recall at 1 and 5, and how often the first hit, or one of the first five, is right."""
    top = scores.topk(min(10, scores.shape[1]), dim=1).indices.tolist()
    sums = dict.fromkeys(("ndcg10", "recall1", "recall5", "first", "among5"), 0.0)
    for row, wanted in zip(top, relevant, strict=True):
        hits = [one in set(wanted) for one in row]
        best = sum(1 / math.log2(rank + 2) for rank in range(min(10, len(wanted))))
        sums["ndcg10"] += sum(hit / math.log2(rank + 2) for rank, hit in enumerate(hits)) / best
        sums["recall1"] += hits[0] / len(wanted)
        sums["recall5"] += sum(hits[:5]) / len(wanted)
        sums["first"] += hits[0]
        sums["among5"] += any(hits[:5])
    return {name: round(value / len(relevant), 4) for name, value in sums.items()}


def measure(model: Encoder, texts: Texts, data: Data) -> dict[str, Any]:
    """The figures of each test, with several shares of words."""
    model.eval()
    found: dict[str, Any] = {}
    for name, test in data.bundle["tests"].items():
        tools = embed(model, Pool(texts, test["tools"], TESTED_TOOL_TOKENS))
        dense = embed(model, Pool(texts, test["queries"], TESTED_REQUEST_TOKENS)) @ tools.T
        lexical = torch.tensor(data.arrays[f"lexical_{name}"].astype(np.float32), device=DEVICE)
        found[name] = {
            f"words {share}": figures(mixed(lexical, dense, share), test["relevant"]) for share in WORD_SHARES
        }
    return found


def brief(found: dict[str, Any], words: str = "words 0.15") -> str:
    """Of the public sets nDCG@10 and its mean; of the others how often the right tool is first, and among five."""
    public = {name: one[words]["ndcg10"] for name, one in found.items() if name in PUBLIC}
    cells = [f"{name} {value:.3f}" for name, value in public.items()]
    cells += [f"public mean {sum(public.values()) / len(public):.4f}"] if public else []
    own = {name: one[words] for name, one in found.items() if name not in PUBLIC}
    cells += [f"{name} {one['first']:.3f}/{one['among5']:.3f}" for name, one in own.items()]
    return f"({words}) " + "  ".join(cells)


# Batches and losses


class Batches:
    """Draws requests, their tools, and a hard negative for each request."""

    def __init__(self, run: Run, data: Data, examples: Examples, nearest: Any) -> None:
        """`nearest`: for each request the rows of the nearest tools by meaning."""
        self.run, self.examples = run, examples
        self.by_words, self.by_meaning = data.arrays["near"], nearest
        self.chance = random.Random(run.seed)
        self.places = [place_of(tool) for tool in data.bundle["tools"]]
        self.siblings: dict[str, list[int]] = {}
        for row, place in enumerate(self.places):
            self.siblings.setdefault(place, []).append(row)
        by_kind: dict[str, dict[int, list[int]]] = {}
        for row, kind in enumerate(examples.kind):
            by_kind.setdefault(kind, {}).setdefault(examples.relevant[row][0], []).append(row)
        # First the kind, then the tool, then one of its requests: breadth of tools counts more than number of requests.
        self.by_kind = {kind: list(rows.values()) for kind, rows in by_kind.items()}
        self.kinds = [kind for kind in self.by_kind if run.kinds.get(kind)]
        self.shares = [run.kinds[kind] for kind in self.kinds]

    def draw(self) -> tuple[list[int], list[int], list[int]]:
        """Rows of requests, tools, and variants of tools; the first tools belong to the requests in order."""
        requests, tools, variants = [], [], []
        for kind in self.chance.choices(self.kinds, self.shares, k=self.run.batch):
            row = self.chance.choice(self.chance.choice(self.by_kind[kind]))
            requests.append(row)
            tools.append(self.chance.choice(self.examples.relevant[row]))
            variants.append(self.chance.choice(self.examples.variants[row]))
        for row in requests:
            tools.append(self.hard_negative(row))
            variants.append(self.chance.choice((FULL, FULL, FULL, UNPLACED)))
        return requests, tools, variants

    def hard_negative(self, request: int) -> int:
        """A tool much like the right one. It may be right itself, and then counts as such."""
        dice = self.chance.random()
        if dice < self.run.siblings:
            return self.chance.choice(self.siblings[self.places[self.examples.relevant[request][0]]])
        if dice < self.run.siblings + self.run.meaning:
            return int(self.by_meaning[request, self.chance.randrange(UNLABELLED, NEAREST)])
        if (row := self.examples.near[request]) >= 0:
            return int(self.by_words[row, self.chance.randrange(NEAREST)])
        return self.chance.randrange(len(self.places))


@dataclass(frozen=True)
class Batch:
    """What one step is about, on the device."""

    requests: torch.Tensor  # rows of requests
    texts: torch.Tensor  # rows of tools' texts; the first belong to the requests in order
    positive: torch.Tensor  # which text answers which request
    ignored: torch.Tensor  # which is no negative of it all the same
    ours: torch.Tensor  # which requests are of our own kinds

    @classmethod
    def draw(cls, batches: Batches, alike: torch.Tensor) -> Batch:
        """`alike`: the vectors of all tools before training."""
        examples = batches.examples
        requests, tools, variants = batches.draw()
        at = torch.tensor(tools, device=DEVICE)
        positive = positives(tools, [examples.relevant[row] for row in requests])
        return cls(
            requests=torch.tensor(requests, device=DEVICE),
            texts=at * VARIANTS + torch.tensor(variants, device=DEVICE),
            positive=positive,
            ignored=(alike[at[: len(requests)]] @ alike[at].T > SAME) & ~positive,
            ours=torch.tensor([examples.kind[row] in OUR_KINDS for row in requests], device=DEVICE),
        )


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


def contrast(queries: torch.Tensor, tools: torch.Tensor, batch: Batch) -> torch.Tensor:
    """For each positive: its own share against all negatives; the mean over the positives of a request."""
    scores = queries @ tools.T * CONTRAST_SCALE
    negatives = scores.masked_fill(batch.positive | batch.ignored, -1e4).logsumexp(1, keepdim=True)
    each = torch.logaddexp(scores, negatives) - scores
    found: torch.Tensor = ((each * batch.positive).sum(1) / batch.positive.sum(1)).mean()
    return found


@dataclass(frozen=True)
class Guide:
    """The vectors another encoder gives to all requests and texts: its similarities are to be learnt."""

    requests: torch.Tensor
    tools: torch.Tensor


def divergence(own: torch.Tensor, guided: torch.Tensor) -> torch.Tensor:
    """How far the own distribution over the batch's tools is from the guide's, summed over the requests."""
    own, guided = own * LIKENESS_SCALE, guided * LIKENESS_SCALE
    return kl_div(log_softmax(own, 1), softmax(guided, 1), reduction="sum")


def likeness(
    run: Run, queries: torch.Tensor, tools: torch.Tensor, batch: Batch, guides: tuple[Guide | None, Guide | None]
) -> torch.Tensor:
    """The divergence from the teacher for our own requests, from version 1 for the others; by request."""
    teacher, anchor = guides
    total = torch.zeros((), device=DEVICE)
    for guide, rows in ((teacher, batch.ours), (anchor, ~batch.ours)):
        if guide is not None:
            wanted, candidates = guide.requests[batch.requests[rows]].float(), guide.tools[batch.texts].float()
            total = total + divergence(queries[rows] @ tools.T, wanted @ candidates.T)
    if teacher is not None and run.tool_likeness:
        own = batch.ours.nonzero()[:, 0]
        candidates = teacher.tools[batch.texts].float()
        total = total + run.tool_likeness * divergence(tools[own] @ tools.T, candidates[own] @ candidates.T)
    return total / len(batch.requests)


def distance(vectors: tuple[torch.Tensor, torch.Tensor], batch: Batch, teacher: Guide) -> torch.Tensor:
    """One less the cosine with the teacher's vectors, of requests and of tools."""
    wanted = (teacher.requests[batch.requests].float(), teacher.tools[batch.texts].float())
    found: torch.Tensor = 2 - sum((own * other).sum(1).mean() for own, other in zip(vectors, wanted, strict=True))
    return found


def loss_of(
    run: Run, vectors: tuple[torch.Tensor, torch.Tensor], batch: Batch, guides: tuple[Guide | None, Guide | None]
) -> torch.Tensor:
    found = run.likeness * likeness(run, *vectors, batch, guides)
    return found + run.contrast * contrast(*vectors, batch) if run.contrast else found


# Runs


class Trainer:
    """What all runs share: the data, the examples, the weights to start with, and where results go."""

    def __init__(self, data: Path, starts: Path, out: Path) -> None:
        self.data, self.starts, self.out = Data(data), starts, out
        self.examples = build(self.data.bundle)

    def texts(self, kind: str) -> Texts:
        return Texts(kind, self.starts / kind)

    def open(self, kind: str, name: str = "") -> Encoder:
        """The weights of an earlier run, or those to start with."""
        model = Encoder(kind, self.starts / kind)
        if name:
            state = load(self.out / f"{name}.safetensors")[1]
            model.keep_layers(range(layers_of(state)))
            model.load_state_dict(state)
        return model.to(DEVICE).eval()

    def guide(self, name: str) -> Guide:
        """The vectors of an earlier run, or of version 1."""
        kind = "minilm" if name == VERSION_1 else load(self.out / f"{name}.safetensors")[0]
        model = self.open(kind, "" if name == VERSION_1 else name)
        pools = Pools.read(self.texts(kind), self.data, self.examples)
        return Guide(embed(model, pools.requests).half(), embed(model, pools.tools).half())

    def train(self, run: Run) -> dict[str, Any]:
        """One run: training, then figures at several shares of the trained weights."""
        torch.manual_seed(run.seed)
        texts = self.texts(run.model)
        original = self.open(run.model).state_dict()
        model = self.open(run.model, run.start)
        if run.layers:
            model.keep_layers(run.layers)
        if run.four_bits:
            for module in model.blocked():
                parametrize.register_parametrization(module, "weight", FourBits())
        if run.steps:
            self.fit(run, model, Pools.read(texts, self.data, self.examples))
        if run.four_bits:
            for module in model.blocked():
                parametrize.remove_parametrizations(module, "weight")
        trained = {name: value.detach().clone() for name, value in model.state_dict().items()}
        found = {}
        for share in run.measured:
            model.load_state_dict(mix([(share, trained), (1 - share, original)]))
            found[str(share)] = measure(model, texts, self.data)
            print(f"{run.name} share {share}: {brief(found[str(share)])}", flush=True)
        if run.steps:
            kept = mix([(run.kept, trained), (1 - run.kept, original)])
            save(run.model, kept, self.out / f"{run.name}.safetensors")
        return {"run": asdict(run), "figures": found}

    def fit(self, run: Run, model: Encoder, pools: Pools) -> None:
        """The training loop."""
        started = time.monotonic()
        guides = (self.guide(run.teacher) if run.teacher else None, self.guide(VERSION_1) if run.anchored else None)
        alike = embed(model, pools.tools)[::VARIANTS].clone()
        asked = embed(model, pools.requests)
        nearest = torch.cat([(part @ alike.T).topk(NEAREST).indices for part in asked.split(4096)]).cpu().numpy()
        batches = Batches(run, self.data, self.examples, nearest)
        print(run.name, {kind: len(rows) for kind, rows in batches.by_kind.items()}, flush=True)
        optimiser = torch.optim.AdamW(model.parameters(), lr=run.rate, weight_decay=0.01, fused=DEVICE == "cuda")
        warm = max(1, run.steps // 10)
        pace = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda step: min((step + 1) / warm, max(0.02, (run.steps - step) / (run.steps - warm + 1)))
        )
        model.train(not run.vectors)
        for step in range(run.steps):
            batch = Batch.draw(batches, alike)
            with parametrize.cached():
                vectors = (encode(model, pools.requests, batch.requests), encode(model, pools.tools, batch.texts))
            short = [normalize(one[:, : model.shape.short_dims], dim=-1) for one in vectors]
            loss = loss_of(run, vectors, batch, guides) + loss_of(run, (short[0], short[1]), batch, guides)
            if run.vectors and guides[0] is not None:
                loss = loss + run.vectors * distance(vectors, batch, guides[0])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            pace.step()
            if step % max(1, run.steps // 4) == 0:
                print(f"{run.name} step {step} loss {loss.item():.3f} {time.monotonic() - started:.0f} s", flush=True)


def main(data: str, starts: str, out: str, runs: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    target = Path(out)
    target.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(Path(data), Path(starts), target)
    results = []
    for item in json.loads(Path(runs).read_text()):
        results.append(trainer.train(Run(**item)))
        (target / f"results-{Path(runs).stem}.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:5])
