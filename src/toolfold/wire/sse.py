"""Event streams, read piece by piece in linear time and bounded memory.

Above: the HTTP transports. Below: `spill.py`. The data of an event over the cap goes to a file where there is a place
for it; else the event is skipped, and said.
"""

from collections.abc import Iterator

from msgspec import Struct

from toolfold.wire.spill import Spill, SpillPolicy

_DATA = b"data:"


class Event(Struct, frozen=True):
    """One event. `data` is what its data lines say together, or `spill` holds it; `oversized`: it was skipped."""

    data: bytes = b""
    name: str = "message"
    id: str | None = None
    retry_ms: int | None = None
    oversized: bool = False
    spill: Spill | None = None


class SseParser:
    """Feed it bytes, take the events that are complete. Lines may end with LF, CR LF or CR."""

    def __init__(self, max_bytes: int, policy: SpillPolicy | None = None) -> None:
        self._max = max_bytes if policy is None else policy.threshold
        self._policy = policy
        self._spill: Spill | None = None
        self._spilling = False
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
        self._has_data = False
        self._size = 0
        self._spill = None

    def close(self) -> None:
        """The stream ended: what was not complete is let go of."""
        if self._spill is not None:
            self._spill.close()
            self._spill = None

    def feed(self, chunk: bytes) -> Iterator[Event]:
        # CR LF may be cut in two by the chunks.
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
        if self._spilling and self._spill is not None:
            self._spill.write(piece)
        elif self._size <= self._max:
            self._partial.append(piece)
        elif not self._overflow(piece):
            self._oversized = True
            self._partial = [b":"]  # what is left of the line is skipped like a comment
            self._data = []

    def _overflow(self, piece: bytes) -> bool:
        """The event got too large to be held: if its data makes it so, the data goes to a file from here on."""
        line = b"".join((*self._partial, piece))
        if self._policy is None or self._oversized:
            return False
        if self._spill is None:
            self._spill = self._policy.open([b"\n".join(self._data)] if self._data else [])
        if not line.startswith(_DATA) or len(line) == len(_DATA):
            # Any other line may still be a short one; a long one says nothing that is needed.
            self._partial = [b":" if line.startswith(b":") or len(line) > self._max else line]
            return True
        if self._data:
            self._spill.write(b"\n")
        self._spill.write(line[len(_DATA) :].removeprefix(b" "))
        self._data, self._partial = [b""], []
        self._has_data = self._spilling = True
        return True

    def _line(self, rest: bytes) -> Event | None:
        self._keep(rest)
        if self._spilling:
            self._spilling = False
            return None
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
            self._add_data(value)
        elif name == b"event":
            self._name = value.decode("utf-8", "replace")
        # The standard: an id with a NUL is ignored.
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) < 9:
            self._retry = int(value)

    def _add_data(self, value: bytes) -> None:
        self._has_data = True
        if self._spill is not None:
            self._spill.write(b"\n" + value if self._data else value)
            self._data = [b""]
        elif not self._oversized:
            self._data.append(value)

    def _finish(self) -> Event | None:
        something = self._has_data or self._oversized or self._id is not None or self._retry is not None
        data = b"" if self._spill is not None else b"\n".join(self._data)
        event = Event(data, self._name, self._id, self._retry, self._oversized, self._spill)
        self._clear()
        return event if something else None
