"""Listings in, catalogue out: `build` is one pure function, with no store, no clock and no server in it.

It gives every tool its id, fingerprint, version, summary, risk and place, and reports what changed since the build
before. `commit` is where building and storing meet: it reads the build before, builds in a thread and writes.
"""

import asyncio
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial as bound
from os.path import commonprefix
from pathlib import Path as FilePath
from typing import Protocol, TypeVar

from msgspec import Raw, Struct
from msgspec.json import decode, encode
from msgspec.structs import asdict, replace

from toolfold.catalogue.changes import changes_between
from toolfold.catalogue.ids import Key, assign_all_ids
from toolfold.catalogue.kinds import server_of
from toolfold.catalogue.leaf_nodes import only_tools, with_leaves
from toolfold.catalogue.metadata import Rules
from toolfold.config import MetadataRule
from toolfold.errors import StoreChanged
from toolfold.fingerprint import fingerprint
from toolfold.storage.base import ServerRecord, Store, Update
from toolfold.types import Change, Listing, Node, Path, ServerInfo, Tool, ToolDefinition
from toolfold.words import split_identifier

__all__ = ["Build"]


# One line that says what a tool does, from what its server wrote. Plain words, no markup, never empty.

MAX_LENGTH = 100
# A first sentence shorter than this says too little alone; the next is added where it fits.
_SHORT = 24

# So many tools of a server that begin with the same sentence mean the server by it.
_SHARED = 3

# Characters of a description that are looked at.
_MAX_READ = 2000

# Markdown and HTML that servers write into descriptions.
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\n]*\)")
_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)(?:\s[^<>\n]{0,80}|/)?>")
# Tags that are never closed, or often not. Any other that is not is a word: `<rev>:<path>`.
_OPEN_TAGS = frozenset({"br", "hr", "img", "p", "li", "td", "th", "tr"})
_LINE_MARK = re.compile(
    r"^[ \t]*(?:#{1,6}[ \t]+|[-*+•][ \t]+|>[ \t]?|\d{1,2}[.)][ \t]+|[-=*_]{3,}[ \t]*$)", re.MULTILINE
)
_EMPHASIS = re.compile(r"`+|\*{1,3}|(?<!\w)_{1,2}(?=\w)|(?<=\w)_{1,2}(?!\w)|~~")
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_SENTENCE_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)(?<!\bapprox)[.!?](?=\s+[^a-z\s]|\s*$)")


def _summarise(definition: ToolDefinition, opening: str = "") -> str:
    """The first sentence of the description after the opening, else the title, else the name in words."""
    name = " ".join(split_identifier(definition.name)).lower()
    line = _line(definition.description.removeprefix(opening)) or _line(definition.description)
    return line or _line(definition.title) or _line(name).capitalize() or "A tool without a name or description"


def _shared_opening(definitions: Iterable[ToolDefinition]) -> str:
    """The whole sentences that most tools of a server begin with: `This tool belongs to the shop. It does: …`. A model
    that reads them in every summary cannot tell the tools apart."""
    texts = [definition.description[:_MAX_READ] for definition in definitions]
    firsts = Counter(first for text in texts for first, end, _ in [text.partition(". ")] if end)
    first, count = firsts.most_common(1)[0] if firsts else ("", 0)
    if count < _SHARED or count * 2 < len(texts):
        return ""
    common = commonprefix([text for text in texts if text.startswith(f"{first}. ")])  # noqa: RUF071 - no paths
    return common[: max(common.rfind(". "), common.rfind(": ")) + 2]


def _line(text: str) -> str:
    for paragraph in _PARAGRAPH.split(_plain(text)):
        line = " ".join(paragraph.split())
        if any(mark.isalnum() for mark in line):
            return _cut(line)
    return ""


def _plain(text: str) -> str:
    text = text[:_MAX_READ]
    if not (text.isascii() and text.isprintable()):
        text = "".join(_visible(mark) for mark in text)
    text = _FENCE.sub(" ", text)
    closed = _OPEN_TAGS.union(match[2].lower() for match in _TAG.finditer(text) if match[1])
    text = _TAG.sub(lambda match: " " if match[2].lower() in closed else match[0], _LINK.sub(r"\1", text))
    for pattern in (_LINE_MARK, _EMPHASIS):
        text = pattern.sub("", text)
    return text.strip()


def _visible(mark: str) -> str:
    """Invisible and control characters vanish; anything that breaks a line does so in one way."""
    if mark == "\n" or mark.isalnum():
        return mark
    kind = unicodedata.category(mark)
    if kind in {"Zl", "Zp"}:
        return "\n"
    if kind[0] == "Z" or mark in "\t\r\v\f":
        return " "
    return "" if kind[0] == "C" else mark


def _cut(line: str) -> str:
    sentence = _sentences(line)
    if len(sentence) <= MAX_LENGTH:
        return sentence
    head = sentence[: MAX_LENGTH - 1]
    space = sentence.rfind(" ", 0, MAX_LENGTH)
    if space > MAX_LENGTH // 2:
        head = sentence[:space]
    return head.rstrip(" ,;:.-\N{EN DASH}\N{EM DASH}(") + "…"


def _sentences(line: str) -> str:
    """The first sentence, or the first few where the first is very short."""
    ends = [match.end() for match in _SENTENCE_END.finditer(line) if match.end() <= MAX_LENGTH]
    end = next((end for end in ends if end >= _SHORT), None)
    if end is None and ends and len(line) > MAX_LENGTH:
        end = ends[0]
    return line[:end]


_NO_RULES = Rules()
_T = TypeVar("_T")
_K = TypeVar("_K", str, Path)
_MAX_ATTEMPTS = 5


class _Placed(Protocol):
    """Where the tools stand: what the ontology builder gives back."""

    @property
    def nodes(self) -> tuple[Node, ...]: ...

    @property
    def placements(self) -> dict[str, tuple[Path, ...]]: ...

    @property
    def warnings(self) -> tuple[str, ...]: ...


# Places all tools of a catalogue, given what their servers say of themselves.
PlaceTools = Callable[[Sequence[Tool], Mapping[str, ServerInfo]], _Placed]


class _CatalogueState(Struct, frozen=True, kw_only=True):
    """What a build leaves in the store, and the next one starts from."""

    generation: int = 0
    tools: tuple[Tool, ...] = ()
    nodes: tuple[Node, ...] = ()
    servers: tuple[ServerRecord, ...] = ()
    numbers: dict[str, dict[str, int]] = {}
    """Version numbers by folded tool id and fingerprint, of removed tools too."""


_EMPTY = _CatalogueState()


class _ServerReport(Struct, frozen=True, kw_only=True):
    name: str
    tools: int
    added: int = 0
    removed: int = 0
    changed: int = 0
    stale: bool = False
    error: str = ""
    warnings: tuple[str, ...] = ()


class _BuildReport(Struct, frozen=True, kw_only=True):
    """A build in figures, and everything a person should know about it."""

    tools: int
    nodes: int
    servers: tuple[_ServerReport, ...]
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
    report: _BuildReport
    update: Update
    generation: int = 0
    """The generation of the store that holds it, once it is committed."""


def build(
    listings: Iterable[Listing],
    before: _CatalogueState = _EMPTY,
    *,
    place: PlaceTools,
    failures: Mapping[str, str] | None = None,
    rules: Rules = _NO_RULES,
    at: float = 0.0,
    partial: bool = False,
    gone: Collection[str] = (),
) -> Build:
    """Makes the catalogue of what was read now.

    `failures` are servers that could not be read, with the reason: their earlier tools stay and are marked as stale.
    A server that is in neither was taken out of the configuration, and its tools go; with `partial` it stays as it is,
    unless it is among those that are `gone`.
    Of two listings of one server the last counts.
    """
    kept = _kept(before, gone) if partial else ()
    servers = _servers({listing.server: listing for listing in listings}, failures or {}, before, at, kept)
    definitions = _definitions(servers, before)
    ids, odd_ids = assign_all_ids(definitions, {(t.server, t.definition.key): t.tool_id for t in before.tools})
    earlier = {tool.tool_id: tool for tool in before.tools}
    openings = _openings(definitions)
    unplaced = [
        _tool(
            tool_id,
            key[0],
            definitions[key],
            earlier.get(tool_id),
            numbers=before.numbers,
            rules=rules,
            opening=openings[key[0], definitions[key].kind],
        )
        for key, tool_id in sorted(ids.items(), key=lambda item: item[1].casefold())
    ]
    counts = Counter((tool.server, tool.kind == "tool") for tool in unplaced)
    records = tuple(
        replace(server.record, tools=counts[name, True], others=counts[name, False]) for name, server in servers.items()
    )
    nodes, tools, notes = _place_tools(unplaced, records, before if partial else None, place)
    changes = changes_between(earlier, {tool.tool_id: tool for tool in tools})
    new = _CatalogueState(tools=tools, nodes=nodes, servers=records)
    return Build(
        tools=tools,
        nodes=nodes,
        servers=records,
        changes=changes,
        report=_report(new, before, changes, (*odd_ids, *notes)),
        update=_update(new, before, changes, at),
    )


def _openings(definitions: Mapping[Key, ToolDefinition]) -> dict[tuple[str, str], str]:
    """What the descriptions of a server begin with, for each kind of its leaves."""
    listed: dict[tuple[str, str], list[ToolDefinition]] = {}
    for (server, _), definition in definitions.items():
        listed.setdefault((server, definition.kind), []).append(definition)
    return {key: _shared_opening(own) for key, own in listed.items()}


class _Server(Struct):
    """A server of this build: read just now, or carried over from the build before."""

    record: ServerRecord
    read: tuple[ToolDefinition, ...] | None = None


def _kept(before: _CatalogueState, gone: Collection[str]) -> tuple[ServerRecord, ...]:
    return tuple(record for record in before.servers if record.name not in gone)


def _servers(
    listings: Mapping[str, Listing],
    failures: Mapping[str, str],
    before: _CatalogueState,
    at: float,
    kept: Sequence[ServerRecord],
) -> dict[str, _Server]:
    earlier = {record.name: record for record in before.servers}
    servers = {record.name: _Server(record) for record in kept}
    for name, reason in failures.items():
        record = earlier.get(name, ServerRecord(name=name))
        servers[name] = _Server(replace(record, error=reason, stale=record.read_at is not None))
    for name, listing in listings.items():
        record = ServerRecord(
            name=name,
            info=listing.info,
            read_at=at,
            ttl_ms=listing.ttl_ms,
            warnings=listing.warnings,
            hidden=listing.hidden,
        )
        servers[name] = _Server(record, listing.tools)
    return dict(sorted(servers.items()))


def _definitions(servers: Mapping[str, _Server], before: _CatalogueState) -> dict[Key, ToolDefinition]:
    """Every tool by server and name. Of two with one name on one server only the first can ever be called."""
    definitions = {
        (tool.server, tool.definition.key): tool.definition
        for tool in before.tools
        if tool.server in servers and servers[tool.server].read is None
    }
    for name, server in servers.items():
        repeated: dict[str, None] = {}
        for definition in server.read or ():
            if (name, definition.key) in definitions:
                repeated[definition.key] = None
            else:
                definitions[name, definition.key] = definition
        notes = [f'server "{name}" sent the tool "{tool}" more than once; the first one counts' for tool in repeated]
        if notes:
            server.record = replace(server.record, warnings=(*server.record.warnings, *notes))
    return definitions


def _tool(
    tool_id: str,
    server: str,
    definition: ToolDefinition,
    earlier: Tool | None,
    *,
    numbers: Mapping[str, Mapping[str, int]],
    rules: Rules,
    opening: str,
) -> Tool:
    metadata = asdict(rules.metadata(tool_id, definition, server))
    # Hashing and summarising are most of the cost of a build, and most tools did not change.
    mark = earlier.fingerprint if earlier and earlier.definition == definition else _fingerprint(definition)
    if earlier is not None and earlier.fingerprint == mark:
        summary = _summarise(definition, opening) if opening else earlier.summary
        return replace(earlier, definition=definition, server=server, summary=summary, paths=(), **metadata)
    versions = {**({earlier.fingerprint: earlier.version} if earlier else {}), **numbers.get(tool_id.casefold(), {})}
    return Tool(
        tool_id=tool_id,
        server=server,
        definition=definition,
        fingerprint=mark,
        # A definition that comes back gets its old number, so that a caller who expanded it then is not refused.
        version=versions.get(mark) or max(versions.values(), default=0) + 1,
        summary=_summarise(definition, opening),
        **metadata,
    )


_OF_THE_CONTENT = frozenset({"size", "annotations"})


def _fingerprint(definition: ToolDefinition) -> str:
    """Of what callers see; where the owner changed that, of what the server sent as well."""
    raw, original = definition.raw, definition.original
    if definition.kind == "resource":
        # How large it is and when it changed says nothing of what it is: a file that is written to is not a new one.
        sent = {key: value for key, value in decode(raw, type=dict[str, Raw]).items() if key not in _OF_THE_CONTENT}
        return fingerprint(Raw(encode(sent)))
    return fingerprint(raw if original is None else Raw(b"[%b,%b]" % (bytes(raw), bytes(original))))


def is_unchanged(
    listing: Listing, record: ServerRecord, tools: Sequence[Tool], rules: Sequence[MetadataRule] = ()
) -> bool:
    """Whether a build would leave all of a server as it is. `record` and `tools` are what is stored of it."""
    now = replace(record, info=listing.info, ttl_ms=listing.ttl_ms, warnings=listing.warnings, hidden=listing.hidden)
    now = replace(now, stale=False, error="")
    if now != record or len(listing.tools) != len(tools):
        return False
    stored, compiled = {tool.definition.key: tool for tool in tools}, Rules(rules)
    openings = _openings({(listing.server, tool.key): tool for tool in listing.tools})

    def is_same(definition: ToolDefinition, earlier: Tool) -> bool:
        if definition.kind != "tool" and definition != earlier.definition:
            return False  # it is listed with its size
        own = openings[listing.server, definition.kind]
        read = _tool(earlier.tool_id, earlier.server, definition, earlier, numbers={}, rules=compiled, opening=own)
        return read == replace(earlier, definition=definition, paths=())

    return all(tool.key in stored and is_same(tool, stored[tool.key]) for tool in listing.tools)


def _place_tools(
    tools: Sequence[Tool], records: Sequence[ServerRecord], settled: _CatalogueState | None, place: PlaceTools
) -> tuple[tuple[Node, ...], tuple[Tool, ...], tuple[str, ...]]:
    """Places the tools, unless they are just those of a `settled` build: then nothing moves."""
    if settled is not None and settled.nodes and len(tools) == len(settled.tools):
        paths = {tool.tool_id: tool.paths for tool in settled.tools}
        unmoved = tuple(replace(tool, paths=paths[tool.tool_id]) for tool in tools if tool.tool_id in paths)
        # A re-read server that changed nothing must not cost a placement of all tools.
        if unmoved == settled.tools:
            return settled.nodes, unmoved, ()
    ontology = place(only_tools(tools), {record.name: record.info for record in records})
    nodes, places = with_leaves(tools, ontology.nodes, ontology.placements)
    return nodes, tuple(replace(tool, paths=places.get(tool.tool_id, ())) for tool in tools), ontology.warnings


def _update(new: _CatalogueState, before: _CatalogueState, changes: tuple[Change, ...], at: float) -> Update:
    tools, removed_tools = _difference(before.tools, new.tools, lambda tool: tool.tool_id)
    nodes, removed_nodes = _difference(before.nodes, new.nodes, lambda node: node.path)
    servers, removed_servers = _difference(before.servers, new.servers, lambda record: record.name)
    return Update(
        based_on=before.generation,
        at=at,
        tools=tools,
        removed_tools=removed_tools,
        nodes=nodes,
        removed_nodes=removed_nodes,
        servers=servers,
        removed_servers=removed_servers,
        changes=changes,
    )


def _difference(
    before: Sequence[_T], after: Sequence[_T], key: Callable[[_T], _K]
) -> tuple[tuple[_T, ...], tuple[_K, ...]]:
    """What is new or altered, and the keys of what is gone."""
    earlier = {key(value): value for value in before}
    altered = tuple(value for value in after if earlier.get(key(value)) != value)
    return altered, tuple(sorted(earlier.keys() - {key(value) for value in after}))


def _report(
    new: _CatalogueState, before: _CatalogueState, changes: Sequence[Change], notes: tuple[str, ...]
) -> _BuildReport:
    owners = {tool.tool_id: tool.server for tool in (*before.tools, *new.tools)}
    # Of a tool that went in an earlier step only the id is known.
    by_server = Counter((owners.get(change.tool_id, server_of(change.tool_id)), change.kind) for change in changes)
    total = Counter(change.kind for change in changes)
    return _BuildReport(
        tools=sum(record.tools for record in new.servers),
        nodes=len(new.nodes),
        servers=tuple(
            _ServerReport(
                name=record.name,
                tools=record.tools,
                added=by_server[record.name, "added"],
                removed=by_server[record.name, "removed"],
                changed=by_server[record.name, "changed"],
                stale=record.stale,
                error=record.error,
                warnings=record.warnings,
            )
            for record in new.servers
        ),
        added=total["added"],
        removed=total["removed"],
        changed=total["changed"],
        unchanged=len(new.tools) - total["added"] - total["changed"],
        warnings=notes,
    )


def with_changes(built: Build, changes: tuple[Change, ...]) -> Build:
    """The same build, told with what changed in more steps than its own."""
    state = _CatalogueState(tools=built.tools, nodes=built.nodes, servers=built.servers)
    return replace(built, changes=changes, report=_report(state, _EMPTY, changes, built.report.warnings))


async def commit(
    store: Store,
    listings: Sequence[Listing],
    failures: Mapping[str, str],
    *,
    place: PlaceTools,
    rules: Sequence[MetadataRule],
    clock: Callable[[], float],
    partial: bool,
    gone: Collection[str] = (),
) -> Build:
    """Builds on what the store holds and writes it; again where another process committed meanwhile."""
    make = bound(build, listings, place=place, failures=failures, rules=Rules(rules), partial=partial, gone=gone)
    attempts = 0
    while True:
        attempts += 1
        before = await _read_state(store)
        # In a thread: placing 10,000 tools takes seconds, and calls go on meanwhile.
        built = await asyncio.to_thread(make, before, at=clock())
        if not built.update.makes_generation and not built.update.servers:
            return replace(built, generation=before.generation)
        try:
            return replace(built, generation=await store.commit(built.update))
        except StoreChanged:
            if attempts == _MAX_ATTEMPTS:
                raise


async def _read_state(store: Store) -> _CatalogueState:
    async with store.snapshot() as snapshot:
        return _CatalogueState(
            generation=snapshot.generation,
            tools=tuple(await snapshot.tools()),
            nodes=tuple(await snapshot.nodes()),
            servers=tuple(await snapshot.servers()),
            numbers=await snapshot.version_numbers(),
        )


def place_by_capability(
    tools: Sequence[Tool], infos: Mapping[str, ServerInfo], *, ontology_file: FilePath | None = None
) -> _Placed:
    """The ontology: by what the tools do, corrected by the owner's own file, which is read at each build."""
    from toolfold.catalogue.ontology import Overrides, build_ontology

    overrides = Overrides.load(ontology_file) if ontology_file is not None else None
    return build_ontology(tools, infos=infos, overrides=overrides)
