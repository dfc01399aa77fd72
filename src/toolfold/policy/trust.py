"""What the owner accepted: the fingerprint of each tool, and what the check of its texts found.

A tool is accepted when it is first seen, unless told otherwise. One that changed since is reported until somebody
accepts it again, and with `hold_changed` it is held back until then. The whole object counts: a changed annotation or
a changed word in a parameter's description is a change.

One record a server in the store's named state. Above: the gateway, which says when to look.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from toolfold.config import Trust
from toolfold.policy.patterns import Flag
from toolfold.storage.base import Store
from toolfold.types import Tool

TRUST = "trust"
"""The namespace of the store that keeps the records."""

STAMP = "trust-stamp"

CHANGED = "it changed since it was accepted"
NEW = "it is new and nobody accepted it yet"


class _Accepted(Struct, frozen=True, array_like=True):
    fingerprint: str
    at: float
    version: int = 1


class _ServerRecord(Struct):
    """What is kept of one server's tools: acceptances by id, findings by fingerprint."""

    accepted: dict[str, _Accepted] = {}
    flags: dict[str, tuple[Flag, ...]] = {}


class ToolTrust(Struct, frozen=True, kw_only=True):
    """How one tool stands that is worth a look."""

    tool_id: str
    state: Literal["changed", "new", "accepted"]
    held: bool = False
    fingerprint: str = ""
    version: int = 1
    accepted_version: int | None = None
    flags: tuple[Flag, ...] = ()


class TrustReview(Struct, frozen=True, kw_only=True):
    """All of a catalogue, looked at."""

    standings: tuple[ToolTrust, ...] = ()
    """Tools that changed, are new, or are flagged; all others are accepted and plain."""
    held: Mapping[str, str] = {}
    """Tools that are held back, by id, with the reason."""
    flags: Mapping[str, tuple[str, ...]] = {}
    """The kinds of findings, by fingerprint, of those that have any."""
    tools: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_ServerRecord).decode


class TrustStore:
    """The acceptances of one store."""

    def __init__(self, store: Store, settings: Trust) -> None:
        self._store = store
        self._settings = settings
        self._writing = asyncio.Lock()

    async def review(self, tools: Sequence[Tool]) -> TrustReview:
        """Compares every tool with what was accepted, and takes first sights in. Texts are read once a fingerprint."""
        async with self._writing:
            records = await self._records()
            by_server: dict[str, list[Tool]] = {}
            for tool in tools:
                by_server.setdefault(tool.server, []).append(tool)
            for server, own in by_server.items():
                records[server] = await self._taken_in(server, records.get(server, _ServerRecord()), own)
        return self._reviewed(records, by_server, len(tools))

    async def _taken_in(self, server: str, record: _ServerRecord, tools: Sequence[Tool]) -> _ServerRecord:
        """The record with the findings of new texts, and first sights accepted."""
        flags = await asyncio.to_thread(_scan_all, record.flags, tools)
        new = self._settings.accept_new and any(tool.tool_id not in record.accepted for tool in tools)
        if flags.keys() <= record.flags.keys() and not new:
            return record
        # Reading texts takes its time: what another process accepted meanwhile must not be written over.
        stored = await self._store.get(TRUST, server)
        record = _ServerRecord() if stored is None else _decode(stored)
        record.flags = flags
        for tool in tools if self._settings.accept_new else ():
            record.accepted.setdefault(tool.tool_id, _accepted(tool))
        await self._store.put(TRUST, server, _encode(record))
        return record

    def _reviewed(
        self, records: Mapping[str, _ServerRecord], by_server: Mapping[str, Sequence[Tool]], count: int
    ) -> TrustReview:
        standings: list[ToolTrust] = []
        held: dict[str, str] = {}
        flags: dict[str, tuple[str, ...]] = {}
        for server, tools in by_server.items():
            record = records[server]
            for tool in tools:
                found = record.flags[tool.fingerprint]
                if found:
                    flags[tool.fingerprint] = tuple(flag.kind for flag in found)
                standing = self._standing(tool, record.accepted.get(tool.tool_id), found)
                if standing.held:
                    held[tool.tool_id] = NEW if standing.state == "new" else CHANGED
                if standing.state != "accepted" or found:
                    standings.append(standing)
        standings.sort(key=lambda one: one.tool_id.casefold())
        return TrustReview(standings=tuple(standings), held=held, flags=flags, tools=count)

    def _standing(self, tool: Tool, known: _Accepted | None, flags: tuple[Flag, ...]) -> ToolTrust:
        state: Literal["changed", "new", "accepted"] = "accepted"
        if known is None:
            state = "new"
        elif known.fingerprint != tool.fingerprint:
            state = "changed"
        return ToolTrust(
            tool_id=tool.tool_id,
            state=state,
            held=state == "new" or (state == "changed" and self._settings.hold_changed),
            fingerprint=tool.fingerprint,
            version=tool.version,
            accepted_version=known.version if known else None,
            flags=flags,
        )

    async def accept(self, tools: Iterable[Tool]) -> list[str]:
        """Takes these tools as they are now. Gives the ids of those that were not accepted before in this form."""
        done: list[str] = []
        async with self._writing:
            records = await self._records()
            touched: set[str] = set()
            for tool in tools:
                record = records.setdefault(tool.server, _ServerRecord())
                known = record.accepted.get(tool.tool_id)
                if known is None or known.fingerprint != tool.fingerprint:
                    record.accepted[tool.tool_id] = _accepted(tool)
                    touched.add(tool.server)
                    done.append(tool.tool_id)
            for server in sorted(touched):
                await self._store.put(TRUST, server, _encode(records[server]))
            if touched:
                await self._store.put(STAMP, "at", repr(time.time()).encode())
        return done

    async def accepted(self, tool: Tool) -> str:
        """The fingerprint that was accepted of a tool; empty: none yet."""
        known = (await self._records()).get(tool.server, _ServerRecord()).accepted.get(tool.tool_id)
        return known.fingerprint if known is not None else ""

    async def stamp(self) -> bytes:
        """Changes whenever somebody accepts something, in whatever process."""
        return await self._store.get(STAMP, "at") or b""

    async def _records(self) -> dict[str, _ServerRecord]:
        return {server: _decode(value) for server, value in (await self._store.items(TRUST)).items()}


def _scan_all(known: Mapping[str, tuple[Flag, ...]], tools: Sequence[Tool]) -> dict[str, tuple[Flag, ...]]:
    """The findings of these tools, by fingerprint."""
    from toolfold.policy.description_scan import scan

    return {
        tool.fingerprint: known[tool.fingerprint] if tool.fingerprint in known else scan(tool.definition.raw)
        for tool in tools
    }


def _accepted(tool: Tool) -> _Accepted:
    return _Accepted(tool.fingerprint, time.time(), tool.version)
