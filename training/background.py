"""Makes the background tools: `src/toolfold/search/weights/background.npz`.

    python training/background.py [--weights FOLDER] [--check]

What it is: the vectors of the tools in `training/background.txt`, as whole numbers with a scale, under the key of the
encoder that made them. The tools were thought up for this purpose and stand for all that tools do; none is copied from
a set or a server. Run it again after every change of the weights, and `calibrate.py` after it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from toolfold.search.encoder import WEIGHTS, Encoder
from toolfold.search.ranker import BACKGROUND_FILE
from toolfold.search.segment import quantise

TEXTS = Path(__file__).with_name("background.txt")


def texts() -> list[str]:
    return [line.strip() for line in TEXTS.read_text(encoding="utf-8").splitlines() if line.strip()]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--weights", type=Path, default=WEIGHTS, help="the folder of an encoder")
    arguments.add_argument("--check", action="store_true", help="compare with the file that is there, write nothing")
    given = arguments.parse_args()
    encoder = Encoder(given.weights)
    file = given.weights / BACKGROUND_FILE
    vectors, scales = quantise(encoder.tools(texts()))
    if given.check:
        with np.load(file) as held:
            same = np.array_equal(held["vectors"], vectors) and str(held["encoder"]) == encoder.record.key
        print("the same" if same else "not the same: run without --check")
        return
    with file.open("wb") as opened:
        np.savez(opened, vectors=vectors, scales=scales, encoder=np.array(encoder.record.key))
    print(len(vectors), "tools,", file.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
