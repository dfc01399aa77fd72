"""Questions that were written without sight of the program: how many are answered, and how often an answer misleads.

`questions.toml` has the requests, `found.py` and `made.py` the documents with what is true of them, `judge.py` the
rules. Alone: `python -m benchmarks.outputs.asked`.
"""

import statistics
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from subprocess import SubprocessError
from typing import Any

from msgspec import Struct

from benchmarks.outputs.asked.found import FOUND, Document, Truth
from benchmarks.outputs.asked.judge import Verdict, answered, judge
from benchmarks.outputs.asked.made import MADE
from toolfold import tokens
from toolfold.outputs.local.answer import answer
from toolfold.outputs.local.index import IndexCache

Way = Callable[[Path, str], str]
"""Another way to answer a request about a file."""


class Asked(Struct, frozen=True):
    """A request with what is true; without a truth, the document does not say."""

    name: str
    kind: str
    request: str
    truth: Truth | None


class Outcome(Struct, frozen=True):
    asked: Asked
    right: dict[str, bool]
    verdict: Verdict
    size: int


def measure(folder: Path, budget: int, baselines: Mapping[str, Way]) -> dict[str, Any]:
    """Asks all that can be asked here; `absent` says which documents are not there, and why."""
    outcomes: list[Outcome] = []
    absent: dict[str, str] = {}
    for name, questions in questions_by_document().items():
        try:
            document = {**FOUND, **MADE}[name]()
        except (OSError, ImportError, LookupError, TypeError, ValueError, SubprocessError) as error:
            absent[name] = f"{type(error).__name__}: {error}"
            continue
        path = folder / name
        path.write_bytes(document.data)
        outcomes += ask(path, document, questions, budget, baselines)
        path.unlink()
    return {**figures(outcomes), "absent": absent}


def questions_by_document() -> dict[str, dict[str, list[str]]]:
    return tomllib.loads(Path(__file__).with_name("questions.toml").read_text(encoding="utf-8"))


def ask(
    path: Path, document: Document, questions: dict[str, list[str]], budget: int, baselines: Mapping[str, Way]
) -> Iterator[Outcome]:
    indexes, text = IndexCache(), decoded(document.data)
    for name, (kind, request) in questions.items():
        for word, value in document.words.items():
            request = request.replace(f"{{{word}}}", value)  # noqa: PLW2901
        truth = None if kind == "unanswerable" else document.truth[name]
        asked = Asked(f"{path.name}.{name}", kind, request, truth)
        given = answer(indexes, path, request, budget)
        right = {}
        if truth is not None:
            texts = {"answered": given, **{way: make(path, request) for way, make in baselines.items()}}
            right = {way: answered(found, text, kind, truth) for way, found in texts.items()}
        yield Outcome(asked, right, judge(given, text, kind, truth), tokens.count(given))


def decoded(data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def figures(outcomes: list[Outcome]) -> dict[str, Any]:
    """Shares by kind; questions without an answer count only as misleading, and with the size of what they get."""
    kinds: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        kinds[outcome.asked.kind].append(outcome)
    sizes = [outcome.size for outcome in kinds["unanswerable"]]
    unanswerable = shares(kinds.pop("unanswerable"))
    return {
        "all": shares([outcome for outcome in outcomes if outcome.asked.truth is not None]),
        **{kind: shares(kinds[kind]) for kind in sorted(kinds)},
        "unanswerable": {
            **unanswerable,
            "median_tokens": statistics.median(sizes or [0]),
            "most_tokens": max(sizes or [0]),
        },
        "missed": [o.asked.name for o in outcomes if o.asked.truth is not None and not o.right["answered"]],
        "misleading": {o.asked.name: o.verdict.misleading for o in outcomes if o.verdict.misleading},
    }


def shares(outcomes: list[Outcome]) -> dict[str, Any]:
    asked = len(outcomes)
    ways = outcomes[0].right if outcomes else {}
    counted = {way: round(sum(outcome.right[way] for outcome in outcomes) / asked, 4) for way in ways}
    misleading = sum(bool(outcome.verdict.misleading) for outcome in outcomes)
    beside = sum(bool(outcome.verdict.beside) and not outcome.verdict.misleading for outcome in outcomes)
    return {"questions": asked, **counted, "misleading": misleading, "beside_the_question": beside}
