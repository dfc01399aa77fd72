"""A live session on record: one JSON line an event, whole, in a file that only its owner may read."""

import os
import time
from pathlib import Path
from typing import Self

import msgspec

from toolfold.events import Event, Events
from toolfold.storage.journal import Journal

KEPT = 50


class Trace:
    """Writes every event of a session to `folder/<time>-<pid>.jsonl`; old traces are removed."""

    def __init__(self, folder: Path, events: Events) -> None:
        name = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        self._journal = Journal(folder / f"{name}-{os.getpid()}.jsonl", kept=KEPT)
        self._unsubscribe = events.subscribe(self._write)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._unsubscribe()
        self._journal.close()

    def _write(self, event: Event) -> None:
        line = {"event": event.name, "at": event.at, **event.data}
        self._journal.write(msgspec.json.encode(line, enc_hook=str))
