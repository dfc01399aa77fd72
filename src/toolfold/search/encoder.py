"""The encoder at run time: texts in, unit vectors out, on onnxruntime, with the weights that lie beside this file.

Nothing is fetched and nothing is trained here. The runtime is loaded on the first text, so a process that only lists
tools never pays for it. One thread, so that a gateway's other work keeps its cores. One text at a time: the weights are
whole numbers scaled to what passes through them, so in a batch a vector would depend on its neighbours.
"""

import hashlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from toolfold.errors import ConfigError
from toolfold.search.arrays import Floats
from toolfold.search.wordpiece import WordPiece

WEIGHTS = Path(__file__).parent / "weights"
SENTENCE_TOKENS = 48
"""So a request of any length costs at most the whole's tokens and eight sentences of these."""


NO_TELEMETRY = ("ORT_DISABLE_TELEMETRY", "ORT_TELEMETRY_DISABLED")
"""onnxruntime reports on its use to its makers unless one of these is set before it is loaded: nothing leaves here."""


class _Limits(Struct, frozen=True):
    query: int = 64
    tool: int = 64


class EncoderInfo(Struct, frozen=True, rename={"files": "sha256", "limits": "max_tokens"}):
    """`encoder.json`: what the weights are."""

    name: str
    version: str
    dims: int
    files: dict[str, str]
    limits: _Limits = _Limits()

    @property
    def key(self) -> str:
        """Vectors of two encoders never mix: the key goes into every vector's own."""
        return f"{self.name}/{self.version}/{self.files.get('encoder.onnx', '')[:16]}/{self.limits.tool}"


class Encoder:
    """One set of weights. Safe to share between threads."""

    def __init__(self, folder: Path = WEIGHTS) -> None:
        self._folder = folder
        self.record = _read_info(folder)
        self._lock = threading.Lock()
        self._session: Any = None
        self._words: WordPiece | None = None

    @property
    def dims(self) -> int:
        return self.record.dims

    def queries(self, texts: Sequence[str]) -> Floats:
        """A request, and behind it its sentences, which are cut sooner."""
        whole = self.record.limits.query
        return self._encode(texts, [whole, *[min(whole, SENTENCE_TOKENS)] * (len(texts) - 1)])

    def tools(self, texts: Sequence[str]) -> Floats:
        return self._encode(texts, [self.record.limits.tool] * len(texts))

    def load(self) -> None:
        """Loads the runtime and the weights now rather than with the first text."""
        with self._lock:
            if self._session is None:
                _check_weights(self._folder, self.record)
                self._words = WordPiece.read(self._folder / "vocab.txt")
                self._session = _open_session(self._folder / "encoder.onnx")

    def _encode(self, texts: Sequence[str], limits: Sequence[int]) -> Floats:
        self.load()
        words = self._words
        assert words is not None  # noqa: S101  `load` has set it
        found = np.empty((len(texts), self.dims), dtype=np.float32)
        for row, (text, limit) in enumerate(zip(texts, limits, strict=False)):
            ids = np.array([words.encode(text, limit)], dtype=np.int64)
            found[row] = self._session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0][0]
        return found


def _read_info(folder: Path) -> EncoderInfo:
    try:
        return msgspec.json.decode((folder / "encoder.json").read_bytes(), type=EncoderInfo)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"the encoder's weights cannot be read: {error}",
            next_action="install toolfold again; its weights come with the package",
        ) from error


def _check_weights(folder: Path, record: EncoderInfo) -> None:
    """Compares the files with the hashes in their record."""
    for name, expected in record.files.items():
        found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        if found != expected:
            raise ConfigError(
                f"the encoder's file {name} is not the one its record names",
                next_action="install toolfold again; its weights come with the package",
            )


def _open_session(path: Path) -> Any:
    try:
        for switch in NO_TELEMETRY:
            os.environ.setdefault(switch, "1")
        import onnxruntime  # type: ignore[import-untyped]  # it ships no types
    except ImportError as error:
        raise ConfigError(
            "searching by meaning needs onnxruntime, which is not installed",
            next_action="install it with: pip install onnxruntime",
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
