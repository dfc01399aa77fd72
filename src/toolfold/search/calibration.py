"""Turns the numbers behind a hit into the probability that the tool fits, and decides whether anything fits at all.

A logistic model of four numbers that mean the same in every catalogue: how similar the tool is, how far it stands
out, whether it does so only because everything else is far away, and whether tools that are not here would be nearer.

Where nothing fits, depends on who asks. A model that searches writes the words of tool descriptions, and what it cannot
find so is not there; a person's own words find less, and a refusal would be wrong more often. So the bar rises with the
probability that the request was written like a tool's description, read off its vector.

The parameters lie in `calibration.json` beside the encoder's weights, fitted on requests with known answers, on the
same with their tools taken away, on near misses and on unrelated requests (`training/calibrate.py`).
"""

import math
from functools import cache
from itertools import accumulate
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Struct

from toolfold.errors import ConfigError
from toolfold.search.array_file import Floats, Numbers
from toolfold.search.ranker import LEXICAL_WEIGHT, Ranking

FILE = "calibration.json"
# Hits that share out their confidences, so that the order of the ranking and of the confidences is one. How many are
# shown does not count.
RANKED_AT_LEAST = 10
# One rare word says little of fitting: above so many standard deviations words count no more.
_WORDS = 4.0
# Of the probability of the best hit: who calls a tool that has less after such a request wanted something else.
_CLEARLY_WORSE = 0.25


class _Bar(Struct, frozen=True):
    """Below it nothing fits: for a person's own words, and for the words of tool descriptions."""

    person: float
    model: float


class _Calibration(Struct, frozen=True, kw_only=True):
    """`calibration.json`."""

    encoder: str
    """The version of the weights it was fitted with."""
    cohort: str
    """The hash of the background tools it was fitted with."""
    weights: dict[str, float]
    intercept: float
    asker: list[float]
    """Weights for the vector of a request, and behind them the intercept: whether it reads like a description."""
    threshold: _Bar

    def bar(self, request: Floats) -> float:
        weights = np.array(self.asker, dtype=np.float64)
        described = 1 / (1 + math.exp(-float(np.dot(weights[:-1], request) + weights[-1])))
        share = min(max((described - 0.5) / 0.4, 0.0), 1.0)
        return self.threshold.person + share * (self.threshold.model - self.threshold.person)


@cache
def _load_calibration(folder: Path) -> _Calibration:
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=_Calibration)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"the calibration of search cannot be read: {error}", next_action="install toolfold again"
        ) from error


def features(ranking: Ranking) -> dict[str, Numbers]:
    """What the model looks at, for all hits.

    `near`: cosine. `apart`: the score against the highest that chance gives among so many tools. `alone`: how far above
    the catalogue it stands by meaning; great beside a small `near`, it says that the request is unrelated.
    `ours`: how much nearer than the nearest of the background tools (`ranker.py`); below nothing, it says the same.
    """
    by_chance = math.sqrt(2 * math.log(ranking.searched + 2))
    words = LEXICAL_WEIGHT * np.minimum(ranking.lexical_z, _WORDS)
    score = words + (1 - LEXICAL_WEIGHT) * ranking.dense_z - ranking.against
    return {
        "near": ranking.similarity,
        "apart": np.log1p(np.maximum(score, 0.0) / by_chance),
        "alone": np.log1p(np.maximum(ranking.dense_z, 0.0)),
        "ours": ranking.similarity - ranking.background,
    }


def _bar_of(ranking: Ranking) -> float:
    """The probability from which on a hit of this request fits."""
    return _load_calibration(ranking.weights).bar(ranking.request)


def judge(ranking: Ranking, *, alone: bool = False) -> list[tuple[float, bool]]:
    """For each hit the probability that it fits, and whether that is enough to offer it. Never rising.

    Earlier choices do not count: they say nothing of fitting. What a request names by its name fits. `alone`: what each
    hit has by itself, and whether that is enough, and not far less than the best has: whether it may have been meant.
    """
    model = _load_calibration(ranking.weights)
    values, bar = features(ranking), model.bar(ranking.request)
    total = model.intercept + sum(weight * values[name] for name, weight in model.weights.items())
    said: list[float] = np.round(1 / (1 + np.exp(-np.clip(total, -30.0, 30.0))), 4).tolist()
    if alone:
        bar = max(bar, _CLEARLY_WORSE * max(said, default=0.0))
    else:
        said[:RANKED_AT_LEAST] = sorted(said[:RANKED_AT_LEAST], reverse=True)
        said = [1.0 if at < ranking.named else least for at, least in enumerate(accumulate(said, min))]
    return [(confidence, confidence >= bar) for confidence in said]
