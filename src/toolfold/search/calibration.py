"""Turns the numbers behind a hit into the probability that the tool fits, and decides whether anything fits at all.

A logistic model of four numbers that mean the same in every catalogue: how similar the tool is, how far it stands
out, whether it does so only because everything else is far away, and whether tools that are not here would be nearer.
Its parameters lie in `calibration.json`, fitted on requests with known answers, on the same with their tools taken away
and on unrelated requests, and judged on sets left out of the fit (`training/calibrate.py`). One threshold serves every
entrance: `search_tool_by_category`, `search_nodes`, `use_tools`.
"""

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from toolfold.errors import ConfigError
from toolfold.search.ranker import Ranking
from toolfold.types import Hit, NodeHit

FILE = Path(__file__).with_name("calibration.json")


class _Calibration(Struct, frozen=True, kw_only=True):
    """`calibration.json`."""

    encoder: str
    """The version of the weights it was fitted with."""
    cohort: str
    """The hash of the background tools it was fitted with."""
    weights: dict[str, float]
    intercept: float
    threshold: float
    """Below it nothing fits."""


@cache
def _load_calibration() -> _Calibration:
    try:
        return msgspec.json.decode(FILE.read_bytes(), type=_Calibration)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"the calibration of search cannot be read: {error}", next_action="install toolfold again"
        ) from error


def features(ranking: Ranking, at: int) -> dict[str, float]:
    """What the model looks at for one hit.

    `near`: cosine. `apart`: the score against the highest that chance gives among so many tools. `alone`: how far above
    the catalogue it stands by meaning; great beside a small `near`, it says that the request is unrelated.
    `ours`: how much nearer than the nearest of the background tools (`ranker.py`); below nothing, it says the same.
    """
    by_chance = math.sqrt(2 * math.log(ranking.searched + 2))
    return {
        "near": float(ranking.similarity[at]),
        "apart": math.log1p(max(float(ranking.score[at] - ranking.prior[at]), 0.0) / by_chance),
        "alone": math.log1p(max(float(ranking.dense_z[at]), 0.0)),
        "ours": float(ranking.similarity[at]) - ranking.background,
    }


def confidences(ranking: Ranking, count: int) -> list[float]:
    """The probability for each of the first hits. Earlier choices do not count: they say nothing of fitting."""
    model = _load_calibration()
    return [_probability(model, features(ranking, at)) for at in range(min(count, len(ranking.rows)))]


def _probability(model: _Calibration, values: dict[str, float]) -> float:
    total = model.intercept + sum(weight * values[name] for name, weight in model.weights.items())
    return round(1 / (1 + math.exp(-max(min(total, 30.0), -30.0))), 4)


def fits(hits: Sequence[Hit] | Sequence[NodeHit]) -> bool:
    """Whether anything among the hits is good enough to be offered."""
    threshold = _load_calibration().threshold
    return any(hit.confidence >= threshold for hit in hits)
