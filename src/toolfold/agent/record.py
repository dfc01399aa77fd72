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
from typing import Any

import msgspec
from msgspec import Struct

from toolfold.errors import ConfigError
from toolfold.storage.journal import Journal

Event = dict[str, Any]
_TIME_FIELDS = ("at", "seconds")
_RUNS_MAX = 500
"""Runs in a folder; older ones go."""

_Listener = Callable[[Event], None]


def new_run_id() -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}"


class RunRecord:
    """Where the events of a run go: to a file, which is made with the first of them, or else into `events`."""

    def __init__(self, file: Path | None = None, *, listener: _Listener | None = None) -> None:
        self.events: list[Event] = []
        self._journal = None if file is None else Journal(file, kept=_RUNS_MAX)
        self._listener = listener

    def write(self, event: str, path: str, **data: Any) -> None:
        encoded = msgspec.json.encode({"event": event, "path": path, "at": round(time.time(), 3), **data}, enc_hook=str)
        if self._journal is not None:
            self._journal.write(encoded)
        else:
            self.events.append(msgspec.json.decode(encoded))
        if self._listener is not None:
            self._listener(msgspec.json.decode(encoded))

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()


def load_record(file: Path) -> list[Event]:
    """The events of a recorded run. A last line that was cut off by a crash is left out."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise _unreadable(file, error) from error
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
        raise _not_a_run(file)
    return found


class _DefinitionHead(Struct):
    name: str


class _RunStarted(Struct, tag_field="event", tag="run.started"):
    task: str
    at: float
    definition: _DefinitionHead


class _ReportHead(Struct):
    ending: str


class _RunEnded(Struct):
    report: _ReportHead


_ANSWERED = b'{"event":"turn.answered","path":"",'
_ENDED = b'{"event":"run.ended","path":"",'


def summarise_record(file: Path) -> dict[str, Any]:
    """A recorded run in short. Only its first and last event are decoded."""
    turns, line = 0, b""
    try:
        with file.open("rb") as lines:
            first = lines.readline()
            for line in lines:
                turns += line.startswith(_ANSWERED)
        began = msgspec.json.decode(first, type=_RunStarted)
        whole = line.startswith(_ENDED) and line.endswith(b"\n")  # half a line is what a killed process left
        ended = msgspec.json.decode(line, type=_RunEnded).report.ending if whole else None
    except OSError as error:
        raise _unreadable(file, error) from error
    except msgspec.DecodeError as error:
        raise _not_a_run(file) from error
    entry = {"run": file.stem, "task": began.task, "agent": began.definition.name, "turns": turns}
    return {**entry, "ending": ended, "at": began.at}


def _unreadable(file: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"the run {file.stem} cannot be read: {os.strerror(error.errno or 0)}",
        next_action="see `toolfold agent --runs` for those that are there",
    )


def _not_a_run(file: Path) -> ConfigError:
    return ConfigError(f"{file} holds no run", next_action="run the task anew")


def comparable_events(events: Iterable[Event]) -> dict["_EventKey", Event]:
    """The events without their times, by a place that does not depend on which of two parallel commands was faster."""
    found = [{key: value for key, value in event.items() if key not in _TIME_FIELDS} for event in events]
    return {_event_key(event): event for event in sorted(found, key=_event_key)}


_EVENT_ORDER = (
    "run.started",
    "turn.asked",
    "turn.answered",
    "turn.failed",
    "command.started",
    "command.done",
    "history.stored",
    "run.ended",
)
_EventKey = tuple[str, bool, int, int, int]


def _event_key(event: Event) -> _EventKey:
    name = event["event"]
    return (
        event["path"],
        name == _EVENT_ORDER[-1],
        event.get("turn", 0),
        _EVENT_ORDER.index(name),
        event.get("index", 0),
    )
