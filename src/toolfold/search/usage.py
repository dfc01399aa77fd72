"""Learning from use: a tool that was chosen for a request, and called without error, rises for requests like it.

Local. What is kept is the request's vector, never its words, and the tool's hash; the
newest few thousand, in one file beside the index. The lift is bounded, so that habit never drowns a better match.
"""

from pathlib import Path

import numpy as np

from toolfold.errors import StoreDamaged
from toolfold.search.array_file import Columns, Floats, read_arrays, write_arrays
from toolfold.search.encoder import EncoderRecord
from toolfold.search.segment import hash64, quantise

MAX_CHOICES = 4096
# Requests less near than this have nothing to do with each other.
_MIN_SIMILARITY = 0.5
# Standard deviations that a tool gains when the very same request was made before.
LIFT = 3.0


class Usage:
    """The choices of one folder, made with one encoder: another's vectors mean something else. `None`: in memory."""

    def __init__(self, folder: Path | None, encoder: EncoderRecord) -> None:
        self._file = folder / f"usage-{hash64(encoder.key):016x}" if folder is not None else None
        self._dims = encoder.dims
        self._stamp: tuple[int, int] | None = None
        self._choices: Columns = self._read()

    def __len__(self) -> int:
        self._refresh()
        return len(self._choices["tool"])

    def _refresh(self) -> None:
        """Sees what other processes learned or forgot."""
        if self._file is not None and self._stamp != _stamp_of(self._file):
            self._choices = self._read()

    def forget(self) -> None:
        """Forgets every choice, those made with other encoders too."""
        if self._file is not None:
            for file in self._file.parent.glob("usage-*"):
                file.unlink(missing_ok=True)
        self._choices = self._read() if self._file is not None else _no_choices(self._dims)

    @staticmethod
    def are_alike(one: Floats, other: Floats) -> bool:
        """Whether two requests have to do with each other."""
        return float(one @ other) > _MIN_SIMILARITY

    def learn(self, request: Floats, tool_id: str) -> None:
        """Records that the tool served the request whose vector this is. Whoever shares the folder holds its lock."""
        self._refresh()
        vector, scale = quantise(request.reshape(1, -1))
        new = {"vector": vector, "scale": scale, "tool": np.array([hash64(tool_id)], dtype=np.uint64)}
        self._choices = {name: np.concatenate([self._choices[name], new[name]])[-MAX_CHOICES:] for name in new}
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_arrays(self._file, self._choices)
            self._stamp = _stamp_of(self._file)

    def lifts(self, request: Floats) -> dict[int, float]:
        """For a request, the hashes of tools chosen for requests like it, and what each gains."""
        self._refresh()
        choices = self._choices  # once: another thread may learn meanwhile
        numbers, scale = quantise(request.reshape(1, -1))
        products = np.einsum("rd,d->r", choices["vector"].astype(np.float32), numbers[0].astype(np.float32))
        near = products.astype(np.float64) * choices["scale"] * float(scale[0])
        lifts: dict[int, float] = {}
        for at in np.flatnonzero(near > _MIN_SIMILARITY).tolist():
            gain = LIFT * (min(float(near[at]), 1.0) - _MIN_SIMILARITY) / (1 - _MIN_SIMILARITY)
            tool = int(choices["tool"][at])
            lifts[tool] = max(lifts.get(tool, 0.0), gain)
        return lifts

    def _read(self) -> Columns:
        empty = _no_choices(self._dims)
        if self._file is None:
            return empty
        self._stamp = _stamp_of(self._file)
        try:
            choices = read_arrays(self._file)
        except (StoreDamaged, FileNotFoundError):
            return empty  # a ranking without its history is worth more than an error
        return choices if set(choices) == set(empty) and choices["vector"].shape[1:] == (self._dims,) else empty


def _no_choices(dims: int) -> Columns:
    return {
        "vector": np.zeros((0, dims), dtype=np.int8),
        "scale": np.zeros(0, dtype=np.float32),
        "tool": np.zeros(0, dtype=np.uint64),
    }


def _stamp_of(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns
