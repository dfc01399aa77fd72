"""How much a run may use, and how much of it is gone. Values; the planner counts."""

import time
from collections.abc import Iterator

from msgspec import Struct

from toolfold.model import Usage

FRUITLESS_SEARCHES_MAX = 3
"""Searches in a row that found nothing new, after which searching on is refused until something else was done."""

BUDGET_OF_COMMAND = {"tool": "calls", "sandbox": "code_runs"}
"""Commands that have a budget of their own."""


class Budgets(Struct, frozen=True, kw_only=True):
    """What a run may use; `None`: as much as it likes."""

    steps: int = 25
    calls: int = 100
    code_runs: int = 10
    seconds: float = 900.0
    tokens: int | None = None
    cost: float | None = None
    history_tokens: int = 24_000
    """History above it becomes handles, oldest first."""


class BudgetTracker:
    """What a run has used. A sub-agent's counts as `above`'s too, at once, so that neither goes over its budgets.

    In a replay nothing is `timed`: what ran out then is in the record.
    """

    def __init__(self, budgets: Budgets, *, above: "BudgetTracker | None" = None, timed: bool = True) -> None:
        self.budgets = budgets
        self.steps = 0
        self.calls = 0
        self.code_runs = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.cost: float | None = None
        self.above = above
        self._timed = timed
        self.started = time.monotonic()

    def used(self, usage: Usage) -> None:
        for one in self._all():
            one.input_tokens += usage.input_tokens
            one.output_tokens += usage.output_tokens
            if usage.cost is not None:
                one.cost = (one.cost or 0.0) + usage.cost

    def used_up(self, name: str) -> int | None:
        """The limit on `calls` or `code_runs` that leaves no more of them."""
        limits = (getattr(one.budgets, name) for one in self._all() if getattr(one, name) >= getattr(one.budgets, name))
        return next(limits, None)

    def count(self, name: str) -> None:
        for one in self._all():
            setattr(one, name, getattr(one, name) + 1)

    @property
    def seconds_left(self) -> float | None:
        """`None`: as many as it takes."""
        if not self._timed:
            return None
        now = time.monotonic()
        return max(0.0, min(one.budgets.seconds - (now - one.started) for one in self._all()))

    def exhausted(self) -> str:
        """Which budget is used up; empty: none. A run then has one last turn."""
        if self.steps >= self.budgets.steps - 1:
            return f"{self.budgets.steps} steps"
        if self.seconds_left == 0.0:
            return f"{min(one.budgets.seconds for one in self._all()):g} seconds"
        for one in self._all():
            budgets = one.budgets
            if budgets.tokens is not None and one.input_tokens + one.output_tokens >= budgets.tokens:
                return f"{budgets.tokens} tokens"
            if budgets.cost is not None and (one.cost or 0.0) >= budgets.cost:
                return f"a cost of {budgets.cost:g}"
        return ""

    def usage(self) -> Usage:
        """The cost is rounded: which of two sub-agents was faster must not show in its last digits."""
        return Usage(self.input_tokens, self.output_tokens, None if self.cost is None else round(self.cost, 9))

    def _all(self) -> "Iterator[BudgetTracker]":
        one: BudgetTracker | None = self
        while one is not None:
            yield one
            one = one.above
