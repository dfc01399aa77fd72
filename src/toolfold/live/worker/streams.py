"""The session's `sys.stdout` and `sys.stderr`: one object each for the whole session, whose target changes.

While an evaluation is captured they keep what is written, bounded; else they hand it on to the real stream. A logger
that took hold of `sys.stderr` once therefore goes on working.
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
        found = "".join(self._parts)
        return f"{found}… (+{self._dropped} characters)" if self._dropped else found


class _ByteStream(io.RawIOBase):
    """What stands under `sys.stdout.buffer`."""

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
        """Closing would end the output of the session: it is passed over."""


class Streams:
    """Both streams of a session."""

    def __init__(self) -> None:
        self.out = _TextStream(sys.stdout)
        self.err = _TextStream(sys.stderr)
        sys.stdout = self.out
        sys.stderr = self.err

    def capture(self) -> None:
        self.out.captured = _CapturedText()
        self.err.captured = _CapturedText()

    def release(self) -> tuple[str, str]:
        """What was written since `capture`, and from now on the real streams again."""
        found = tuple(stream.captured.text() if stream.captured else "" for stream in (self.out, self.err))
        self.out.captured = self.err.captured = None
        return found[0], found[1]

    def flush(self) -> None:
        for stream in (self.out, self.err):
            stream.flush()
