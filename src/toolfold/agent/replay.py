"""A recorded run as memory: the model's answers and the results of commands, so that nothing has to be asked again.

`RunMemory` without events is empty: a fresh run. With them, the planner gets each answer from it while it lasts; where
the run now differs from the record, that is a divergence. A resumed run continues live after the last recorded turn.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from toolfold.agent.budgets import BUDGET_OF_COMMAND
from toolfold.agent.environment import CommandResult, Descriptor
from toolfold.agent.record import Event, to_json
from toolfold.errors import ModelError
from toolfold.model import Reply

_OUTCOME_UNKNOWN = (
    "It is not known whether this was done: the run broke off in the middle of it. Look at the state of things before "
    "you do it again."
)
_NOTHING = "nothing"
_TIME_FIELDS = ("at", "seconds")
_EVENT_ORDER = (
    *("run.started", "turn.asked", "turn.answered", "turn.failed"),
    *("command.started", "command.done", "history.stored", "run.ended"),
)
_EventKey = tuple[str, bool, int, int, int]


class RecordExhausted(Exception):
    """A replay reached the end of its record: the run, or the sub-agent, was stopped there.

    `counted` is the budget of the command that it was stopped in.
    """

    def __init__(self, message: str, counted: str = "") -> None:
        super().__init__(message)
        self.counted = counted


class RunOpening(Struct, frozen=True, kw_only=True):
    """What a run begins with, apart from its agent: a replay begins with the same."""

    model: str
    native: bool
    nonce: str
    provider_tree: dict[str, Any]
    preloaded: tuple[Descriptor, ...]  # the inspector, then what is offered before any search
    all_offered: bool = False  # whether these are all there are
    agents: tuple[tuple[str, str], ...] = ()  # sub-agents, with their descriptions
    prompt_tokens: int | None = None  # the model's window without its answer
    answer_tokens: int | None = None


class Divergence(Struct, frozen=True, kw_only=True):
    """Where a replay is not what the record says. `what` is `prompt`, `command`, `result`, or the name of an event."""

    path: str
    turn: int
    what: str
    expected: str
    got: str


class RunMemory:
    """`live_tools`: commands are executed again, and compared. `resumes`: after the record the run is live."""

    def __init__(self, events: Sequence[Event] = (), *, live_tools: bool = False, resumes: bool = True) -> None:
        self.divergences: list[Divergence] = []
        self._live_tools = live_tools
        self._resumes = resumes
        self._events = {(e["event"], e["path"], e.get("turn", 0), e.get("index", 0)): e for e in events}

    def _event(self, name: str, path: str, turn: int = 0, index: int = 0) -> Event | None:
        return self._events.get((name, path, turn, index))

    @property
    def timed(self) -> bool:
        """Whether time counts. In a replay from the record alone it does not: what ran out of time is recorded."""
        return self._resumes or self._live_tools

    def opening(self, path: str) -> RunOpening | None:
        started = self._event("run.started", path)
        return None if started is None else msgspec.convert(started["opened"], RunOpening)

    def last_turn(self, path: str, turn: int, now: str) -> str:
        """Why the record made this the last turn; `now` where the record has no such turn."""
        # Time passes faster in a replay: what ran out then would not run out now.
        asked = self._event("turn.asked", path, turn)
        return now if asked is None else str(asked["last"])

    def reply(self, path: str, turn: int, digest: str) -> Reply | None:
        """The model's answer in this turn; `None`: it has to be asked. Raises the `ModelError` that it failed with."""
        asked = self._event("turn.asked", path, turn)
        if asked is not None and asked.get("prompt") != digest:
            self._add_divergence(path, turn, "prompt", str(asked.get("prompt")), digest)
        failed = self._event("turn.failed", path, turn)
        if failed is not None:
            raise ModelError(failed["message"], next_action=failed["next_action"])
        answered = self._event("turn.answered", path, turn)
        if answered is not None:
            return msgspec.convert(answered["reply"], Reply)
        if self._is_over(path):
            raise RecordExhausted(f"the record ends in turn {turn}")
        return None

    def result(self, path: str, turn: int, index: int, command: Any) -> CommandResult | None:
        """The result of a command; `None`: it has to be executed."""
        started = self._event("command.started", path, turn, index)
        if started is not None and started["command"] != command:
            self._add_divergence(path, turn, "command", to_json(started["command"]), to_json(command))
        # A sub-agent runs again: its own turns are remembered.
        if self._live_tools or self._event("run.started", f"{path}/{turn}.{index}") is not None:
            return None
        recorded = self.recorded_result(path, turn, index)
        if recorded is not None:
            return recorded
        counted = "" if started is None else BUDGET_OF_COMMAND.get(command["type"], "")
        if self._is_over(path):
            raise RecordExhausted(f"the record ends in turn {turn}", counted)
        if started is None or command["type"] == "agent":
            return None
        # The command was started and never ended: it may have had its effect, so it is not repeated.
        return CommandResult(ok=False, text=_OUTCOME_UNKNOWN, counted=counted)

    def recorded_result(self, path: str, turn: int, index: int) -> CommandResult | None:
        done = self._event("command.done", path, turn, index)
        return None if done is None else msgspec.convert(done["result"], CommandResult)

    def compare(self, path: str, turn: int, index: int, result: CommandResult) -> None:
        """Compares the result of a command that was executed again with the record."""
        recorded = self.recorded_result(path, turn, index) if self._live_tools else None
        if recorded is not None and recorded != result:
            self._add_divergence(path, turn, "result", recorded.text, result.text)

    def stored_messages(self, path: str, turn: int) -> list[str]:
        """The handle messages that stood in for history in this turn."""
        stored = self._event("history.stored", path, turn)
        return [] if stored is None else list(stored["messages"])

    def _is_over(self, path: str) -> bool:
        """Whether nothing comes after the record at this path: a replay, or a sub-agent that was stopped."""
        parent, _, place = path.rpartition("/")
        if not self._resumes or not place:
            return not self._resumes
        turn, _, index = place.partition(".")
        return self._event("command.done", parent, int(turn), int(index)) is not None or self._is_over(parent)

    def _add_divergence(self, path: str, turn: int, what: str, expected: str, got: str) -> None:
        self.divergences.append(Divergence(path=path, turn=turn, what=what, expected=expected, got=got))


def diff_records(recorded: Sequence[Event], now: Sequence[Event]) -> Iterator[Divergence]:
    """Every event that is not the same in both, with the fields that differ."""
    before, after = _comparable_events(recorded), _comparable_events(now)
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key, {}), after.get(key, {})
        fields = [field for field in {**old, **new} if old.get(field) != new.get(field)]
        if fields:
            what = (old or new)["event"]
            expected, got = (_selected(event, fields) for event in (old, new))
            yield Divergence(path=key[0], turn=key[2], what=what, expected=expected, got=got)


def _selected(event: Event, fields: list[str]) -> str:
    return to_json({field: event[field] for field in fields if field in event}) if event else _NOTHING


def _comparable_events(events: Iterable[Event]) -> dict[_EventKey, Event]:
    """The events without their times, by a key that does not depend on which of two parallel commands was faster."""
    timeless = [{key: value for key, value in event.items() if key not in _TIME_FIELDS} for event in events]
    return {_event_key(event): event for event in sorted(timeless, key=_event_key)}


def _event_key(event: Event) -> _EventKey:
    order = _EVENT_ORDER.index(event["event"])
    is_last = event["event"] == _EVENT_ORDER[-1]
    return event["path"], is_last, event.get("turn", 0), order, event.get("index", 0)
