"""A run as a file: one JSON line an event, written as it happens, readable by its owner alone.

An event has a name, its place in the run (`path` names a sub-agent, "" is the run itself), and what came in and out.
Times stand in `at` and `seconds` only: two runs are the same when everything but those is.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from toolfold.errors import ConfigError
from toolfold.storage.journal import Journal

Event = dict[str, Any]
_RUNS_MAX = 500  # in a folder; older ones are removed
# The fields are written in this order: a line is recognised by its head, without decoding it.
_STARTED = b'{"event":"run.started","path":"",'
_ANSWERED = b'{"event":"turn.answered","path":"",'
_ENDED = b'{"event":"run.ended","path":"",'


def to_json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def to_plain(value: Any) -> Any:
    """A value as it is after it was written to a record and loaded again."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=str))


class RunRecord:
    """Where the events of a run go: to a file, which is created with the first of them, or else into `events`."""

    def __init__(self, file: Path | None = None, *, listener: Callable[[Event], None] | None = None) -> None:
        self.events: list[Event] = []
        self._journal = None if file is None else Journal(file, kept=_RUNS_MAX)
        self._listener = listener

    def write(self, event: str, path: str, **data: Any) -> None:
        line = {"event": event, "path": path, "at": round(time.time(), 3), **data}
        encoded = msgspec.json.encode(line, enc_hook=str)
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
    """The events of a recorded run. A last line that a crash cut off is left out."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise _unreadable(file, error) from error
    events: list[Event] = []
    for number, line in enumerate(lines, 1):
        try:
            events.append(msgspec.json.decode(line, type=dict))
        except msgspec.DecodeError as error:
            if number == len(lines):
                break
            raise ConfigError(
                f"line {number} of {file} is no event: {error}", next_action="run the task anew"
            ) from error
    if not events or events[0].get("event") != "run.started":
        raise _not_a_run(file)
    return events


def summarise_record(file: Path) -> dict[str, Any]:
    """A recorded run in short. Only its first and last event are decoded."""
    turns, line = 0, b""
    try:
        with file.open("rb") as lines:
            first = lines.readline()
            for line in lines:
                turns += line.startswith(_ANSWERED)
        if not first.startswith(_STARTED):
            raise _not_a_run(file)
        started = msgspec.json.decode(first)
        complete = line.startswith(_ENDED) and line.endswith(b"\n")  # a killed process leaves half a line
        ending = msgspec.json.decode(line)["report"]["ending"] if complete else None
        entry = {"run": file.stem, "task": started["task"], "agent": started["definition"]["name"], "turns": turns}
        return {**entry, "ending": ending, "at": started["at"]}
    except OSError as error:
        raise _unreadable(file, error) from error
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise _not_a_run(file) from error


def _unreadable(file: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"the run {file.stem} cannot be read: {os.strerror(error.errno or 0)}",
        next_action="see `toolfold agent --runs` for those that are there: a run is in the state folder of the gateway "
        "that made it",
    )


def _not_a_run(file: Path) -> ConfigError:
    return ConfigError(f"{file} holds no run", next_action="run the task anew")
