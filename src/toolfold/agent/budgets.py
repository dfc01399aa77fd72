"""How much a run may use, and how much it has used. Values and counters; the planner and the executor count."""

import time
from collections.abc import Iterator

from msgspec import Struct

from toolfold.model import Usage

# Commands that have a budget of their own.
BUDGET_OF_COMMAND = {"tool": "calls", "sandbox": "code_runs"}


class Budgets(Struct, frozen=True, kw_only=True):
    """What a run may use; `None`: no limit."""

    steps: int = 25
    calls: int = 100
    code_runs: int = 10
    seconds: float = 900.0
    tokens: int | None = None
    cost: float | None = None
    history_tokens: int = 24_000  # history above it is stored, oldest first


class BudgetTracker:
    """What a run has used. In a replay nothing is `timed`: which time ran out is in the record."""

    def __init__(self, budgets: Budgets, *, parent: "BudgetTracker | None" = None, timed: bool = True) -> None:
        self.budgets = budgets
        self.steps = 0
        self.calls = 0
        self.code_runs = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.cost: float | None = None
        self.parent = parent
        self._timed = timed
        self.started = time.monotonic()

    def add_usage(self, usage: Usage) -> None:
        for tracker in self._chain():
            tracker.input_tokens += usage.input_tokens
            tracker.output_tokens += usage.output_tokens
            if usage.cost is not None:
                tracker.cost = (tracker.cost or 0.0) + usage.cost

    def exceeded_limit(self, name: str) -> int | None:
        """The limit on `calls` or `code_runs` that is reached, here or above."""
        for tracker in self._chain():
            limit: int = getattr(tracker.budgets, name)
            if getattr(tracker, name) >= limit:
                return limit
        return None

    def count(self, name: str) -> None:
        for tracker in self._chain():
            setattr(tracker, name, getattr(tracker, name) + 1)

    @property
    def seconds_left(self) -> float | None:
        """`None`: no limit."""
        if not self._timed:
            return None
        now = time.monotonic()
        return max(0.0, min(tracker.budgets.seconds - (now - tracker.started) for tracker in self._chain()))

    def exhausted(self) -> str:
        """Which budget is used up; empty: none. A run then has one last turn."""
        if self.steps >= self.budgets.steps - 1:
            return f"{self.budgets.steps} steps"
        if self.seconds_left == 0.0:
            return f"{min(tracker.budgets.seconds for tracker in self._chain()):g} seconds"
        for tracker in self._chain():
            budgets = tracker.budgets
            if budgets.tokens is not None and tracker.input_tokens + tracker.output_tokens >= budgets.tokens:
                return f"{budgets.tokens} tokens"
            if budgets.cost is not None and (tracker.cost or 0.0) >= budgets.cost:
                return f"a cost of {budgets.cost:g}"
        return ""

    def usage(self) -> Usage:
        # Rounded: which of two sub-agents was faster must not show in the last digits of a sum.
        return Usage(self.input_tokens, self.output_tokens, None if self.cost is None else round(self.cost, 9))

    def _chain(self) -> "Iterator[BudgetTracker]":
        """This run and those above it: what a sub-agent uses counts for all, at once, so that none exceeds its own."""
        tracker: BudgetTracker | None = self
        while tracker is not None:
            yield tracker
            tracker = tracker.parent
