"""Listings in, catalogue out: one pure function, with no store, no clock and no server in it.

It gives every tool its id, fingerprint, version, summary, risk and place, says what changed since the build before, and
what one should know about it. `catalogue.py` above feeds it and commits what comes out.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial as bound
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from toolfold.catalogue.changes import changes_between
from toolfold.catalogue.ids import Key, assign_ids
from toolfold.catalogue.metadata import Rules
from toolfold.catalogue.summary import summarise
from toolfold.config import MetadataRule
from toolfold.errors import StoreChanged
from toolfold.schema import fingerprint
from toolfold.storage.base import ServerRecord, Store, Update
from toolfold.types import Change, Listing, Node, Path, ServerInfo, Tool, ToolDefinition

if TYPE_CHECKING:
    from toolfold.catalogue.ontology import Overrides


NO_RULES = Rules()


class Placed(Protocol):
    """Where the tools stand: what the ontology builder gives back."""

    @property
    def nodes(self) -> tuple[Node, ...]: ...

    @property
    def placements(self) -> dict[str, tuple[Path, ...]]: ...

    @property
    def warnings(self) -> tuple[str, ...]: ...


PlaceTools = Callable[[Sequence[Tool], Mapping[str, ServerInfo]], Placed]
"""Places all tools of a catalogue, given what their servers say of themselves."""


class Previous(Struct, frozen=True, kw_only=True):
    """The build before, as the store holds it."""

    generation: int = 0
    tools: tuple[Tool, ...] = ()
    nodes: tuple[Node, ...] = ()
    servers: tuple[ServerRecord, ...] = ()
    numbers: dict[str, dict[str, int]] = {}
    """Version numbers by folded tool id and fingerprint, of removed tools too."""


class ServerReport(Struct, frozen=True, kw_only=True):
    name: str
    tools: int
    added: int = 0
    removed: int = 0
    changed: int = 0
    stale: bool = False
    error: str = ""
    warnings: tuple[str, ...] = ()


class BuildReport(Struct, frozen=True, kw_only=True):
    """A build in figures, and everything a person should be told about it."""

    tools: int
    nodes: int
    servers: tuple[ServerReport, ...]
    added: int
    removed: int
    changed: int
    unchanged: int
    warnings: tuple[str, ...]


class Build(Struct, frozen=True, kw_only=True):
    """A whole catalogue. `update` is what a store must write to get there from the build before."""

    tools: tuple[Tool, ...]
    nodes: tuple[Node, ...]
    servers: tuple[ServerRecord, ...]
    changes: tuple[Change, ...]
    report: BuildReport
    update: Update
    generation: int = 0
    """The generation of the store that holds it, once it is committed."""


def build(
    listings: Iterable[Listing],
    previous: Previous | None = None,
    *,
    place: PlaceTools,
    failures: Mapping[str, str] | None = None,
    rules: Rules = NO_RULES,
    at: float = 0.0,
    partial: bool = False,
) -> Build:
    """Makes the catalogue of what was read now.

    `failures` are servers that could not be read, with the reason: their earlier tools stay and are marked as stale.
    A server that is in neither was taken out of the configuration, and its tools go; with `partial` it stays as it is.
    Of two listings of one server the last counts.
    """
    before = previous or Previous()
    servers = _servers({listing.server: listing for listing in listings}, failures or {}, before, at, partial)
    definitions = _definitions(servers, before)
    assigned = assign_ids(definitions, {(tool.server, tool.name): tool.tool_id for tool in before.tools})
    known = {tool.tool_id: tool for tool in before.tools}
    unplaced = [
        _tool(
            tool_id=tool_id,
            key=key,
            definition=definitions[key],
            known=known.get(tool_id),
            numbers=before.numbers,
            rules=rules,
        )
        for key, tool_id in sorted(assigned.ids.items(), key=lambda item: item[1].casefold())
    ]
    records = _records(servers, unplaced)
    nodes, tools, notes = _placed(unplaced, records, before if partial else None, place)
    changes = changes_between(known, {tool.tool_id: tool for tool in tools})
    return Build(
        tools=tools,
        nodes=nodes,
        servers=records,
        changes=changes,
        report=_report(
            tools=tools,
            nodes=nodes,
            records=records,
            changes=changes,
            notes=(*assigned.warnings, *notes),
            before=before,
        ),
        update=_update(tools=tools, nodes=nodes, records=records, changes=changes, before=before, at=at),
    )


class _Server(Struct):
    """A server of this build: read just now, or carried over from the build before."""

    record: ServerRecord
    read: tuple[ToolDefinition, ...] | None = None


def _servers(
    listings: Mapping[str, Listing], failures: Mapping[str, str], before: Previous, at: float, partial: bool
) -> dict[str, _Server]:
    found = {record.name: _Server(record) for record in before.servers if partial}
    earlier = {record.name: record for record in before.servers}
    for name, reason in failures.items():
        record = earlier.get(name, ServerRecord(name=name))
        found[name] = _Server(replace(record, error=reason, stale=record.read_at is not None))
    for name, listing in listings.items():
        record = ServerRecord(
            name=name, info=listing.info, read_at=at, ttl_ms=listing.ttl_ms, warnings=listing.warnings
        )
        found[name] = _Server(record, listing.tools)
    return dict(sorted(found.items()))


def _definitions(servers: Mapping[str, _Server], before: Previous) -> dict[Key, ToolDefinition]:
    """Every tool by server and name. Of two with one name on one server only the first can ever be called."""
    found = {(tool.server, tool.name): tool.definition for tool in before.tools if _carried(servers, tool.server)}
    for name, server in servers.items():
        twice: dict[str, None] = {}
        for definition in server.read or ():
            if (name, definition.name) in found:
                twice[definition.name] = None
            else:
                found[name, definition.name] = definition
        notes = tuple(f'server "{name}" sent the tool "{tool}" more than once; the first one counts' for tool in twice)
        if notes:
            server.record = replace(server.record, warnings=(*server.record.warnings, *notes))
    return found


def _carried(servers: Mapping[str, _Server], name: str) -> bool:
    return name in servers and servers[name].read is None


def _tool(
    *,
    tool_id: str,
    key: Key,
    definition: ToolDefinition,
    known: Tool | None,
    numbers: Mapping[str, Mapping[str, int]],
    rules: Rules,
) -> Tool:
    if known is not None and known.definition == definition:
        mark, version, summary = known.fingerprint, known.version, known.summary
    else:
        mark = fingerprint(definition.raw)
        seen = {**({known.fingerprint: known.version} if known else {}), **numbers.get(tool_id.casefold(), {})}
        version = seen.get(mark) or max(seen.values(), default=0) + 1
        summary = summarise(definition)
    metadata = rules.metadata(tool_id, definition)
    return Tool(
        tool_id=tool_id,
        server=key[0],
        definition=definition,
        fingerprint=mark,
        version=version,
        summary=summary,
        tags=metadata.tags,
        risks=metadata.risks,
        cost=metadata.cost,
        access=metadata.access,
        paths=(),
    )


def _records(servers: Mapping[str, _Server], tools: Sequence[Tool]) -> tuple[ServerRecord, ...]:
    counts: dict[str, int] = {}
    for tool in tools:
        counts[tool.server] = counts.get(tool.server, 0) + 1
    return tuple(replace(server.record, tools=counts.get(name, 0)) for name, server in servers.items())


def _placed(
    tools: Sequence[Tool], records: Sequence[ServerRecord], settled: Previous | None, place: PlaceTools
) -> tuple[tuple[Node, ...], tuple[Tool, ...], tuple[str, ...]]:
    """Places the tools, unless they are just those of a `settled` build: then nothing moves."""
    if settled is not None and settled.nodes and len(tools) == len(settled.tools):
        stood = {tool.tool_id: tool for tool in settled.tools}
        kept = tuple(replace(tool, paths=stood[tool.tool_id].paths) for tool in tools if tool.tool_id in stood)
        if kept == settled.tools:
            return settled.nodes, kept, ()
    ontology = place(tools, {record.name: record.info for record in records})
    placed = tuple(replace(tool, paths=ontology.placements.get(tool.tool_id, ())) for tool in tools)
    return ontology.nodes, placed, ontology.warnings


def _update(
    *,
    tools: Sequence[Tool],
    nodes: Sequence[Node],
    records: Sequence[ServerRecord],
    changes: tuple[Change, ...],
    before: Previous,
    at: float,
) -> Update:
    had_tools = {tool.tool_id: tool for tool in before.tools}
    had_nodes = {node.path: node for node in before.nodes}
    had_servers = {record.name: record for record in before.servers}
    return Update(
        based_on=before.generation,
        at=at,
        tools=tuple(tool for tool in tools if had_tools.get(tool.tool_id) != tool),
        removed_tools=tuple(sorted(had_tools.keys() - {tool.tool_id for tool in tools})),
        nodes=tuple(node for node in nodes if had_nodes.get(node.path) != node),
        removed_nodes=tuple(sorted(had_nodes.keys() - {node.path for node in nodes})),
        servers=tuple(record for record in records if had_servers.get(record.name) != record),
        removed_servers=tuple(sorted(had_servers.keys() - {record.name for record in records})),
        changes=changes,
    )


def _report(
    *,
    tools: Sequence[Tool],
    nodes: Sequence[Node],
    records: Sequence[ServerRecord],
    changes: Sequence[Change],
    notes: tuple[str, ...],
    before: Previous,
) -> BuildReport:
    owners = {tool.tool_id: tool.server for tool in (*before.tools, *tools)}
    counted: dict[tuple[str, str], int] = {}
    for change in changes:
        for key in ((owners[change.tool_id], change.kind), ("", change.kind)):
            counted[key] = counted.get(key, 0) + 1
    added, changed = counted.get(("", "added"), 0), counted.get(("", "changed"), 0)
    return BuildReport(
        tools=len(tools),
        nodes=len(nodes),
        servers=tuple(
            ServerReport(
                name=record.name,
                tools=record.tools,
                added=counted.get((record.name, "added"), 0),
                removed=counted.get((record.name, "removed"), 0),
                changed=counted.get((record.name, "changed"), 0),
                stale=record.stale,
                error=record.error,
                warnings=record.warnings,
            )
            for record in records
        ),
        added=added,
        removed=counted.get(("", "removed"), 0),
        changed=changed,
        unchanged=len(tools) - added - changed,
        warnings=notes,
    )


# --- From listings to a committed generation: reads the build before, builds in a thread, writes, and tries again w

ATTEMPTS = 5
"""How often a build is made again because another process committed meanwhile."""


async def commit(
    store: Store,
    listings: Sequence[Listing],
    failures: Mapping[str, str],
    *,
    place: PlaceTools | None,
    rules: Sequence[MetadataRule],
    clock: Callable[[], float],
    partial: bool,
) -> Build:
    make = bound(
        build, listings, place=place or place_by_capability, failures=failures, rules=Rules(rules), partial=partial
    )
    for attempt in range(ATTEMPTS):
        before = await _read_previous(store)
        made = await asyncio.to_thread(make, before, at=clock())
        try:
            return replace(made, generation=await store.commit(made.update))
        except StoreChanged:
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


async def _read_previous(store: Store) -> Previous:
    async with store.snapshot() as view:
        return Previous(
            generation=view.generation,
            tools=tuple(await view.tools()),
            nodes=tuple(await view.nodes()),
            servers=tuple(await view.servers()),
            numbers=await view.version_numbers(),
        )


def place_by_capability(
    tools: Sequence[Tool], infos: Mapping[str, ServerInfo], *, overrides: "Overrides | None" = None
) -> Placed:
    """The ontology: by what the tools do, and as the owner's file of overrides wants it."""
    from toolfold.catalogue.ontology import build_ontology

    return build_ontology(tools, infos=infos, overrides=overrides)
