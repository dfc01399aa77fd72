"""Foreign tools to compare a request with: a fixed, small crowd that stands for all that tools do.

A request that comes nearer to tools which are not here than to any that is, is of another world. The crowd must be
broad: where it lacks a trade, requests of that trade look at home everywhere. It never shows in a result. Its vectors
lie beside the encoder's weights, made by `training/cohort.py` and worth nothing with another encoder. `calibrate.py`
uses the number.
"""

from functools import cache

import numpy as np

from toolfold.errors import ConfigError
from toolfold.search import dense as fuse
from toolfold.search.arrays import Floats, Numbers
from toolfold.search.dense import DenseScorer
from toolfold.search.encoder import WEIGHTS

FILE = WEIGHTS / "cohort.npz"
NEAREST = 30


@cache
def load_background(encoder: str) -> tuple[Floats, Numbers]:
    """Vectors as whole numbers, and their scales. `encoder` is the key of the one that asks."""
    try:
        with np.load(FILE) as held:
            made_by = str(held["encoder"])
            vectors, scales = held["vectors"].astype(np.float32), held["scales"].astype(np.float64)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"the foreign tools of search cannot be read: {error}", next_action="install toolfold again"
        ) from error
    if made_by != encoder:
        raise ConfigError(
            f"the foreign tools of search were made with the encoder {made_by}, not with {encoder}",
            next_action="install toolfold again; after training, run training/cohort.py and training/calibrate.py",
        )
    return vectors, scales


def background_similarity(dense: DenseScorer, asked: Floats) -> float:
    """The mean nearness of the thirty foreign tools that come nearest."""
    near = np.sort(fuse.best_similarity(dense.compared(asked, *load_background(dense.key))))
    return round(float(near[-NEAREST:].mean()), 7)
