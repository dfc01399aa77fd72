"""Large outputs: what storing costs, and how often a small extract made without a model holds the answer.

Beside each share stand two baselines in the same budget: the top and bottom of the document, and a plain search for the
rarest word of the request. Times are of this machine at this moment.
"""

import asyncio
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.measurement import environment, percentile
from benchmarks.outputs import asked
from benchmarks.outputs.documents import KINDS, Question, write
from benchmarks.outputs.recorded import questions_about, recorded_texts
from benchmarks.outputs.sources import questions_about_source, source_texts
from toolfold import tokens
from toolfold.outputs.local.answer import answer
from toolfold.outputs.local.index import IndexCache
from toolfold.outputs.truncate import truncate_file
from toolfold.words import stop_words

BUDGET = 2000
MEGABYTE = 1_000_000
SIZES = {1: 40, 10: 20, 100: 8}
"""Megabytes → questions of each kind."""
SEED = 20260728


def run(
    data: Path | None = None, *, sizes: dict[int, int] | None = None, stored_bytes: int = 1 << 30
) -> dict[str, Any]:
    metrics: dict[str, Any] = {"budget_tokens": BUDGET, "repetitions": 1}
    with tempfile.TemporaryDirectory(prefix="toolfold-bench-") as name:
        folder = Path(name)
        metrics["storing"] = storing(folder, stored_bytes)
        metrics["generated"], metrics["time"] = generated(folder, sizes or SIZES)
        metrics["recorded"] = (
            recorded(folder, data) if data is not None else "give --data to measure on recorded results"
        )
        metrics["sources"] = ask_about(folder, source_texts(), questions_about_source)
        metrics["asked"] = asked.measure(
            folder, BUDGET, {"top_and_bottom": lambda path, _: truncate_file(path, BUDGET), "grep": rarest_word}
        )
        metrics["counting"] = counting()
    return {"name": "outputs", "metrics": metrics, "environment": environment("numpy", "rs-bpe", "msgspec")}


def storing(folder: Path, size: int) -> Any:
    """Storing a result that a server sends over stdio, beside `cat` through a pipe."""
    from benchmarks.outputs.storage import measure

    return asyncio.run(measure(folder, size))


class Tally:
    """Shares of questions answered, by way."""

    def __init__(self) -> None:
        self.asked = 0
        self.hits: dict[str, int] = defaultdict(int)
        self.seconds: list[float] = []
        self.missed: list[str] = []

    def ask(self, indexes: IndexCache, path: Path, question: Question) -> None:
        started = time.perf_counter()
        text = answer(indexes, path, question.request, BUDGET)
        self.seconds.append(time.perf_counter() - started)
        self.asked += 1
        ways = {
            "extract": text,
            "top_and_bottom": truncate_file(path, BUDGET),
            "grep": rarest_word(path, question.request),
        }
        for way, given in ways.items():
            self.hits[way] += holds(given, question.answer)
        if not holds(text, question.answer):
            self.missed.append(question.request)

    def shares(self) -> dict[str, Any]:
        shares = {way: round(count / max(1, self.asked), 4) for way, count in self.hits.items()}
        return {"questions": self.asked, **shares, "missed": self.missed[:5]}


def holds(text: str, wanted: str) -> bool:
    """Blanks after a colon are no difference."""
    return wanted in text or wanted in text.replace('": ', '":')


def rarest_word(path: Path, request: str) -> str:
    """What a plain search for the rarest word of the request prints, cut at the budget."""
    data = path.read_bytes()
    words = [word.strip(".,?!()'\"") for word in request.split()]
    counts = {word: data.count(word.encode()) for word in words if word and word.lower() not in stop_words("documents")}
    there = {word: count for word, count in counts.items() if count}
    if not there:
        return ""
    word = min(there, key=lambda item: there[item]).encode()
    shown: list[str] = []
    room, at = BUDGET * 8, data.find(word)
    while at >= 0 and room > 0:
        start, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
        end = len(data) if end < 0 else end
        line = data[start : min(end, start + room)].decode(errors="replace")
        shown.append(line)
        room -= len(line) + 1
        at = data.find(word, end)
    text = "\n".join(shown)
    while tokens.count(text) > BUDGET:
        text = text[: int(len(text) * 0.9)]
    return text


def generated(folder: Path, sizes: dict[int, int]) -> tuple[dict[str, Any], dict[str, Any]]:
    shares: dict[str, Any] = {}
    times: dict[str, Any] = {}
    total = Tally()
    for size, count in sizes.items():
        for kind in KINDS:
            path = folder / f"document-{size}"
            questions = write(kind, path, size * MEGABYTE, SEED + size, count)
            tally, indexes = Tally(), IndexCache()
            for question in questions:
                tally.ask(indexes, path, question)
            shares[f"{kind}, {size} MB"] = tally.shares()
            if size == max(sizes):
                started = time.perf_counter()
                answer(indexes, path, questions[-1].request, BUDGET)
                times[kind] = {
                    "first_s": round(tally.seconds[0], 3),
                    "next_median_s": round(statistics.median(tally.seconds[1:] or [0]), 3),
                    "next_p95_s": round(percentile(tally.seconds[1:], 0.95), 3),
                    "same_again_s": round(time.perf_counter() - started, 3),
                }
            total.asked += tally.asked
            for way, hits in tally.hits.items():
                total.hits[way] += hits
            path.unlink()
    return {"all": total.shares(), **shares}, times


def recorded(folder: Path, data: Path) -> dict[str, Any]:
    return ask_about(folder, recorded_texts(data), questions_about)


def ask_about(
    folder: Path,
    texts: Iterable[tuple[str, str]],
    make: Callable[[str, random.Random, int], list[Question]],
) -> dict[str, Any]:
    """Shares over texts that are there, with questions made from random places in them."""
    shares: dict[str, Any] = {}
    total = Tally()
    for name, text in texts:
        rng = random.Random(SEED)
        path = folder / "recorded"
        path.write_text(text, encoding="utf-8")
        tally, indexes = Tally(), IndexCache()
        for question in make(text, rng, 30):
            tally.ask(indexes, path, question)
        shares[name] = tally.shares()
        total.asked += tally.asked
        for way, hits in tally.hits.items():
            total.hits[way] += hits
    return {"all": total.shares(), **shares}


def counting() -> dict[str, float]:
    """Counting tokens, in megabytes a second."""
    text = "The quick brown fox jumps over the lazy dog; id=4711, user=ada@example.org.\n" * 20_000
    tokens.count(text[:1000])
    started = time.perf_counter()
    tokens.count(text)
    return {"mb_per_s": round(len(text) / MEGABYTE / (time.perf_counter() - started), 1)}
