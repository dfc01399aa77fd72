"""Resources, templates, prompts and skills of all servers for whoever asks in the protocol's own words.

Each request is a call like any other: it goes through the pipeline, under the leaf that it is about. Which leaf that
is, and whether a caller may read a URI that no server lists, is found here. What is hidden is answered as what is not
there. A file in the folder of a skill is read as that skill's and in no other way: there it is checked.
Above: the gateway. Below: the catalogue's view of a caller.
"""

from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from toolfold.calls.pipeline import Handler
from toolfold.catalogue.catalogue import Catalogue
from toolfold.catalogue.cursor import Position, decode_cursor, encode_cursor, state_of
from toolfold.catalogue.ids import natural_leaf_id
from toolfold.errors import BadCursor, NotBuilt, ToolfoldError, ToolNotFound
from toolfold.leaf_address import MAX_URI_CHARS, TOOLFOLD, LeafAddress, fold_uri, parse_address
from toolfold.policy.access import AccessControl
from toolfold.policy.view import CatalogueView
from toolfold.skill_entry import SkillEntry
from toolfold.storage.base import ServerRecord, Snapshot
from toolfold.text import printable
from toolfold.types import LOCAL, CallContext, Caller, Kind, Outcome, Tool, ToolCall
from toolfold.upstream.leaves import LISTED_BY, read_leaf, uri_of
from toolfold.upstream.refresh import UpstreamManager
from toolfold.uri_template import UriTemplate

__all__ = ["LeafPage", "Leaves"]

# Of one page, and how large it may get.
PAGE = 100
PAGE_BYTES = 512 << 10
_BATCH = 500
_SHOWN = 200
_LOCAL = CallContext()
_NO_VALUES = Raw(b'{"completion":{"values":[]}}')


class LeafPage(Struct, frozen=True):
    """Some leaves of one kind, in the order of their ids."""

    leaves: tuple[Tool, ...]
    next_cursor: str | None = None


class _Index(Struct):
    """What one view has of leaves that are no tools, without their definitions."""

    key: tuple[int, int]
    ids: dict[Kind, list[str]]
    resources: dict[str, dict[str, str]]
    """The ids by URI and server."""
    templates: dict[tuple[str, str], tuple[UriTemplate, str]]
    """Each template with its id, by server and text."""
    hidden: dict[str, list[tuple[Kind, str]]]
    """Of each server the kinds and addresses of the resources, templates and skills that the view leaves out."""
    skills: dict[str, dict[str, str]]
    """The ids of skills by server and root, folded; none of a hidden one."""

    def skill_of(self, server: str, uri: str) -> str | None:
        """The id of the skill whose folder a URI is in, the innermost; empty where it may be a file of a skill under
        another address, or of a hidden one. A server may take other letters, steps or escapes for the same."""
        roots = self.skills.get(server)
        if not roots or server in self.resources.get(uri, {}):
            return None
        folded = fold_uri(uri)
        found = next((roots[root] for root in _roots_of(folded) if root in roots), None)
        return "" if found is None and (folded.startswith("skill:") or len(uri) > MAX_URI_CHARS) else found

    def knows(self, server: str, uri: str) -> bool:
        """Whether its caller sees it listed: what is hidden must not even make an address ambiguous."""
        return server in self.resources.get(uri, {}) or bool(self.skill_of(server, uri))

    def listed_by(self, uri: str) -> list[str]:
        """The servers that list a URI, to this caller."""
        return sorted(server for server in {*self.resources.get(uri, {}), *self.skills} if self.knows(server, uri))

    def servers_of(self, uri: str) -> list[str]:
        """The servers that may mean a URI: that list it, or else have a template for it."""
        made_by = (server for server, _ in self.templates if self.template_for(server, uri))
        return self.listed_by(uri) or sorted(set(made_by))

    def is_closed(self, server: str, template: UriTemplate) -> bool:
        """Whether a template may make the URI of something hidden: then it makes what is listed and nothing else,
        since a server may take several URIs for one thing."""
        hidden = self.hidden.get(server, ())
        return any(
            kind == "template"
            or template.may_make(address)
            or (kind == "skill" and template.may_enter(_root_of(address)))
            for kind, address in hidden
        )

    def template_for(self, server: str, uri: str) -> str:
        """The id of the template of a server that may make a URI; empty where none does."""
        own = (found for (of, _), found in self.templates.items() if of == server)
        fits = (tool_id for template, tool_id in own if template.may_make(uri) and not self.is_closed(server, template))
        return next(fits, "")


class Leaves:
    """The leaves of one gateway that are no tools. `calls` is its pipeline, `ready` waits for a first catalogue."""

    def __init__(
        self,
        catalogue: Catalogue,
        access: AccessControl,
        calls: Callable[[], Handler],
        ready: Callable[[], Awaitable[None]],
        servers: UpstreamManager,
    ) -> None:
        self._catalogue = catalogue
        self._access = access
        self._calls = calls
        self._ready = ready
        self._servers = servers
        self._indexes: WeakKeyDictionary[CatalogueView, _Index] = WeakKeyDictionary()

    async def page(self, kind: Kind, *, cursor: str | None = None, caller: Caller = LOCAL) -> LeafPage:
        """Some leaves of a kind; a cursor goes on where a page ended. Raises `BadCursor`."""
        view, index = await self._look(caller)
        ids = index.ids[kind]
        start = 0
        if cursor is not None:
            try:
                position = decode_cursor(cursor, (kind,), ())
            except BadCursor as error:
                raise BadCursor(error.message, next_action="list again without a cursor") from None
            if position.kind != "tool":
                raise BadCursor("this is a cursor of another list", next_action="list again without a cursor")
            # By the last one shown: what comes and goes meanwhile moves nothing else.
            start = bisect_right(ids, position.name.casefold(), key=str.casefold)
        if start >= len(ids):
            return LeafPage(())
        async with view.catalogue.snapshot() as snapshot:
            found = await snapshot.tools(ids=ids[start : start + PAGE])
        shown = _within(found, PAGE_BYTES)
        more = len(shown) < len(found) or start + PAGE < len(ids)
        after = encode_cursor((kind,), (), Position("tool", shown[-1].tool_id)) if more and shown else None
        return LeafPage(tuple(shown), after)

    async def read(self, address: str, context: CallContext = _LOCAL) -> Outcome:
        """What a resource holds, as its server answers `resources/read`. Raises `ToolNotFound`."""
        tool, uri = await self.find(address, context.caller)
        return await self.request(tool, "resources/read", {"uri": uri}, context)

    async def prompt(self, name: str, arguments: Mapping[str, Any] | Raw, context: CallContext = _LOCAL) -> Outcome:
        """A prompt with its arguments, as its server answers `prompts/get`. Raises `ToolNotFound`."""
        tool = await self.find_prompt(name, context.caller)
        return await self.request(
            tool, "prompts/get", {"name": tool.definition.address, "arguments": arguments}, context
        )

    async def complete(self, tool: Tool, params: Mapping[str, Any], context: CallContext = _LOCAL) -> Outcome:
        """Values for an argument of a prompt or a template, as its server suggests them."""
        definition = tool.definition
        caller = self._access.resolve(context.caller)
        call = ToolCall(tool=tool)
        if self._access.requires_confirmation(call, replace(context, caller=caller)):
            return Outcome(raw=_NO_VALUES)  # nobody is asked at each letter that somebody types
        if definition.kind == "prompt":
            ref = {"type": "ref/prompt", "name": definition.address}
        else:
            ref = {"type": "ref/resource", "uri": definition.address}
        return await self.request(tool, "completion/complete", {**params, "ref": ref}, context)

    async def request(self, tool: Tool, method: str, params: Mapping[str, Any], context: CallContext) -> Outcome:
        """A request of the protocol about a leaf, whole however large: who asks so is a program."""
        call = ToolCall(tool=tool, arguments=Raw(msgspec.json.encode(params)), method=method)
        return await self._calls()(call, replace(context, whole=True))

    async def find_prompt(self, name: str, caller: Caller = LOCAL) -> Tool:
        view, _ = await self._look(caller)
        try:
            return await view.catalogue.tool(f"prompt:{name}")
        except ToolNotFound:
            raise await self._explained(_not_found("prompt", name), name, view, caller) from None

    async def find(self, address: str, caller: Caller = LOCAL) -> tuple[Tool, str]:
        """The leaf that an address is about, and the URI to read. Of a URI as its server wrote it, the one server that
        may mean it. Raises `ToolNotFound`."""
        view, index = await self._look(caller)
        named = parse_address(address)
        if named is not None and named.template:
            return await self._of_template(view, index, named, address)
        meant = await self._meant(view, index, named, address)
        server, uri = meant.server, meant.uri
        if index.skill_of(server, uri) is not None:
            tool = await self._skill_of(view, index, server, uri)
        elif tool_id := index.resources.get(uri, {}).get(server) or index.template_for(server, uri):
            tool = await view.catalogue.tool(tool_id)
        else:
            tool = await self._unlisted(view, index, server, uri, caller)
        if tool is None:
            raise await self._explained(_not_found("resource", address), f"{server}.", view, caller)
        return tool, uri

    async def find_skill(self, address: str, caller: Caller = LOCAL) -> Tool:
        """The skill whose `SKILL.md` has an address. Raises `ToolNotFound`."""
        tool, uri = await self.find(address, caller)
        if tool.kind != "skill" or tool.definition.address != uri:
            raise _not_found("skill", address)
        return tool

    async def find_template(self, address: str, caller: Caller = LOCAL) -> Tool:
        """The template or resource that completion is asked for. Raises `ToolNotFound`."""
        view, index = await self._look(caller)
        named = parse_address(address)
        if named is not None and named.template and (found := index.templates.get((named.server, named.template))):
            return await view.catalogue.tool(found[1])
        return (await self.find(address, caller))[0]

    async def _explained(self, error: ToolNotFound, about: str, view: CatalogueView, caller: Caller) -> ToolfoldError:
        """The same error, or that this caller has to sign in to the server that it is about."""
        return await self._servers.credentials.explain(error, about, caller.name, view.hides)

    async def _of_template(
        self, view: CatalogueView, index: _Index, named: LeafAddress, address: str
    ) -> tuple[Tool, str]:
        found = index.templates.get((named.server, named.template))
        if found is None:
            raise _not_found("resource", address)
        try:
            uri = found[0].expand(named.values)
        except (ValueError, TypeError):
            raise _not_found("resource", address) from None
        is_file = index.skill_of(named.server, uri) is not None
        if is_file and (tool := await self._skill_of(view, index, named.server, uri)):
            return tool, uri
        if is_file or (index.is_closed(named.server, found[0]) and not index.knows(named.server, uri)):
            raise _not_found("resource", address)
        return await view.catalogue.tool(found[1]), uri

    async def _meant(self, view: CatalogueView, index: _Index, named: LeafAddress | None, address: str) -> LeafAddress:
        """What an address of ours names, or the URI that one server alone wrote so: `ui://a/b` may be either."""
        if named is None:
            return _written_by(index.servers_of(address), address)
        if address.startswith(TOOLFOLD) or index.knows(named.server, named.uri):
            return named
        # An address that names a server, be it one that is not there, is no other's, unless that lists it.
        written = index.listed_by(address)
        exists = named.server in await self._records() and not view.hides(named.server)
        if not written or (exists and written != [named.server]):
            return named
        return _written_by(written, address)

    async def _records(self) -> dict[str, ServerRecord]:
        return {record.name: record for record in await self._catalogue.servers()}

    async def _skill_of(self, view: CatalogueView, index: _Index, server: str, uri: str) -> Tool | None:
        """The skill that has a file; `None` where it is hidden, or lists no such file."""
        if tool_id := index.skill_of(server, uri):
            tool = await view.catalogue.tool(tool_id)
            if any(file.uri == uri for file in SkillEntry.of(tool.definition.raw).resources):
                return tool
        return None

    async def _unlisted(self, view: CatalogueView, index: _Index, server: str, uri: str, caller: Caller) -> Tool | None:
        """A resource that no list holds, where its caller may see everything that its server lists, and the policy
        lets it have this one. Anything else might be another URI of what is hidden."""
        record = (await self._records()).get(server)
        if record is None or view.hides(server) or index.hidden.get(server):
            return None
        if any(hidden.startswith("skill:") for hidden in record.hidden):  # by the owner's rules, for everybody
            return None
        try:
            leaf = read_leaf("resource", Raw(msgspec.json.encode({"uri": uri, "name": uri})))
        except ValueError:
            return None
        tool_id = natural_leaf_id(server, leaf)
        tool = Tool(tool_id=tool_id, server=server, definition=leaf, fingerprint="", risks=("read-only",))
        return tool if view.unrestricted or self._access.allows_unlisted(tool, caller) else None

    def check(self, call: ToolCall, context: CallContext) -> Awaitable[ToolCall] | None:
        """A check of the pipeline: no values of a template lead to what is hidden, or to a skill's file unchecked."""
        if call.tool.kind != "template" or call.method == "completion/complete":
            return None
        return self._check_template(self._access.view(context.caller), call)

    async def _check_template(self, view: CatalogueView, call: ToolCall) -> ToolCall:
        definition, server = call.tool.definition, call.tool.server
        if call.method:
            uri = msgspec.json.decode(call.arguments, type=dict[str, Any])["uri"]
        else:
            uri = uri_of(definition, call.arguments)
        index = await self._index(view)
        closed = not index.knows(server, uri) and index.is_closed(server, UriTemplate(definition.address))
        if closed or index.skill_of(server, uri) is not None:
            raise _not_found("resource", uri)
        return call

    async def _look(self, caller: Caller) -> tuple[CatalogueView, _Index]:
        await self._ready()
        view = await self._access.view(caller).settled()
        try:
            return view, await self._index(view)
        except NotBuilt:  # then there is nothing
            return view, _new_index((0, 0))

    async def _index(self, view: CatalogueView) -> _Index:
        async with view.catalogue.snapshot() as snapshot:
            key = (snapshot.generation, state_of(snapshot))
            index = self._indexes.get(view)
            if index is None or index.key != key:
                index = self._indexes[view] = await _read_index(key, snapshot)
                if not view.unrestricted:
                    async with self._catalogue.snapshot() as whole:
                        index.hidden = await _hidden(whole, index)
            return index


def _written_by(servers: Sequence[str], address: str) -> LeafAddress:
    """The URI of the one server that may mean it, or of none. Raises `ToolNotFound` where there are several."""
    if len(servers) > 1:
        why = f"it may be of {', '.join(servers[:5])}; use the address that is listed"
        raise _not_found("resource", address, why)
    return LeafAddress("".join(servers), uri=address)


def _roots_of(uri: str) -> Iterator[str]:
    """The folders that a URI is in, the innermost first."""
    end = uri.rfind("/")
    while end > 0:
        yield uri[: end + 1]
        end = uri.rfind("/", 0, end)


async def _of_kind(snapshot: Snapshot, kind: Kind) -> AsyncIterator[Tool]:
    front = after = f"{kind}:"
    while batch := await snapshot.tools(after=after, limit=_BATCH):
        for tool in batch:
            if not tool.tool_id.startswith(front):
                return
            yield tool
        after = batch[-1].tool_id


def _new_index(key: tuple[int, int]) -> _Index:
    return _Index(key, {kind: [] for kind in LISTED_BY}, {}, {}, {}, {})


def _root_of(address: str) -> str:
    return address[: address.rindex("/") + 1]


def _folder_of(address: str) -> str:
    return f"{fold_uri(_root_of(address))}/"


async def _read_index(key: tuple[int, int], snapshot: Snapshot) -> _Index:
    index = _new_index(key)
    for kind, ids in index.ids.items():
        async for tool in _of_kind(snapshot, kind):
            ids.append(tool.tool_id)
            address = tool.definition.address
            if kind == "resource":
                index.resources.setdefault(address, {})[tool.server] = tool.tool_id
            elif kind == "template":
                index.templates[tool.server, address] = UriTemplate(address), tool.tool_id
            elif kind == "skill":
                index.skills.setdefault(tool.server, {})[_folder_of(address)] = tool.tool_id
    return index


async def _hidden(whole: Snapshot, index: _Index) -> dict[str, list[tuple[Kind, str]]]:
    hidden: dict[str, list[tuple[Kind, str]]] = {}
    kinds: Sequence[Kind] = ("resource", "template", "skill")
    for kind in kinds:
        seen = set(index.ids[kind])
        async for tool in _of_kind(whole, kind):
            if tool.tool_id not in seen:
                hidden.setdefault(tool.server, []).append((kind, tool.definition.address))
                if kind == "skill":
                    index.skills.setdefault(tool.server, {})[_folder_of(tool.definition.address)] = ""
    return hidden


def _within(tools: Sequence[Tool], most: int) -> list[Tool]:
    """As many as fit, and at least one."""
    shown: list[Tool] = []
    for tool in tools:
        most -= len(memoryview(tool.definition.raw))
        if most < 0 and shown:
            break
        shown.append(tool)
    return shown


def _not_found(kind: str, name: str, why: str = "") -> ToolNotFound:
    text = f"there is no {kind} {printable(name, _SHOWN)!r}" if not why else f"{printable(name, _SHOWN)!r}: {why}"
    return ToolNotFound(text, next_action=f"list the {kind}s, and use an address that stands there")
