"""Learning from use: a tool that was chosen for a request, and called without error, rises for requests like it.

Local and off unless switched on. What is kept is the request's vector, never its words, and the tool's hash; the
newest few thousand, in one file beside the index. The lift is bounded, so that habit never drowns a better match.
"""

from pathlib import Path

import numpy as np

from toolfold.errors import StoreDamaged
from toolfold.search.arrays import Columns, Floats, read_arrays, write_arrays
from toolfold.search.encoder import EncoderInfo
from toolfold.search.segment import hash64, quantise

MAX_CHOICES = 4096
ALIKE = 0.5
"""Requests less near than this have nothing to do with each other."""
LIFT = 3.0
"""Standard deviations that a tool gains when the very same request was made before."""


class Usage:
    """The choices of one folder, made with one encoder: another's vectors mean something else. `None`: in memory."""

    def __init__(self, folder: Path | None, encoder: EncoderInfo) -> None:
        self._file = folder / f"usage-{hash64(encoder.key):016x}" if folder is not None else None
        self._dims = encoder.dims
        self._kept: Columns = self._read()

    def __len__(self) -> int:
        return len(self._kept["tool"])

    def learn(self, asked: Floats, tool_id: str) -> None:
        """Notes that the tool served the request whose vector this is."""
        vector, scale = quantise(asked.reshape(1, -1))
        new = {"vector": vector, "scale": scale, "tool": np.array([hash64(tool_id)], dtype=np.uint64)}
        self._kept = {name: np.concatenate([self._kept[name], new[name]])[-MAX_CHOICES:] for name in new}
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_arrays(self._file, self._kept)

    def lifts(self, asked: Floats) -> dict[int, float]:
        """For a request, the hashes of tools chosen for requests like it, and what each gains."""
        if not len(self):
            return {}
        numbers, scale = quantise(asked.reshape(1, -1))
        products = np.einsum("rd,d->r", self._kept["vector"].astype(np.float32), numbers[0].astype(np.float32))
        near = products.astype(np.float64) * self._kept["scale"] * float(scale[0])
        found: dict[int, float] = {}
        for at in np.flatnonzero(near > ALIKE).tolist():
            gain = LIFT * (min(float(near[at]), 1.0) - ALIKE) / (1 - ALIKE)
            tool = int(self._kept["tool"][at])
            found[tool] = max(found.get(tool, 0.0), gain)
        return found

    def _read(self) -> Columns:
        empty: Columns = {
            "vector": np.zeros((0, self._dims), dtype=np.int8),
            "scale": np.zeros(0, dtype=np.float32),
            "tool": np.zeros(0, dtype=np.uint64),
        }
        if self._file is None or not self._file.exists():
            return empty
        try:
            kept = read_arrays(self._file)
        except StoreDamaged:
            return empty  # habits are worth no error
        return kept if set(kept) == set(empty) and kept["vector"].shape[1:] == (self._dims,) else empty
