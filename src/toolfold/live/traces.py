"""A live session on record: one JSON line an event, whole, in a file that only its owner may read."""

import os
import time
from pathlib import Path
from typing import Self

import msgspec

from toolfold.events import Event, Events

KEPT = 50


class Trace:
    """Writes every event of a session to `folder/<time>-<pid>.jsonl`; old traces are removed."""

    def __init__(self, folder: Path, events: Events) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for old in sorted(folder.glob("*.jsonl"))[: -(KEPT - 1)]:
            old.unlink(missing_ok=True)
        name = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        self.path = folder / f"{name}-{os.getpid()}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(self.path, flags, 0o600)
        self._unsubscribe = events.subscribe(self._write)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._unsubscribe()
        os.close(self._file)

    def _write(self, event: Event) -> None:
        line = {"event": event.name, "at": event.at, **event.data}
        os.write(self._file, msgspec.json.encode(line, enc_hook=str) + b"\n")
