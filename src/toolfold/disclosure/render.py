"""What a model reads of the catalogue: nodes, pointers to tools, whole tools, with the protocol's exact keys.

A pointer never holds a schema; `render_tool` is the only function that shows one. Nothing is looked up or ranked here:
faces and the gateway pass in the pages that the catalogue and search return. The protocols below stand for the pages of
search, since disclosure and search do not import each other.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NotRequired, Protocol, TypedDict

from toolfold.answers import ExpandedTool, ListedNode, NodePage, ToolHit, ToolList, ToolPage, ToolPointer
from toolfold.catalogue.catalogue import Page
from toolfold.containers import BoundedDict
from toolfold.disclosure.plain_arguments import plain_arguments
from toolfold.storage.base import Store
from toolfold.types import Caller, Node, Path, Tool

__all__ = ["Expansions", "render_tool_page"]

# How long other gateways know of an expansion.
_SHARED_S = 3600.0
# The record of expansions belongs to the caller, not to a connection, so it must not grow with those.
_MAX_EXPANSIONS = 50_000
# A search expands the first hits alone: of those further down one in fifty is the tool that was looked for, and every
# line is sent again with every later step (measured: docs/discovery.md).
_MAX_EXPANDED_HITS = 2
# A longer description has more to say than a pointer's summary.
_MAX_DESCRIPTION_CHARS = 600


class _Noted(TypedDict):
    note: NotRequired[str]
    may_be_old: NotRequired[str]


class _ToolPage(Protocol):
    @property
    def path(self) -> Path: ...

    @property
    def tools(self) -> Sequence[tuple[Tool, float, Sequence[str]]]: ...

    @property
    def next_cursor(self) -> str | None: ...

    @property
    def note(self) -> str: ...


class _ListPage(_ToolPage, Protocol):
    @property
    def nodes(self) -> Sequence[Node]: ...


class _NodePage(Protocol):
    @property
    def nodes(self) -> Sequence[tuple[Node, float]]: ...

    @property
    def note(self) -> str: ...


def render_listing(page: Page) -> ToolList:
    """The answer of `list`."""
    # Paths are looked up without regard to letter case.
    place = _casefolded(page.path)
    tools = [
        _pointer(tool, next((path for path in tool.paths if _casefolded(path) == place), None)) for tool in page.tools
    ]
    return _listing(page.path, page.nodes, tools, page.next_cursor)


def render_list_page(page: _ListPage) -> ToolList:
    """The answer of `list` with a query: each tool at the place at or below the listed path."""
    depth = len(page.path)
    tools = [
        _hit(tool, next((path for path in tool.paths if path[:depth] == page.path), None), confidence, same_as)
        for tool, confidence, same_as in page.tools
    ]
    return {**_listing(page.path, page.nodes, tools, page.next_cursor), **_noted(page.note)}


def render_tool_page(page: _ToolPage, expanded: Mapping[str, Sequence[str]] | None = None) -> ToolPage:
    """The answer of `search_tool_by_category`: each tool at its primary place. `expanded`: see `Expansions.of_hits`."""
    results = [_hit(tool, None, confidence, same_as) for tool, confidence, same_as in page.tools]
    answer: ToolPage = {"category_path": list(page.path), "results": results, "next_cursor": page.next_cursor}
    if expanded:
        answer["expanded"] = expanded
    return {**answer, **_noted(page.note)}


def render_node_page(page: _NodePage) -> NodePage:
    """The answer of `search_nodes`."""
    return {
        "results": [
            {"path": list(node.path), "summary": node.summary, "confidence": round(confidence, 2)}
            for node, confidence in page.nodes
        ],
        **_noted(page.note),
    }


def render_tool(tool: Tool, output_fields: list[str], has_hidden_fields: bool) -> ExpandedTool:
    """The whole of one tool, schemas as its server sent them: the answer of `expand_tool`."""
    definition = tool.definition
    return {
        "tool_id": tool.tool_id,
        "path": list(tool.paths[0]) if tool.paths else [],
        "summary": tool.summary,
        "description": definition.description,
        "args_schema": definition.input_schema,
        "result_schema": definition.output_schema,
        "version": tool.version,
        "tags": list(tool.tags),
        "output_fields": output_fields,
        "has_hidden_fields": has_hidden_fields,
    }


def _listing(
    path: Path, nodes: Sequence[Node], tools: Sequence[ToolPointer | ToolHit], next_cursor: str | None
) -> ToolList:
    entries: list[ListedNode] = [
        {"name": node.name, "path": list(node.path), "summary": node.summary, "tags": list(node.tags)} for node in nodes
    ]
    return {"path": list(path), "nodes": entries, "tools": tools, "next_cursor": next_cursor}


def _noted(note: str) -> _Noted:
    return {"note": note} if note else {}


def _hit(tool: Tool, path: Path | None, confidence: float, same_as: Sequence[str]) -> ToolHit:
    """A pointer with its confidence, and with the ids of the same tool at other servers where there are any."""
    hit: ToolHit = {**_pointer(tool, path), "confidence": round(confidence, 2)}
    return {**hit, "same_as": list(same_as)} if same_as else hit


def _pointer(tool: Tool, path: Path | None) -> ToolPointer:
    """The least a model needs to decide whether to expand a tool. Without a `path`: at its primary place."""
    if path is None:
        path = tool.paths[0] if tool.paths else ()
    return {
        "tool_id": tool.tool_id,
        "path": list(path),
        "summary": tool.summary,
        "tags": list(tool.tags),
        "confidence": None,
    }


def _casefolded(path: Path) -> Path:
    return tuple(name.casefold() for name in path)


class Expansions:
    """Which version of which tool each caller has expanded lately.

    Faces for models ask it when a call fails, or before each call where the configuration is strict. It forgets the
    oldest: a caller it forgot is only asked to expand once more.
    """

    def __init__(self) -> None:
        self._versions: BoundedDict[tuple[str, str, str], int] = BoundedDict(_MAX_EXPANSIONS)

    def record(self, caller: Caller, tool_id: str, version: int) -> None:
        self._versions.renew(_expansion_key(caller, tool_id), version)

    def of_hits(self, caller: Caller, page: _ToolPage) -> dict[str, list[str]]:
        """What the first hits of a search take, where lines tell that whole: to their caller they are expanded."""
        found: dict[str, list[str]] = {}
        for tool, _, _ in page.tools[:_MAX_EXPANDED_HITS]:
            lines = plain_arguments(tool.definition.input_schema)
            if lines is not None and len(tool.definition.description) <= _MAX_DESCRIPTION_CHARS:
                found[tool.tool_id] = lines
                self.record(caller, tool.tool_id, tool.version)
        return found

    def version(self, caller: Caller, tool_id: str) -> int | None:
        """The version that the caller expanded last; `None`: none, or it was long ago."""
        return self._versions.get(_expansion_key(caller, tool_id))

    async def share(self, store: Store, caller: Caller, tool_id: str, version: int) -> None:
        """Has the other gateways know of it, for a while."""
        await store.put_part(_shelf(caller), tool_id.casefold(), 0, b"%d" % version, for_s=_SHARED_S)

    async def is_shared(self, store: Store, caller: Caller, tool_id: str, version: int) -> bool:
        """Whether the caller expanded this version lately, at whatever gateway; known here from then on."""
        if (await store.parts(_shelf(caller), 0, tool_id.casefold())).get(tool_id.casefold()) != b"%d" % version:
            return False
        self.record(caller, tool_id, version)
        return True


def _shelf(caller: Caller) -> str:
    return "expansions/" + sha256(repr((caller.name, caller.session)).encode("utf-8", "surrogatepass")).hexdigest()


def _expansion_key(caller: Caller, tool_id: str) -> tuple[str, str, str]:
    return caller.name, caller.session, tool_id.casefold()
