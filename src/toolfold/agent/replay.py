"""A recorded run as memory: what the model said and what commands came to, so that nobody has to be asked again.

`Memory` without events remembers nothing: a fresh run. With them, the planner gets each answer from it while it lasts;
where the run now differs from the record, that is noted as a divergence. A resumed run goes on live after the last
remembered turn; a command that was begun and never ended is not repeated.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from toolfold.agent.budgets import BUDGET_OF_COMMAND
from toolfold.agent.environment import CommandResult, Descriptor
from toolfold.agent.record import Event, comparable_events
from toolfold.errors import ModelError
from toolfold.model import Prompt, Reply

_OUTCOME_UNKNOWN = (
    "It is not known whether this was done: the run broke off in the middle of it. Look at the state of things before "
    "you do it again."
)
_NOTHING = "nothing"


class RecordExhausted(Exception):
    """A replay came to where its record ends: the run, or the sub-agent, was stopped there."""


class RunOpening(Struct, frozen=True, kw_only=True):
    """What a run begins with, as far as it is not its agent's: a replay begins with the same."""

    model: str
    native: bool
    nonce: str
    provider_tree: dict[str, Any]
    preloaded: tuple[Descriptor, ...]
    agents: tuple[tuple[str, str], ...] = ()
    """Sub-agents, with what they are for."""
    prompt_tokens: int | None = None
    """How much the model can read, its answer left out."""
    answer_tokens: int | None = None


class Divergence(Struct, frozen=True, kw_only=True):
    """Where a replay is not what the record says."""

    path: str
    turn: int
    what: str
    """`prompt`, `command`, `result`, or the name of an event."""
    expected: str
    got: str


class RunMemory:
    """`live_tools`: commands are done again for real, and compared. `goes_on`: after the record the run is live."""

    def __init__(self, events: Sequence[Event] = (), *, live_tools: bool = False, goes_on: bool = True) -> None:
        self.divergences: list[Divergence] = []
        self.live_tools = live_tools
        self._goes_on = goes_on
        self._started = {event["path"]: event for event in events if event["event"] == "run.started"}
        self._asked = {_turn_key(event): event for event in events if event["event"] == "turn.asked"}
        self._answered = {_turn_key(event): event for event in events if event["event"] == "turn.answered"}
        self._failed = {_turn_key(event): event for event in events if event["event"] == "turn.failed"}
        self._begun = {_command_key(event): event for event in events if event["event"] == "command.started"}
        self._done = {_command_key(event): event for event in events if event["event"] == "command.done"}
        self._stored = [event for event in events if event["event"] == "history.stored"]

    @property
    def timed(self) -> bool:
        """Whether time counts: in a replay from the record alone, what ran out of time is recorded."""
        return self._goes_on or self.live_tools

    def opened(self, path: str) -> RunOpening | None:
        """What the run at this path began with."""
        started = self._started.get(path)
        return None if started is None else msgspec.convert(started["opened"], RunOpening)

    def last_turn(self, path: str, turn: int, now: str) -> str:
        """Why a turn was the last one, in the record; `now` where the record does not say. Time passes faster in a
        replay, so what ran out then would not run out now."""
        asked = self._asked.get((path, turn))
        return now if asked is None else str(asked["last"])

    def reply(self, path: str, turn: int, prompt: Prompt) -> Reply | None:
        """What the model said in this turn; `None`: it has to be asked. Raises the `ModelError` that it failed with."""
        asked = self._asked.get((path, turn), {})
        if asked and asked.get("prompt") != prompt_digest(prompt):
            self._differs(path, turn, "prompt", str(asked.get("prompt")), prompt_digest(prompt))
        failed = self._failed.get((path, turn))
        if failed is not None:
            raise ModelError(failed["message"], next_action=failed["next_action"])
        answered = self._answered.get((path, turn))
        if answered is not None:
            return msgspec.convert(answered["reply"], Reply)
        if self._over(path):
            raise RecordExhausted(f"the record ends in turn {turn}")
        return None

    def result(self, path: str, turn: int, index: int, command: Any) -> CommandResult | None:
        """What a command came to; `None`: it has to be done. A sub-agent runs again: its own turns are remembered."""
        place = (path, turn, index)
        begun = self._begun.get(place)
        if begun is not None and begun["command"] != command:
            self._differs(path, turn, "command", _to_json(begun["command"]), _to_json(command))
        if self.live_tools or f"{path}/{turn}.{index}" in self._started:
            return None
        if place in self._done:
            return self.done(path, turn, index)
        if self._over(path):
            raise RecordExhausted(f"the record ends in turn {turn}")
        if begun is None or command["type"] == "agent":
            return None
        return CommandResult(ok=False, text=_OUTCOME_UNKNOWN, counted=BUDGET_OF_COMMAND.get(command["type"], ""))

    def done(self, path: str, turn: int, index: int) -> CommandResult | None:
        """What a command came to, in the record."""
        done = self._done.get((path, turn, index))
        return None if done is None else msgspec.convert(done["result"], CommandResult)

    def compare(self, path: str, turn: int, index: int, result: CommandResult) -> None:
        """A command was done again: was it what the record says?"""
        before = self.done(path, turn, index) if self.live_tools else None
        if before is not None and before != result:
            self._differs(path, turn, "result", before.text, result.text)

    def stored(self, path: str, turn: int) -> list[str]:
        """The handle messages that stood in for history in this turn."""
        return [
            message
            for event in self._stored
            if (event["path"], event["turn"]) == (path, turn)
            for message in event["messages"]
        ]

    def _over(self, path: str) -> bool:
        """Whether nothing comes after the record at this path: a replay, or a sub-agent that was stopped."""
        above, _, place = path.rpartition("/")
        if not self._goes_on or not place:
            return not self._goes_on
        turn, _, index = place.partition(".")
        return (above, int(turn), int(index)) in self._done or self._over(above)

    def _differs(self, path: str, turn: int, what: str, expected: str, got: str) -> None:
        self.divergences.append(Divergence(path=path, turn=turn, what=what, expected=expected, got=got))


def diff_records(recorded: Sequence[Event], now: Sequence[Event]) -> Iterator[Divergence]:
    """Every event that is not the same in both, with the parts of it that differ."""
    before, after = comparable_events(recorded), comparable_events(now)
    for place in sorted(before.keys() | after.keys()):
        old, new = before.get(place, {}), after.get(place, {})
        keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        if keys:
            expected, got = ({key: event[key] for key in keys if key in event} for event in (old, new))
            yield Divergence(
                path=place[0],
                turn=place[2],
                what=(old or new)["event"],
                expected=_to_json(expected) if old else _NOTHING,
                got=_to_json(got) if new else _NOTHING,
            )


def prompt_digest(prompt: Prompt) -> str:
    return hashlib.sha256(msgspec.json.encode(prompt, enc_hook=str)).hexdigest()[:16]


def _turn_key(event: Event) -> tuple[str, int]:
    return event["path"], event["turn"]


def _command_key(event: Event) -> tuple[str, int, int]:
    return event["path"], event["turn"], event["index"]


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
