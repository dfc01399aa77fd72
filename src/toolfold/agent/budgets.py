"""How much a run may use, and how much of it is gone. Values; the planner counts."""

import time
from typing import ClassVar

from msgspec import Struct

from toolfold.model import Usage

FRUITLESS_SEARCHES = 3
"""Searches in a row that found nothing new, after which searching on is refused until something else was done."""


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

    LEAST_STEPS: ClassVar[int] = 1


class Spent:
    """What a run has used. Sub-agents count into the run that called them."""

    def __init__(self, budgets: Budgets) -> None:
        self.budgets = budgets
        self.steps = 0
        self.calls = 0
        self.code_runs = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.cost: float | None = None
        self._started = time.monotonic()

    def used(self, usage: Usage) -> None:
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        if usage.cost is not None:
            self.cost = (self.cost or 0.0) + usage.cost

    def include(self, other: "Spent") -> None:
        """Adds what a sub-agent used."""
        self.calls += other.calls
        self.code_runs += other.code_runs
        self.used(Usage(other.input_tokens, other.output_tokens, other.cost))

    @property
    def seconds_left(self) -> float:
        return self.budgets.seconds - (time.monotonic() - self._started)

    def exhausted(self) -> str:
        """Which budget is used up; empty: none. A run then has one last turn."""
        budgets = self.budgets
        if self.steps >= budgets.steps - Budgets.LEAST_STEPS:
            return f"{budgets.steps} steps"
        if self.seconds_left <= 0:
            return f"{budgets.seconds:g} seconds"
        if budgets.tokens is not None and self.input_tokens + self.output_tokens >= budgets.tokens:
            return f"{budgets.tokens} tokens"
        if budgets.cost is not None and (self.cost or 0.0) >= budgets.cost:
            return f"a cost of {budgets.cost:g}"
        return ""

    def usage(self) -> Usage:
        return Usage(self.input_tokens, self.output_tokens, self.cost)
