"""Logs for people and machines: what happens while a gateway serves, told as sentences, and any log as JSON lines.

JSON is off unless the configuration says `telemetry.logs = "json"`, or `toolfold serve --log json` does. Whatever the
form, no line holds a secret that is known, and libraries do not tell every byte that they send.
"""

import logging
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

import msgspec

from toolfold.errors import SignInRequired
from toolfold.events import Event, Events
from toolfold.redaction import redact
from toolfold.text import truncate

__all__ = ["EventLog", "level_of", "log_as_json", "log_handler"]

log = logging.getLogger("toolfold.serve")

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


class _Masked(logging.Formatter):
    """What another formatter writes, without the secrets that are known."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        return redact(self._inner.format(record), ())


def _is_ours_or_matters(record: logging.LogRecord) -> bool:
    """The details of libraries hold whole requests and answers, with tokens that nobody has learned of yet."""
    return record.levelno >= logging.INFO or record.name.partition(".")[0] == "toolfold"


def log_handler(formatter: logging.Formatter, stream: TextIO | None = None) -> logging.Handler:
    """Writes to `stream`, or stderr, what may be told at any level."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(_Masked(formatter))
    handler.addFilter(_is_ours_or_matters)
    return handler


def level_of(verbose: int) -> int:
    """What is worth telling: `-v` and `-vv` say more, as they do without JSON."""
    return (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]


def log_as_json(level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Sends the logs of the whole process to `stream`, or stderr, as JSON lines."""
    # Forced: a program around us may have set up its own handlers before.
    logging.basicConfig(level=level, handlers=[log_handler(_JsonLines(), stream)], force=True)


_Told = tuple[int, str]
_MAX_SENTENCE = 1000


def _ready(data: dict[str, Any]) -> _Told:
    how = "started again" if data["restarted"] else "started"
    process = f", process {data['pid']}" if data.get("pid") else ""
    return logging.INFO, f"{how} in {data['seconds']:.1f} s{process}"


def _configured(data: dict[str, Any]) -> _Told:
    return logging.INFO, "added to the configuration" if data["new"] else "changed in the configuration"


def _needs_sign_in(data: dict[str, Any]) -> _Told | None:
    """One line for those that wait for a person, however that was found out."""
    if SignInRequired.phrase not in data["error"]:
        return None
    text = data["error"].removeprefix(f"{data['server']} ")  # it stands before every line
    return logging.WARNING, f"{text}; next: {data['next_action'].removeprefix('Run: ')}"


def _stale(data: dict[str, Any]) -> _Told:
    text = f"its tools stay as they were, reading them failed: {data['error']}"
    return _needs_sign_in(data) or (logging.WARNING, text)


def _failed(data: dict[str, Any]) -> _Told:
    if told := _needs_sign_in(data):
        return told
    return logging.ERROR, f"failed: {data['error']}" + (f"; next: {data['next_action']}" if data["next_action"] else "")


def _held(data: dict[str, Any]) -> _Told:
    why = f"{data['tool_id']} is new" if data["new"] else f"{data['tool_id']} changed since it was accepted"
    text = "it is held back until you accept it" if data["held"] else "it stays in use"
    return logging.WARNING, f"{why}; {text}: toolfold trust {data['tool_id']}"


def _call_failed(data: dict[str, Any]) -> _Told:
    if "code" in data:
        return logging.WARNING, f"call of {data['tool_id']} failed: {data['code']}; why: toolfold audit --status failed"
    return logging.INFO, f"call of {data['tool_id']} failed: the tool itself says so"


_REMOVED = {False: "taken out of the configuration", True: "switched off in the configuration"}
_SENTENCES: dict[str, Callable[[dict[str, Any]], _Told]] = {
    "upstream.ready": _ready,
    "upstream.failed": _failed,
    "upstream.closed": lambda data: (logging.WARNING, f"ended by itself: {data['reason']}; it is started again"),
    "upstream.idle": lambda data: (logging.INFO, data["note"]),
    "upstream.configured": _configured,
    "upstream.removed": lambda data: (logging.INFO, _REMOVED[data["disabled"]]),
    "catalogue.updated": lambda data: (logging.INFO, f"{data['changes']} of its tools came, went or changed"),
    "catalogue.stale": _stale,
    "trust.changed": lambda data: _held({**data, "new": False}),
    "trust.new": lambda data: _held({**data, "new": True}),
    "call.failed": _call_failed,
    "call.finished": _call_failed,
}


class EventLog:
    """Tells in the log what happens while a gateway serves, a sentence each; `write` gets server and sentence, too.

    The same trouble of one server is told once, until the server works again. `redact` takes secrets out of sentences.
    """

    def __init__(self, events: Events, write: Callable[[str, str], None], redact: Callable[[str], str]) -> None:
        self._write = write
        self._redact = redact
        self._troubles: dict[str, str] = {}
        self._stops = [events.subscribe(self._tell, only=name) for name in _SENTENCES]

    def close(self) -> None:
        for stop in self._stops:
            stop()

    def _tell(self, event: Event) -> None:
        data = event.data
        if (event.name, data.get("is_error")) == ("call.finished", False) or data.get("changes") == 0:
            return
        server = data["server"]
        if event.name == "upstream.ready":
            self._troubles.pop(server, None)
        if "error" in data:
            if self._troubles.get(server) == data["error"]:
                return
            self._troubles[server] = data["error"]
        level, text = _SENTENCES[event.name](data)
        text = self._redact(truncate(text, _MAX_SENTENCE))
        log.log(level, "%s: %s", server, text, extra={"event": event.name, **data})
        self._write(server, text)
