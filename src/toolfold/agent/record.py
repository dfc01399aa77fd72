"""A run as a file: one JSON line an event, written as it happens, readable by its owner alone.

An event says what, where in the run (`path` names a sub-agent, "" is the run itself), and what came in and out. Times
stand in `at` and `seconds` and nowhere else: two runs are the same when everything but those is. A command is written
before it is done and after, so that a run that breaks off never repeats what it may have done already.
"""

import os
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

import msgspec

from toolfold.errors import ConfigError

Event = dict[str, Any]
TIMES = ("at", "seconds")

Listener = Callable[[Event], None]


def new_run_id() -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}"


class Record:
    """Where the events of a run go. Without a file they are only kept."""

    def __init__(self, file: Path | None = None, *, listener: Listener | None = None) -> None:
        self.file = file
        self.events: list[Event] = []
        self._listener = listener
        self._out: IO[bytes] | None = None
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._out = os.fdopen(handle, "ab", buffering=0)

    def write(self, event: str, path: str, **data: Any) -> None:
        line: Event = {"event": event, "path": path, "at": round(time.time(), 3), **data}
        encoded = msgspec.json.encode(line, enc_hook=str)
        self.events.append(msgspec.json.decode(encoded))
        if self._out is not None:
            self._out.write(encoded + b"\n")
        if self._listener is not None:
            self._listener(self.events[-1])

    def close(self) -> None:
        if self._out is not None:
            self._out.close()
            self._out = None


def read_record(file: Path) -> list[Event]:
    """The events of a recorded run. A last line that was cut off by a crash is left out."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(
            f"the run {file.stem} cannot be read: {os.strerror(error.errno or 0)}",
            next_action="see `toolfold agent --runs` for those that are there",
        ) from error
    found: list[Event] = []
    for number, line in enumerate(lines):
        try:
            found.append(msgspec.json.decode(line, type=dict))
        except msgspec.DecodeError as error:
            if number == len(lines) - 1:
                break
            raise ConfigError(
                f"line {number + 1} of {file} is no event: {error}", next_action="run the task anew"
            ) from error
    if not found or found[0].get("event") != "run.started":
        raise ConfigError(f"{file} holds no run", next_action="run the task anew")
    return found


def comparable(events: Iterable[Event]) -> list[Event]:
    """The events without their times, in an order that does not depend on which of two parallel commands was faster."""
    found = [{key: value for key, value in event.items() if key not in TIMES} for event in events]
    return sorted(found, key=_place)


ORDER = ("run.started", "turn.asked", "turn.answered", "command.started", "command.done", "history.stored", "run.ended")


def _place(event: Event) -> tuple[str, bool, int, int, int]:
    name = event["event"]
    return event["path"], name == ORDER[-1], event.get("turn", 0), ORDER.index(name), event.get("index", 0)
