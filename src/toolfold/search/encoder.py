"""The encoder at run time: texts in, unit vectors out, on onnxruntime, with the weights that lie beside this file.

Nothing is fetched and nothing is trained here. The runtime is loaded on the first text, so a process that only lists
tools never pays for it. One thread, so that a gateway's other work keeps its cores. One text at a time: the weights are
whole numbers scaled to what passes through them, so in a batch a vector would depend on its neighbours.

Texts are cut by BERT's lower-case WordPiece, which gives the same ids as the reference tokeniser the encoder was
trained with; only a literal `[MASK]` stays text here.
"""

import hashlib
import os
import re
import threading
import unicodedata
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from toolfold.containers import BoundedDict
from toolfold.errors import ConfigError
from toolfold.search.array_file import Floats

__all__ = ["shared_encoder"]

UNKNOWN = "[UNK]"
# What stands before and behind a text.
_FRAME = ("[CLS]", "[SEP]")
# A longer word is unknown, as in the reference.
MAX_WORD = 100
# Words cached with their pieces. A full cache starts anew: cheaper than keeping an order in this hot path.
_CACHED_WORDS = 65_536

_ASCII = re.compile(r"[a-z0-9]+|[!-/:-@\[-`{-~]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_DROPPED = frozenset(("Cc", "Cf", "Co", "Cs"))
_IDEOGRAPH = re.compile(
    "([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ceaf\U0002f800-\U0002fa1f])"
)


class _WordPiece:
    """One vocabulary. `encode` is a pure function of the text; only its memory of words grows."""

    def __init__(self, vocabulary: list[str], frame: tuple[str, str] = _FRAME) -> None:
        self._ids = {piece: number for number, piece in enumerate(vocabulary)}
        self._unknown = self._ids[UNKNOWN]
        self._first, self._last = (self._ids[mark] for mark in frame)
        self._cache: dict[str, tuple[int, ...]] = {}

    @classmethod
    def read(cls, path: Path, frame: tuple[str, str] = _FRAME) -> "_WordPiece":
        return cls(path.read_text(encoding="utf-8").split("\n")[:-1], frame)

    def encode(self, text: str, limit: int) -> list[int]:
        """At most `limit` ids, the two frame marks counted. Text far behind the limit is not looked at."""
        text = text[: limit * 32]
        ids = [self._first]
        for word in _basic_words(text):
            ids.extend(self._pieces(word))
            if len(ids) >= limit:
                del ids[limit - 1 :]
                break
        ids.append(self._last)
        return ids

    def _pieces(self, word: str) -> tuple[int, ...]:
        pieces = self._cache.get(word)
        if pieces is None:
            if len(self._cache) >= _CACHED_WORDS:
                self._cache.clear()
            pieces = self._cache[word] = self._cut(word)
        return pieces

    def _cut(self, word: str) -> tuple[int, ...]:
        """The longest listed piece from the left, again and again."""
        if len(word) > MAX_WORD:
            return (self._unknown,)
        pieces: list[int] = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = word[start:end] if start == 0 else "##" + word[start:end]
                number = self._ids.get(piece)
                if number is not None:
                    pieces.append(number)
                    start = end
                    break
            else:
                return (self._unknown,)
        return tuple(pieces)


def _basic_words(text: str) -> list[str]:
    """Lower-case words and single punctuation marks."""
    if text.isascii():
        return _ASCII.findall(_CONTROL.sub("", text).lower())
    plain = "".join(_cleaned(mark) for mark in text)
    plain = unicodedata.normalize("NFD", _IDEOGRAPH.sub(r" \1 ", plain))
    lower = "".join(mark.lower() for mark in plain if unicodedata.category(mark) != "Mn")
    return "".join(f" {mark} " if _is_punctuation(mark) else mark for mark in lower).split()


def _cleaned(mark: str) -> str:
    if mark in "\t\n\r":
        return " "
    if mark == "\ufffd" or unicodedata.category(mark) in _DROPPED:
        return ""
    return " " if mark.isspace() else mark


def _is_punctuation(mark: str) -> bool:
    if mark.isascii():
        return mark.isprintable() and not mark.isalnum() and mark != " "
    return unicodedata.category(mark)[0] == "P"


WEIGHTS = Path(__file__).parent / "weights"
# So a request of any length costs at most the whole's tokens and eight sentences of these.
SENTENCE_TOKENS = 48
# Requests whose vectors are kept for the next question about them.
_REMEMBERED = 16


# onnxruntime reports on its use to its makers unless one of these is set before it is loaded: nothing leaves here.
NO_TELEMETRY = ("ORT_DISABLE_TELEMETRY", "ORT_TELEMETRY_DISABLED")


class _Limits(Struct, frozen=True):
    query: int = 64
    tool: int = 64


class EncoderRecord(Struct, frozen=True, rename={"files": "sha256", "limits": "max_tokens"}):
    """`encoder.json`: what the weights are."""

    name: str
    version: str
    dims: int
    files: dict[str, str]
    limits: _Limits = _Limits()
    frame: tuple[str, str] = _FRAME

    @property
    def key(self) -> str:
        """Vectors of two encoders never mix: the key goes into every vector's own."""
        return f"{self.name}/{self.version}/{self.files.get('encoder.onnx', '')[:16]}/{self.limits.tool}"


class Encoder:
    """One set of weights. Safe to share between threads."""

    def __init__(self, folder: Path = WEIGHTS) -> None:
        self.folder = folder
        self.record = _read_record(folder)
        self._lock = threading.Lock()
        self._session: Any = None
        self._words: _WordPiece | None = None
        self._asked: BoundedDict[tuple[str, ...], Floats] = BoundedDict(_REMEMBERED)

    @property
    def dims(self) -> int:
        return self.record.dims

    def queries(self, texts: Sequence[str]) -> Floats:
        """A request, and behind it its sentences, which are cut sooner."""
        asked = tuple(texts)
        # Tools, categories, hints and learning ask for the vectors of one request within moments.
        vectors = self._asked.get(asked)
        if vectors is None:
            whole = self.record.limits.query
            vectors = self._encode(asked, [whole, *[min(whole, SENTENCE_TOKENS)] * (len(asked) - 1)])
            vectors.flags.writeable = False
            with self._lock:
                self._asked[asked] = vectors
        return vectors

    def tools(self, texts: Sequence[str]) -> Floats:
        return self._encode(texts, [self.record.limits.tool] * len(texts))

    def load(self) -> None:
        """Loads the runtime and the weights now rather than with the first text."""
        with self._lock:
            if self._session is None:
                _check_weights(self.folder, self.record)
                self._words = _WordPiece.read(self.folder / "vocab.txt", self.record.frame)
                self._session = _open_session(self.folder / "encoder.onnx")

    def _encode(self, texts: Sequence[str], limits: Sequence[int]) -> Floats:
        self.load()
        words = self._words
        assert words is not None  # noqa: S101  `load` has set it
        vectors = np.empty((len(texts), self.dims), dtype=np.float32)
        for row, (text, limit) in enumerate(zip(texts, limits, strict=False)):
            ids = np.array([words.encode(text, limit)], dtype=np.int64)
            vectors[row] = self._session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0][0]
        return vectors


@cache
def shared_encoder(name: str = "small") -> Encoder:
    """One of each for the process: loading it takes a tenth of a second."""
    return Encoder(_weights_of(name))


def _weights_of(name: str) -> Path:
    """The folder of the encoder that `search.encoder` names. Raises `ConfigError` where its package is absent."""
    if name == "small":
        return WEIGHTS
    package = find_spec(f"toolfold_{name}")
    if package is None or package.origin is None:
        raise ConfigError(
            f'search.encoder = "{name}" needs the package toolfold-{name}, which is not installed',
            next_action=f"install it with: pip install 'toolfold[{name}]', or set search.encoder = \"small\"",
        )
    return Path(package.origin).parent / "weights"


def _read_record(folder: Path) -> EncoderRecord:
    try:
        return msgspec.json.decode((folder / "encoder.json").read_bytes(), type=EncoderRecord)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"the encoder's weights cannot be read: {error}",
            next_action="install toolfold again; its weights come with the package",
        ) from error


def _check_weights(folder: Path, info: EncoderRecord) -> None:
    """Compares the files with the hashes in their record."""
    for name, expected in info.files.items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != expected:
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
    # One thread: the runtime would otherwise spin on every core between texts.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # The arena keeps the memory of the longest text for good.
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
