"""Activity: the audit log added up by the hour, by tool and by session, for whoever looks at it while it grows.

The log is read once, a part at a time and in a thread, and from then on only what came since: a page that shows a month
costs no more than one that shows an hour. What is kept is figures alone. Several callers' figures are joined when they
are asked for. Above: the log, and the faces that show it. Below: the store.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from toolfold.audit.record import ADMIN, REFUSED, _read_bytes
from toolfold.containers import BoundedDict
from toolfold.storage.base import AuditRow, Store

__all__ = ["HOUR_S", "SPEEDS_MS", "_Activity", "_Figures", "_SessionFigures", "_ToolFigures"]

HOUR_S = 3600
# Calls are counted by how long they took, up to so many milliseconds each.
SPEEDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)

_BATCH = 2_000
# How long somebody who looks waits for a log that was not read yet.
_PATIENCE_S = 0.2
# Whoever looks more often sees the figures of then.
_FRESH_S = 0.5
_MAX_HOURS = 24 * 400
_MAX_SESSIONS = 10_000
_MAX_TOOLS = 20_000
_MAX_CALLERS = 1_000
_MAX_TOOLS_OF_SESSION = 12

_PAGES = frozenset({"list", "nodes", "search", "expand", "inspect"})


class _Line(Struct):
    """What is added up of a step."""

    step: str
    tool_id: str = ""
    query: str = ""
    seconds: float = 0.0
    code: str = ""
    is_error: bool = False
    result_bytes: int | None = None
    stored_bytes: int | None = None
    to_program: bool = False
    shown_bytes: int = 0
    shown_tokens: int | None = None


_decode = msgspec.json.Decoder(_Line).decode


class _Figures(Struct, kw_only=True):
    """Sums over some steps. Texts that no tokens were counted of stand in bytes."""

    sessions: int = 0
    steps: int = 0
    searches: int = 0
    calls: int = 0
    errors: int = 0
    seconds: float = 0.0
    page_tokens: int = 0
    page_bytes: int = 0
    folded_bytes: int = 0
    whole_bytes: int = 0
    speeds: list[int] = msgspec.field(default_factory=lambda: [0] * (len(SPEEDS_MS) + 1))

    def add(self, line: _Line) -> None:
        self.steps += 1
        failed = bool(line.code) or line.is_error
        if line.step in _PAGES:
            self.searches += line.step not in {"expand", "inspect"}
            if line.shown_tokens is None:
                self.page_bytes += line.shown_bytes
            else:
                self.page_tokens += line.shown_tokens
        elif line.step == "call":
            self.calls += 1
            self.errors += failed
            self.seconds += line.seconds
            folded, whole = _read_bytes(line.tool_id, line.result_bytes, line.stored_bytes, to_program=line.to_program)
            self.folded_bytes += folded
            self.whole_bytes += whole
            milliseconds = line.seconds * 1000
            self.speeds[next((at for at, most in enumerate(SPEEDS_MS) if milliseconds <= most), len(SPEEDS_MS))] += 1

    def join(self, other: "_Figures") -> None:
        for name in self.__struct_fields__[:-1]:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.speeds = [mine + theirs for mine, theirs in zip(self.speeds, other.speeds, strict=True)]

    def slower_than(self, share: float) -> int | None:
        """The milliseconds that so large a share of the calls stayed below; nothing where there were none."""
        left = share * self.calls
        for at, count in enumerate(self.speeds):
            left -= count
            if left <= 0 < self.calls:
                return SPEEDS_MS[min(at, len(SPEEDS_MS) - 1)]
        return None


class _ToolFigures(Struct):
    """The calls of one tool."""

    tool_id: str
    calls: int = 0
    errors: int = 0
    seconds: float = 0.0
    last_at: float = 0.0


class _SessionFigures(Struct, kw_only=True):
    """One session, as lists show it."""

    caller: str
    session: str
    first_at: float
    last_at: float = 0.0
    figures: _Figures = msgspec.field(default_factory=_Figures)
    tools: list[str] = []
    query: str = ""


class _History(Struct):
    """What one caller did."""

    last: int = 0
    hours: BoundedDict[int, _Figures] = msgspec.field(default_factory=lambda: BoundedDict(_MAX_HOURS))
    tools: BoundedDict[str, _ToolFigures] = msgspec.field(default_factory=lambda: BoundedDict(_MAX_TOOLS))
    sessions: BoundedDict[str, _SessionFigures] = msgspec.field(default_factory=lambda: BoundedDict(_MAX_SESSIONS))

    def add(self, row: AuditRow, line: _Line) -> None:
        self.last = row.number
        hour = int(row.at // HOUR_S)
        if (figures := self.hours.get(hour)) is None:
            figures = self.hours[hour] = _Figures()
        figures.add(line)
        session = self.sessions.get(row.session)
        if session is None:
            session = self.sessions[row.session] = _SessionFigures(
                caller=row.caller, session=row.session, first_at=row.at
            )
            figures.sessions += 1
            session.figures.sessions = 1
        session.last_at = row.at
        session.figures.add(line)
        session.query = line.query or session.query
        if line.step == "call":
            self._add_call(row.at, line, session)

    def _add_call(self, at: float, line: _Line, session: _SessionFigures) -> None:
        tool = self.tools.get(line.tool_id)
        if tool is None:
            tool = self.tools[line.tool_id] = _ToolFigures(line.tool_id)
        tool.calls += 1
        tool.errors += bool(line.code) or line.is_error
        tool.seconds += line.seconds
        tool.last_at = at
        if line.tool_id not in session.tools and len(session.tools) < _MAX_TOOLS_OF_SESSION:
            session.tools = [*session.tools, line.tool_id]


class _Activity:
    """The log of one store, added up. `caller` is one caller's name everywhere; `None` is everybody."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last = 0
        self._read_at = -_FRESH_S
        self._reading: asyncio.Task[None] | None = None
        self.complete = False
        self._histories: BoundedDict[str, _History] = BoundedDict(_MAX_CALLERS)

    async def refresh(self) -> None:
        """Adds what was recorded since the last time, by any process. A long log goes on being read in the background:
        `complete` says whether it was."""
        if self._reading is None and time.monotonic() >= self._read_at + _FRESH_S:
            self._reading = asyncio.create_task(self._read())
        if self._reading is not None:
            done, _ = await asyncio.wait([self._reading], timeout=_PATIENCE_S)
            self.complete = bool(done)
            for task in done:
                self._reading = None
                task.result()

    async def _read(self) -> None:
        while rows := await self._store.audit_rows(after=self._last, first=_BATCH):
            await asyncio.to_thread(self._add, rows)
            self._last = rows[-1].number
        self._read_at = time.monotonic()

    async def aclose(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None

    def _add(self, rows: Sequence[AuditRow]) -> None:
        for row in rows:
            line = _decode(row.record)
            if line.step in {ADMIN, REFUSED}:  # what concerns the gateway itself is no part of anybody's work
                continue
            history = self._histories.get(row.caller)
            if history is None:
                history = self._histories[row.caller] = _History()
            history.add(row, line)

    def _of(self, caller: str | None) -> Iterable[_History]:
        if caller is None:
            return tuple(self._histories.values())
        own = self._histories.get(caller)
        return () if own is None else (own,)

    def last(self, caller: str | None) -> int:
        """The number of the newest step: a new one says that there is something new."""
        return max((history.last for history in self._of(caller)), default=0)

    def hours(self, caller: str | None, since: float) -> dict[int, _Figures]:
        """The sums of each hour from then on, by its number since 1970; hours without steps are left out."""
        joined: dict[int, _Figures] = {}
        for history in self._of(caller):
            for hour, figures in tuple(history.hours.items()):
                if hour >= since // HOUR_S:
                    joined.setdefault(hour, _Figures()).join(figures)
        return dict(sorted(joined.items()))

    def tools(self, caller: str | None) -> list[_ToolFigures]:
        """Every tool that was called, the most often called first."""
        joined: dict[str, _ToolFigures] = {}
        for history in self._of(caller):
            for tool in tuple(history.tools.values()):
                known = joined.setdefault(tool.tool_id, _ToolFigures(tool.tool_id))
                known.calls += tool.calls
                known.errors += tool.errors
                known.seconds += tool.seconds
                known.last_at = max(known.last_at, tool.last_at)
        return sorted(joined.values(), key=lambda tool: (-tool.calls, tool.tool_id))

    def sessions(self, caller: str | None) -> list[_SessionFigures]:
        """Every session, the one that did something last first."""
        found = [session for history in self._of(caller) for session in tuple(history.sessions.values())]
        return sorted(found, key=lambda session: -session.last_at)
