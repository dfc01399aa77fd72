"""Savings: the tokens of all definitions and whole results, against what was shown, for each session and in all.

Definitions are counted exactly (o200k), once a fingerprint; the counts stay in the store. What was shown is counted
where the token tables were loaded when it was; else its bytes are divided by the bytes a token has in the definitions.
What a client reads before its first request, the surface with its instructions, is for the face to say.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from toolfold import tokens
from toolfold.audit.record import REFUSED, Step, _read_bytes
from toolfold.catalogue.catalogue import Catalogue, tool_batches
from toolfold.storage.base import Store
from toolfold.types import Tool

__all__ = ["Savings", "SessionCost", "_count_definitions", "_percent", "compute_savings"]

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
    """The definitions of all tools, each session once, and every result as its server sent it."""
    shown_tokens: int
    """The surface and its instructions, every page, every result as it was folded."""
    estimated: bool
    """Whether a part of `shown_tokens` was estimated from bytes."""
    saved_percent: float


class Savings(Struct, frozen=True, kw_only=True):
    tools: int
    full_tokens: int
    total: SessionCost
    sessions: tuple[SessionCost, ...]


async def compute_savings(
    steps: Sequence[Step],
    catalogue: Catalogue,
    store: Store,
    surface_tokens: int,
    others: Mapping[str, tuple[Catalogue, int]] = {},
) -> Savings:
    """The tokens of all definitions and results against what the steps showed; each session reads the surface once.
    `others`: callers who see another catalogue, with what their surface costs."""
    whole = await _count_definitions(catalogue, store)
    own = {name: (*(await _count_definitions(seen, store))[1:], cost) for name, (seen, cost) in others.items()}
    return _add_up(steps, *whole, surface_tokens, others=own)


async def _count_definitions(catalogue: Catalogue, store: Store) -> tuple[int, int, int]:
    """The number of tools, and the tokens and bytes of all their definitions."""
    known = {server: _decode(value) for server, value in (await store.items(_COUNTS)).items()}
    by_server: dict[str, list[Tool]] = {}
    async with catalogue.snapshot() as view:
        async for batch in tool_batches(view, leaves=False):  # no client has the others in its context
            for tool in batch:
                by_server.setdefault(tool.server, []).append(tool)
    total = 0
    for server, tools in by_server.items():
        before = known.get(server, {})
        counts = await asyncio.to_thread(_count_tokens, tools, before)
        if not counts.keys() <= before.keys():  # a caller may see a part of them
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


def _add_up(
    steps: Sequence[Step],
    tools: int,
    full_tokens: int,
    full_bytes: int,
    surface_tokens: int = 0,
    *,
    others: Mapping[str, tuple[int, int, int]] = {},
) -> Savings:
    """Adds the steps up. Where nothing was counted yet, four bytes are taken as a token."""
    common = (full_tokens, full_bytes, surface_tokens)
    sessions: dict[tuple[str, str], list[Step]] = {}
    for step in steps:
        if step.step == REFUSED:
            continue
        sessions.setdefault((step.caller, step.session), []).append(step)
    costs = tuple(
        _session_cost(caller, session, own, others.get(caller, common))
        for (caller, session), own in sorted(sessions.items())
    )
    shown = sum(cost.shown_tokens for cost in costs)
    full = sum(cost.full_tokens for cost in costs)
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


def _session_cost(caller: str, session: str, steps: Sequence[Step], at_first: tuple[int, int, int]) -> SessionCost:
    """`at_first`: read before the first request are so many tokens, and bytes, without folding, and tokens with it."""
    full_tokens, full_bytes, surface_tokens = at_first
    ratio = _bytes_a_token(full_tokens, full_bytes)
    pages = [step for step in steps if step.step in _DISCOVERY and step.shown_bytes]
    counted = sum(step.shown_tokens if step.shown_tokens is not None else step.shown_bytes / ratio for step in pages)
    calls = [step for step in steps if step.step == "call"]
    folded, whole = _result_bytes(calls)
    full, shown = full_tokens + round(whole / ratio), surface_tokens + round(counted + folded / ratio)
    return SessionCost(
        caller=caller,
        session=session,
        steps=len(steps),
        calls=len(calls),
        full_tokens=full,
        shown_tokens=shown,
        estimated=folded > 0 or any(step.shown_tokens is None for step in pages),
        saved_percent=_percent(full, shown),
    )


def _bytes_a_token(tokens: int, size: int) -> float:
    return size / tokens if tokens else 4.0


def _result_bytes(calls: Sequence[Step]) -> tuple[int, int]:
    """Of all results: as they were folded, and as they came."""
    sizes = [
        _read_bytes(step.tool_id, step.result_bytes, step.stored_bytes, to_program=step.to_program) for step in calls
    ]
    return sum(folded for folded, _ in sizes), sum(whole for _, whole in sizes)


def _percent(full: int, shown: int) -> float:
    """Below zero where folding cost more than it saved; never 100: something was read."""
    return min(math.floor(1000 * (1 - shown / full)) / 10, 99.9) if full else 0.0
