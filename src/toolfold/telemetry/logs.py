"""Logs as JSON lines, for machines that collect them. Off unless the configuration says `telemetry.logs = "json"`."""

import logging
import sys
import time
from typing import TextIO

import msgspec

__all__ = ["level_of", "log_as_json"]

# What else stands on a record, a caller added with `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _JsonLines(logging.Formatter):
    """One object a line: time, level, logger, message, the fields a caller added, and an error's traceback."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry.update((name, value) for name, value in vars(record).items() if name not in _STANDARD)
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry, enc_hook=str).decode()


def level_of(verbose: int) -> int:
    """What is worth telling: `-v` and `-vv` say more, as they do without JSON."""
    return (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]


def log_as_json(level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Sends the logs of the whole process to `stream`, or stderr, as JSON lines."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_JsonLines())
    # Forced: a program around us may have set up its own handlers before.
    logging.basicConfig(level=level, handlers=[handler], force=True)
