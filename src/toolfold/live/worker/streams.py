"""The session's `sys.stdout` and `sys.stderr`: one object each for the whole session, whose target changes.

While an evaluation is captured they store what is written, bounded; otherwise they pass it to the real stream. The
objects never change, so that a logger that once took hold of `sys.stderr` goes on working.
"""

import io
import sys
from typing import Any

from toolfold.live.worker.limits import OUTPUT_MAX
from toolfold.live.worker.originals import BUILTINS

globals()["__builtins__"] = BUILTINS


class _CapturedText:
    """The head of what was written, and how much there was."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._left = OUTPUT_MAX
        self._dropped = 0

    def write(self, text: str) -> None:
        piece = str.__getitem__(text, slice(0, self._left))
        if piece:
            self._parts.append(piece)
            self._left -= len(piece)
        self._dropped += str.__len__(text) - len(piece)

    def text(self) -> str:
        head = "".join(self._parts)
        return f"{head}… (+{self._dropped} characters)" if self._dropped else head


class _ByteStream(io.RawIOBase):
    """`sys.stdout.buffer` during capture."""

    def __init__(self, stream: "_TextStream") -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._stream.write(bytes(data).decode("utf-8", "backslashreplace"))
        return len(data)


class _TextStream(io.TextIOBase):
    """One of the two streams."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.captured: _CapturedText | None = None
        self._bytes = _ByteStream(self)

    @property
    def encoding(self) -> str:  # type: ignore[override]  # the base declares an attribute
        return "utf-8"

    @property
    def buffer(self) -> Any:
        return self._bytes if self.captured is not None else getattr(self._real, "buffer", self._bytes)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if self.captured is not None:
            self.captured.write(text)
        elif self._real is not None:
            self._real.write(text)
        return len(text)

    def flush(self) -> None:
        if self.captured is None and self._real is not None:
            self._real.flush()

    def isatty(self) -> bool:
        return self.captured is None and self._real is not None and bool(self._real.isatty())

    def fileno(self) -> int:
        if self.captured is not None or self._real is None:
            raise io.UnsupportedOperation("fileno")
        return int(self._real.fileno())

    def close(self) -> None:
        """Does nothing: user code that closes `sys.stdout` would end the output of the session."""


class Streams:
    """Both streams of a session."""

    def __init__(self) -> None:
        self.out = sys.stdout = _TextStream(sys.stdout)
        self.err = sys.stderr = _TextStream(sys.stderr)

    def capture(self) -> None:
        self.out.captured = _CapturedText()
        self.err.captured = _CapturedText()

    def release(self) -> tuple[str, str]:
        """Ends the capture and returns what was written to each."""
        out, err = (stream.captured.text() if stream.captured else "" for stream in (self.out, self.err))
        self.out.captured = self.err.captured = None
        return out, err

    def flush(self) -> None:
        self.out.flush()
        self.err.flush()
