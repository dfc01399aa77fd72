"""What each server wrote beside the protocol, and what became of it, in files that stay small: `logs/SERVER.log`.

A line is a time, who wrote it and a text. Lines are gathered and appended a moment later, the file opened each time:
several gateways of one state folder write the same files, and any of them may move a full one aside. What is written
has no secrets any more. Read by `toolfold logs`. Nothing here knows servers or gateways.
"""

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from toolfold.text import replace_surrogates, truncate

__all__ = ["LogLine", "ServerLogs"]

log = logging.getLogger("toolfold.telemetry")

MAX_BYTES = 1024**2
"""A larger file becomes `SERVER.log.1`, in the place of the one before."""
_MAX_LINE = 2000
_MAX_WAITING = 1000
_DELAY_S = 0.2
_FOLLOW_S = 0.3

Writer = Literal["server", "toolfold"]
_MARKS: dict[Writer, str] = {"server": "|", "toolfold": "*"}
_WRITERS = {mark: writer for writer, mark in _MARKS.items()}


class LogLine(Struct, frozen=True):
    """One line: of a server itself, or of toolfold about it."""

    time: str
    server: str
    writer: Writer
    text: str


class ServerLogs:
    """The files of one folder. A disk that is full loses lines and breaks nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: dict[str, deque[str]] = {}
        self._dropped: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def write(self, server: str, text: str, writer: Writer = "server") -> None:
        waiting = self._waiting.setdefault(server, deque())
        if len(waiting) >= _MAX_WAITING:  # a server that writes without end must not keep the gateway busy
            self._dropped[server] = self._dropped.get(server, 0) + 1
        else:
            waiting.append(_format(text, writer))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_DELAY_S, self.flush)

    def flush(self) -> None:
        """Writes what waits."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        waiting, self._waiting = self._waiting, {}
        for server, lines in waiting.items():
            if dropped := self._dropped.pop(server, 0):
                lines.append(_format(f"{dropped:,} more lines were left out", "toolfold"))
            try:
                self._append(self._path(server), "".join(lines).encode())
            except OSError as error:
                log.debug("the log of %s cannot be written: %s", server, error)

    def _append(self, path: Path, data: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, data)
            full = os.fstat(descriptor).st_size > MAX_BYTES
        finally:
            os.close(descriptor)
        if full:
            path.replace(path.with_suffix(".log.1"))

    def read(self, server: str = "", last: int = 100) -> list[LogLine]:
        """The last lines of one server, or of all of them, in the order of time."""
        lines: list[LogLine] = []
        for name in [server] if server else self._servers():
            path = self._path(name)
            text = "".join(_read(part) for part in (path.with_suffix(".log.1"), path))
            lines += _parse(name, text.splitlines()[-last:])
        return sorted(lines, key=lambda line: line.time)[-last:]

    def follow(self, server: str = "") -> Iterator[LogLine]:
        """Each line that is written from now on, for ever."""
        return self._follow(server, {name: _end(self._path(name)) for name in self._servers()})

    def _follow(self, server: str, ends: dict[str, tuple[int, int]]) -> Iterator[LogLine]:
        while True:
            time.sleep(_FOLLOW_S)
            for name in [server] if server else self._servers():
                text, ends[name] = _read_from(self._path(name), ends.get(name, (0, 0)))
                yield from _parse(name, text.splitlines())

    def _path(self, server: str) -> Path:
        return self._folder / f"{server}.log"

    def _servers(self) -> list[str]:
        return sorted(path.name.removesuffix(".log") for path in self._folder.glob("*.log"))


def _format(text: str, writer: Writer) -> str:
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03}Z"
    line = " ".join(replace_surrogates(truncate(text, _MAX_LINE)).splitlines())
    return f"{stamp} {_MARKS[writer]} {line}\n"


def _parse(server: str, lines: Iterable[str]) -> Iterator[LogLine]:
    for line in lines:
        stamp, _, rest = line.partition(" ")
        mark, _, text = rest.partition(" ")
        if mark in _WRITERS:
            yield LogLine(stamp, server, _WRITERS[mark], text)


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""


def _end(path: Path) -> tuple[int, int]:
    """Which file it is, and where it ends."""
    with suppress(OSError):
        status = path.stat()
        return status.st_ino, status.st_size
    return 0, 0


def _read_from(path: Path, end: tuple[int, int]) -> tuple[str, tuple[int, int]]:
    """What was written since, in whole lines, and the new end."""
    now = _end(path)
    start = end[1] if now[0] == end[0] and now[1] >= end[1] else 0
    if now == end or not now[0]:
        return "", end
    with suppress(OSError), path.open("rb") as file:
        file.seek(start)
        data = file.read(now[1] - start)
        whole = data.rfind(b"\n") + 1
        return data[:whole].decode("utf-8", "replace"), (now[0], start + whole)
    return "", end
