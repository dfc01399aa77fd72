"""What the owner accepted: the fingerprint of each tool, and what the check of its texts found.

A tool is accepted when it is first seen, unless told otherwise. One that changed since is reported until somebody
accepts it again, and with `hold_changed` it is held back until then. The whole object counts: a changed annotation or
a changed word in a parameter's description is a change.

`TrustStore` keeps one record a server in the store's named state; `TrustMonitor` reviews the catalogue whenever it
changes. Above: `access`, the gateway and the command line. Below: the catalogue and the store.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal

import msgspec
from msgspec import Struct

from toolfold.catalogue.catalogue import Catalogue, tool_batches
from toolfold.catalogue.ids import ids_of
from toolfold.config import Trust
from toolfold.containers import TaskSet
from toolfold.errors import StoreDamaged, ToolfoldError
from toolfold.events import Event, Events
from toolfold.fingerprint import fingerprint as fingerprint_of
from toolfold.policy import Flag
from toolfold.storage.base import Store, Version, update_state
from toolfold.types import Tool, ToolDefinition

# The namespaces of the store that keep the records, and the time of the last acceptance.
_TRUST = "trust"
_STAMP = "trust-stamp"

# How long it may take until an acceptance from another process is noticed.
_STAMP_MAX_AGE_S = 1.0

log = logging.getLogger("toolfold.policy")

_CHANGED = "it changed since it was accepted"
_NEW = "it is new and nobody accepted it yet"


class _Accepted(Struct, frozen=True, array_like=True):
    fingerprint: str
    at: float
    version: int = 1


class _ServerRecord(Struct):
    """What is kept of one server's tools: acceptances by id, findings by fingerprint."""

    accepted: dict[str, _Accepted] = {}
    flags: dict[str, tuple[Flag, ...]] = {}


class _ToolTrust(Struct, frozen=True, kw_only=True):
    """How one tool stands that is worth a look."""

    tool_id: str
    server: str = ""
    state: Literal["changed", "new", "accepted"]
    held: bool = False
    fingerprint: str = ""
    version: int = 1
    accepted_version: int | None = None
    flags: tuple[Flag, ...] = ()


class TrustReview(Struct, frozen=True, kw_only=True):
    """All of a catalogue, looked at."""

    standings: tuple[_ToolTrust, ...] = ()
    """Tools that changed, are new, or are flagged; all others are accepted and plain."""
    held: Mapping[str, str] = {}
    """Tools that are held back, by id, with the reason."""
    flags: Mapping[str, tuple[str, ...]] = {}
    """The kinds of findings, by fingerprint, of those that have any."""
    tools: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_ServerRecord).decode


class _TrustStore:
    """The acceptances of one store."""

    def __init__(self, store: Store, settings: Trust) -> None:
        self._store = store
        self.settings = settings
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
        new = self.settings.accept_new and any(ids_of(tool)[-1] not in record.accepted for tool in tools)
        if flags.keys() <= record.flags.keys() and not new:
            return record

        def take_in(record: _ServerRecord) -> None:
            record.flags = flags
            for tool in tools if self.settings.accept_new else ():
                record.accepted.setdefault(ids_of(tool)[-1], _accepted(tool))

        return await self._change(server, take_in)

    async def _change(self, server: str, change: Callable[[_ServerRecord], None]) -> _ServerRecord:
        """Reading texts takes its time: what another gateway accepted meanwhile must not be written over."""
        record = _ServerRecord()

        def changed(stored: bytes | None) -> bytes:
            nonlocal record
            record = _ServerRecord() if stored is None else _read_record(server, stored)
            change(record)
            return _encode(record)

        await update_state(self._store, _TRUST, server, changed)
        return record

    def _reviewed(
        self, records: Mapping[str, _ServerRecord], by_server: Mapping[str, Sequence[Tool]], count: int
    ) -> TrustReview:
        standings: list[_ToolTrust] = []
        held: dict[str, str] = {}
        flags: dict[str, tuple[str, ...]] = {}
        for server, tools in by_server.items():
            record = records[server]
            for tool in tools:
                found = record.flags[tool.fingerprint]
                if found:
                    flags[tool.fingerprint] = tuple(flag.kind for flag in found)
                standing = self._standing(tool, record.accepted.get(ids_of(tool)[-1]), found)
                if standing.held:
                    held[tool.tool_id] = _NEW if standing.state == "new" else _CHANGED
                if standing.state != "accepted" or found:
                    standings.append(standing)
        standings.sort(key=lambda one: one.tool_id.casefold())
        return TrustReview(standings=tuple(standings), held=held, flags=flags, tools=count)

    def _standing(self, tool: Tool, known: _Accepted | None, flags: tuple[Flag, ...]) -> _ToolTrust:
        state: Literal["changed", "new", "accepted"] = "accepted"
        if known is None:
            state = "new"
        elif known.fingerprint != _mark(tool):
            state = "changed"
        return _ToolTrust(
            tool_id=tool.tool_id,
            server=tool.server,
            state=state,
            held=state == "new" or (state == "changed" and self.settings.hold_changed),
            fingerprint=tool.fingerprint,
            version=tool.version,
            accepted_version=known.version if known else None,
            flags=flags,
        )

    async def accept(self, tools: Iterable[Tool]) -> list[str]:
        """Takes these tools as they are now. Gives the ids of those that were not accepted before in this form."""
        by_server: dict[str, list[Tool]] = {}
        for tool in (tools := tuple(tools)):
            by_server.setdefault(tool.server, []).append(tool)
        new: dict[str, set[str]] = {}

        def take(server: str, record: _ServerRecord) -> None:
            known = {key: accepted.fingerprint for key, accepted in record.accepted.items()}
            differing = [tool for tool in by_server[server] if known.get(ids_of(tool)[-1]) != _mark(tool)]
            record.accepted |= {ids_of(tool)[-1]: _accepted(tool) for tool in differing}
            new[server] = {tool.tool_id for tool in differing}

        async with self._writing:
            for server in sorted(by_server):
                await self._change(server, partial(take, server))
            if any(new.values()):
                await self._store.put(_STAMP, "at", repr(time.time()).encode())
        return [tool.tool_id for tool in tools if tool.tool_id in new[tool.server]]

    async def accepted(self, tool: Tool) -> str:
        """The fingerprint that was accepted of a tool; empty: none yet."""
        known = (await self._records()).get(tool.server, _ServerRecord()).accepted.get(ids_of(tool)[-1])
        return known.fingerprint if known is not None else ""

    async def stamp(self) -> bytes:
        """Changes whenever somebody accepts something, in whatever process."""
        return await self._store.get(_STAMP, "at") or b""

    async def _records(self) -> dict[str, _ServerRecord]:
        return {server: _read_record(server, value) for server, value in (await self._store.items(_TRUST)).items()}


def _read_record(server: str, stored: bytes) -> _ServerRecord:
    try:
        return _decode(stored)
    except msgspec.MsgspecError as error:
        # Taken as nothing, every tool of it would be new, and so accepted.
        raise StoreDamaged(
            f"what was accepted of {server} cannot be read: {error}",
            next_action="move toolfold.sqlite away and run `toolfold build`, then look at `toolfold trust --list`",
        ) from None


def _scan_all(known: Mapping[str, tuple[Flag, ...]], tools: Sequence[Tool]) -> dict[str, tuple[Flag, ...]]:
    """The findings of these tools, by fingerprint."""
    # Imported here: most starts find every tool scanned already.
    from toolfold.policy.description_scan import scan

    return {
        tool.fingerprint: known[tool.fingerprint] if tool.fingerprint in known else scan(tool.definition.raw)
        for tool in tools
    }


def _mark(tool: Tool | Version) -> str:
    """The fingerprint of what the server sent, whatever the owner made of it."""
    original = tool.definition.original
    return tool.fingerprint if original is None else fingerprint_of(original)


def _accepted(tool: Tool) -> _Accepted:
    return _Accepted(_mark(tool), time.time(), tool.version)


class TrustMonitor:
    """Reviews the catalogue when asked and, in the background, after each of its updates."""

    def __init__(self, catalogue: Catalogue, store: Store, settings: Trust, events: Events) -> None:
        self._catalogue = catalogue
        self._records = _TrustStore(store, settings)
        self._events = events
        self.reconfigure(settings)
        self.latest = TrustReview()
        self._reviewed: tuple[int, bytes] = (0, b"")
        self._reported: set[tuple[str, str]] = set()
        self._reviewing = asyncio.Lock()
        self._stamp: tuple[float, bytes] = (0.0, b"")
        self._tasks = TaskSet(log)
        self._review_again = False
        self._unsubscribe = events.subscribe(self._catalogue_updated, only="catalogue.updated")

    def reconfigure(self, settings: Trust) -> None:
        """Takes over other settings: from the next look on, every tool is reviewed by them."""
        self.holds_tools = settings.hold_changed or not settings.accept_new
        if settings != self._records.settings:
            self._records.settings = settings
            self._reviewed = (0, b"")

    async def aclose(self) -> None:
        self._unsubscribe()
        await self._tasks.cancel()

    async def review(self) -> TrustReview:
        """Compares the whole catalogue with what was accepted, and scans the texts of its tools."""
        async with self._catalogue.snapshot() as view:
            tools = [tool async for batch in tool_batches(view) for tool in batch]
            return await self.review_tools(view.generation, tools)

    async def review_tools(self, generation: int, tools: Sequence[Tool]) -> TrustReview:
        """Reviews the tools of one generation; the newest review is kept as `latest`."""
        async with self._reviewing:  # whoever comes while another reviews takes the result of that one
            state = (generation, await self._records.stamp())
            if state == self._reviewed:
                return self.latest
            review = await self._records.review(tools)
            if generation >= self._reviewed[0]:
                self._reviewed, self.latest = state, review
        self._report(review)
        return review

    def _report(self, review: TrustReview) -> None:
        """Emits an event for each tool that changed or is new, once."""
        for trust in review.standings:
            key = (trust.tool_id, trust.fingerprint)
            if trust.state == "accepted" or key in self._reported:
                continue
            self._reported.add(key)
            kinds = [flag.kind for flag in trust.flags]
            about = {"server": trust.server, "tool_id": trust.tool_id}
            self._events.emit(f"trust.{trust.state}", **about, held=trust.held, flags=kinds)

    async def accept(self, tool_ids: Iterable[str] | None = None) -> list[str]:
        """Accepts tools as they are now, by id or all of them; returns the ids of those that were not accepted so."""
        if tool_ids is None:
            async with self._catalogue.snapshot() as view:
                tools = [tool async for batch in tool_batches(view) for tool in batch]
        else:
            tools = [await self._catalogue.tool(tool_id) for tool_id in tool_ids]
        accepted = await self._records.accept(tools)
        self._stamp = (0.0, b"")
        for tool_id in accepted:
            self._events.emit("trust.accepted", tool_id=tool_id)
        return accepted

    async def definitions(self, tool_id: str) -> tuple[Tool, ToolDefinition | None]:
        """A tool as it is, whoever may see it, and its definition as it was accepted, while that is kept."""
        tool = await self._catalogue.tool(tool_id)
        fingerprint = await self._records.accepted(tool)
        versions = await self._catalogue.versions(tool.tool_id)
        return tool, {_mark(version): version.definition for version in versions}.get(fingerprint)

    async def stamp(self) -> bytes:
        """Changes when what is held back may have changed without the catalogue changing."""
        if not self.holds_tools:
            return b""
        now = time.monotonic()
        # Every call of a restricted caller asks: the store is read once a second at most.
        if now - self._stamp[0] > _STAMP_MAX_AGE_S:
            self._stamp = (now, await self._records.stamp())
        return self._stamp[1]

    def _catalogue_updated(self, event: Event) -> None:
        """Starts a review that nobody waits for. Servers that are read again at the same time share one."""
        del event
        self._review_again = True
        if not self._tasks:
            self._tasks.start(self._review_updates(), name="reviewing changed tools")

    async def _review_updates(self) -> None:
        while self._review_again:
            self._review_again = False
            try:
                await self.review()
            except ToolfoldError as error:
                log.warning("changed tools could not be reviewed: %s", error.message)
