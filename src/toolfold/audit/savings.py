"""Savings: the tokens that all definitions would have cost, against what was shown, for each session and in all.

Definitions are counted exactly (o200k), once a fingerprint; the counts stay in the store. What was shown is counted
where the token tables were loaded when it was; else its bytes are divided by the bytes a token has in the definitions.
"""

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from toolfold import tokens
from toolfold.audit.record import REFUSED, Step
from toolfold.catalogue.catalogue import Catalogue, tool_batches
from toolfold.storage.base import Store
from toolfold.types import Tool

__all__ = ["Savings", "SessionCost"]

# The namespace of the store that keeps counts by server.
_COUNTS = "tokens"

_DISCOVERY = frozenset({"list", "nodes", "search", "expand", "inspect"})

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, int]).decode


class SessionCost(Struct, frozen=True, kw_only=True):
    """One session, or all of them together."""

    caller: str
    session: str
    steps: int
    calls: int
    full_tokens: int
    """What the definitions of all tools would have cost, each session once."""
    shown_tokens: int
    estimated: bool
    """Whether a part of `shown_tokens` was estimated from bytes."""
    saved_percent: float


class Savings(Struct, frozen=True, kw_only=True):
    tools: int
    full_tokens: int
    total: SessionCost
    sessions: tuple[SessionCost, ...]


async def compute_savings(steps: Sequence[Step], catalogue: Catalogue, store: Store) -> Savings:
    """The tokens of all definitions against what the steps showed."""
    return _add_up(steps, *await _count_definitions(catalogue, store))


async def _count_definitions(catalogue: Catalogue, store: Store) -> tuple[int, int, int]:
    """The number of tools, and the tokens and bytes of all their definitions."""
    known = {server: _decode(value) for server, value in (await store.items(_COUNTS)).items()}
    by_server: dict[str, list[Tool]] = {}
    async with catalogue.snapshot() as view:
        async for batch in tool_batches(view):
            for tool in batch:
                by_server.setdefault(tool.server, []).append(tool)
    total = 0
    for server, tools in by_server.items():
        before = known.get(server, {})
        counts = await asyncio.to_thread(_count_tokens, tools, before)
        if counts != before:
            await store.put(_COUNTS, server, _encode(counts))
        total += sum(counts[tool.fingerprint] for tool in tools)
    everything = [tool for tools in by_server.values() for tool in tools]
    return len(everything), total, sum(len(memoryview(tool.definition.raw)) for tool in everything)


def _count_tokens(tools: Sequence[Tool], known: dict[str, int]) -> dict[str, int]:
    return {
        tool.fingerprint: known.get(tool.fingerprint)
        or tokens.count(bytes(tool.definition.raw).decode("utf-8", "replace"))
        for tool in tools
    }


def _add_up(steps: Sequence[Step], tools: int, full_tokens: int, full_bytes: int) -> Savings:
    """Adds the steps up. Where nothing was counted yet, four bytes are taken as a token."""
    ratio = full_bytes / full_tokens if full_tokens else 4.0
    sessions: dict[tuple[str, str], list[Step]] = {}
    for step in steps:
        if step.step == REFUSED:
            continue
        sessions.setdefault((step.caller, step.session), []).append(step)
    costs = tuple(
        _session_cost(caller, session, own, full_tokens, ratio) for (caller, session), own in sorted(sessions.items())
    )
    shown = sum(cost.shown_tokens for cost in costs)
    full = full_tokens * len(costs)
    total = SessionCost(
        caller="",
        session="",
        steps=sum(cost.steps for cost in costs),
        calls=sum(cost.calls for cost in costs),
        full_tokens=full,
        shown_tokens=shown,
        estimated=any(cost.estimated for cost in costs),
        saved_percent=_percent(full, shown),
    )
    return Savings(tools=tools, full_tokens=full_tokens, total=total, sessions=costs)


def _session_cost(caller: str, session: str, steps: Sequence[Step], full_tokens: int, ratio: float) -> SessionCost:
    shown = [step for step in steps if step.step in _DISCOVERY and step.shown_bytes]
    counted = sum(step.shown_tokens if step.shown_tokens is not None else step.shown_bytes / ratio for step in shown)
    return SessionCost(
        caller=caller,
        session=session,
        steps=len(steps),
        calls=sum(step.step == "call" for step in steps),
        full_tokens=full_tokens,
        shown_tokens=round(counted),
        estimated=any(step.shown_tokens is None for step in shown),
        saved_percent=_percent(full_tokens, round(counted)),
    )


def _percent(full: int, shown: int) -> float:
    return round(100 * (1 - shown / full), 1) if full else 0.0
