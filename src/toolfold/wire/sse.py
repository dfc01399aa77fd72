"""Event streams, read piece by piece in linear time and bounded memory.

Above: the HTTP transports. An event over the cap is skipped, and said.
"""

from collections.abc import Iterator

from msgspec import Struct


class Event(Struct, frozen=True):
    """One event. `data` is what its data lines say together; `oversized` says that it was too large to keep."""

    data: bytes = b""
    name: str = "message"
    id: str | None = None
    retry_ms: int | None = None
    oversized: bool = False


class SseParser:
    """Feed it bytes, take the events that are complete. Lines may end with LF, CR LF or CR."""

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._partial: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._start = True
        self._clear()

    def _clear(self) -> None:
        self._data: list[bytes] = []
        self._name = "message"
        self._id: str | None = None
        self._retry: int | None = None
        self._oversized = False
        self._seen = False
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[Event]:
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            event = self._line(chunk[start:end])
            start = end + 1
            if event is not None:
                yield event
        self._keep(chunk[start:])

    def _keep(self, piece: bytes) -> None:
        if not piece:
            return
        self._size += len(piece)
        if self._size > self._max:
            self._oversized = True
            self._partial = [b":"]  # what is left of the line is skipped like a comment
            self._data = []
        else:
            self._partial.append(piece)

    def _line(self, rest: bytes) -> Event | None:
        self._keep(rest)
        line = b"".join(self._partial)
        self._partial = []
        if self._start:
            line = line.removeprefix(b"\xef\xbb\xbf")
            self._start = False
        if not line:
            return self._finish()
        name, _, value = line.partition(b":")
        self._field(name, value.removeprefix(b" "))
        return None

    def _field(self, name: bytes, value: bytes) -> None:
        if name == b"data":
            self._seen = True
            if not self._oversized:
                self._data.append(value)
        elif name == b"event":
            self._name = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) < 9:
            self._retry = int(value)

    def _finish(self) -> Event | None:
        something = self._seen or self._oversized or self._id is not None or self._retry is not None
        event = Event(b"\n".join(self._data), self._name, self._id, self._retry, self._oversized)
        self._clear()
        return event if something else None
