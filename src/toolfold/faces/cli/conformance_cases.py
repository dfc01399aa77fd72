"""The conformance cases of the discovery extension (docs/specification.md), for any server that says it speaks it.

Each case asks over an open connection and says what is wrong, or nothing. No case calls a tool of the server but the
one that whoever runs this names: where a call is asked for, it names a version that the tool cannot have, and a server
that conforms refuses it before it does anything. What comes is bounded by the connection, and quoted shortened.
Above: `conformance.py`. Below: `wire`, the operations' definitions and answers.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Raw, Struct

from toolfold.errors import ToolfoldError
from toolfold.faces.surface.definitions import BY_NAME, DISCOVERY_CAPABILITY, DISCOVERY_VERSION
from toolfold.text import printable
from toolfold.wire import Connection
from toolfold.wire.jsonrpc import DECODE_ERRORS, encode

__all__ = ["_CASES", "_Report", "_run_cases"]

_REQUIRED = ("list", "search_nodes", "search_tool_by_category", "expand_tool", "call_tool")
_MAX_PAGES = 50
_MAX_QUOTED = 300
_NO_SUCH = "no-such-thing-7f3a91"
# A version that no tool has.
_OTHER_VERSION = 2**31 - 1

_T = TypeVar("_T")
_Outcome = Literal["pass", "fail", "skip"]


class _Report(Struct, frozen=True):
    """What became of one case, and why where it did not pass."""

    case: str
    outcome: _Outcome
    rule: str
    reason: str = ""


class _Failed(Exception):
    """What the server does differently."""


class _Skipped(Exception):
    """Why a case says nothing of this server."""


class _Node(Struct):
    path: list[str]
    summary: str
    name: str = ""
    confidence: float | None = None


class _Pointer(Struct):
    tool_id: str
    path: list[str]
    summary: str
    tags: list[str]
    confidence: float | None


class _ListPage(Struct):
    path: list[str]
    nodes: list[_Node]
    tools: list[_Pointer]
    next_cursor: str | None


class _Hits(Struct):
    results: list[_Pointer]
    next_cursor: str | None
    category_path: list[str]


class _Nodes(Struct):
    results: list[_Node]


class _Child(Struct):
    name: str
    type: str


class _Inspected(Struct):
    tool_id: str
    node_type: str
    children: list[_Child]
    flattened_fields: list[str]


class _Expanded(Struct):
    tool_id: str
    path: list[str]
    summary: str
    description: str
    version: int
    tags: list[str]
    args_schema: dict[str, Any] | None = None


class _Problem(Struct):
    code: str
    message: str
    hints: list[Any]
    next_action: str


class _ErrorAnswer(Struct):
    error: _Problem


class _Spoken(Struct):
    version: int


class _Announced(Struct):
    experimental: dict[str, Raw] = {}


class _Schema(Struct):
    properties: dict[str, Any] = {}
    required: list[str] = []


class _Listed(Struct):
    name: str
    inputSchema: _Schema  # noqa: N815 - the protocol's spelling


class _Text(Struct):
    type: str
    text: str = ""


class _Result(Struct):
    content: list[_Text]
    isError: bool = False  # noqa: N815 - the protocol's spelling


class _Called(Struct):
    content: list[dict[str, Any]]
    isError: bool = False  # noqa: N815 - as above


class _Server:
    """A connection with what the cases learn of its server, each thing once."""

    def __init__(self, connection: Connection, call: tuple[str, Raw] | None) -> None:
        self.connection = connection
        self.call = call
        self._tools: dict[str, _Schema] | None = None
        self._root: _ListPage | None = None

    async def tools(self) -> dict[str, _Schema]:
        """What the listed tools take, by their names."""
        if self._tools is None:
            listed = [msgspec.json.decode(raw, type=_Listed) for raw in (await self.connection.list_tools()).tools]
            self._tools = {tool.name: tool.inputSchema for tool in listed}
        return self._tools

    async def root(self) -> _ListPage:
        if self._root is None:
            self._root = await self.answer("list", {}, _ListPage)
        return self._root

    async def level(self) -> _ListPage:
        """The first level with a tool that is found by going down."""
        page, seen = await self.root(), 0
        while not page.tools and page.nodes and seen < _MAX_PAGES:
            page, seen = await self.answer("list", {"path": page.nodes[0].path}, _ListPage), seen + 1
        if not page.tools:
            raise _Skipped("no tool is found by going down the first categories")
        return page

    async def a_tool(self) -> str:
        return (await self.level()).tools[0].tool_id

    async def ask(self, name: str, arguments: Mapping[str, Any]) -> _Result:
        raw = await self.connection.call_tool(name, Raw(encode(arguments)))
        try:
            result = msgspec.json.decode(raw, type=_Result)
        except DECODE_ERRORS as error:
            raise _Failed(f"{name} answered no `CallToolResult` with blocks of text: {error}") from None
        if [block.type for block in result.content] != ["text"]:
            raise _Failed(f"{name} answered with {len(result.content)} blocks, where one text is wanted")
        return result

    async def answer(self, name: str, arguments: Mapping[str, Any], kind: type[_T]) -> _T:
        """What an operation answered, as its type."""
        result = await self.ask(name, arguments)
        text = result.content[0].text
        if result.isError:
            raise _Failed(f"{name} failed: {_quoted(text)}")
        try:
            return msgspec.json.decode(text.encode(), type=kind)
        except DECODE_ERRORS as error:
            raise _Failed(f"the answer of {name} has another form: {error}: {_quoted(text)}") from None

    async def refused(self, code: str, name: str, arguments: Mapping[str, Any]) -> _Problem:
        """The error of an operation, which must have this code."""
        result = await self.ask(name, arguments)
        text = result.content[0].text
        if not result.isError:
            raise _Failed(f"{name} must fail with {code}, and answered: {_quoted(text)}")
        try:
            problem = msgspec.json.decode(text.encode(), type=_ErrorAnswer).error
        except DECODE_ERRORS as error:
            raise _Failed(f"the error of {name} has another form: {error}: {_quoted(text)}") from None
        if problem.code != code:
            raise _Failed(f"{name} must fail with {code}, and failed with {_quoted(problem.code)}")
        if not problem.message or not problem.next_action:
            raise _Failed(f"the error {code} of {name} lacks a message or a next_action")
        return problem

    async def found(self, name: str, arguments: Mapping[str, Any], kind: type[_T]) -> _T | None:
        """What a search answered; nothing where it says that nothing fits."""
        if (await self.ask(name, arguments)).isError:
            await self.refused("NO_MATCH_IN_CATEGORY", name, arguments)
            return None
        return await self.answer(name, arguments, kind)

    async def needs(self, name: str) -> None:
        if name not in await self.tools():
            raise _Skipped(f"{name} is optional and not listed here")


async def _announced(server: _Server) -> None:
    announced = msgspec.json.decode(server.connection.capabilities, type=_Announced).experimental
    if DISCOVERY_CAPABILITY not in announced:
        raise _Failed(f"capabilities.experimental has no {DISCOVERY_CAPABILITY!r}")
    version = msgspec.json.decode(announced[DISCOVERY_CAPABILITY], type=_Spoken).version
    if version != DISCOVERY_VERSION:
        raise _Failed(f"its version is {version}, and these cases are for {DISCOVERY_VERSION}")


# What a server need not list that lists its tools themselves, and the operations that find and read all else.
_NOT_READING = ["list", "search_nodes"]


async def _listed(server: _Server) -> None:
    tools = await server.tools()
    missing = [name for name in _REQUIRED if name not in tools]
    beside = missing in ([*_REQUIRED], _NOT_READING)
    if beside and any(name not in BY_NAME for name in tools):
        raise _Skipped("the server lists its tools themselves, and takes the operations beside them")
    if missing:
        raise _Failed(f"tools/list has no {', '.join(missing)}")


async def _schemas(server: _Server) -> None:
    tools = await server.tools()
    for name, definition in BY_NAME.items():
        schema = tools.get(name)
        if schema is None:
            continue
        if missing := [key for key in definition.properties if key not in schema.properties]:
            raise _Failed(f"the inputSchema of {name} lacks {', '.join(missing)}")
        if more := set(schema.required) - set(definition.required):
            raise _Failed(f"the inputSchema of {name} requires {_quoted(sorted(more))}")


async def _stable(server: _Server) -> None:
    first, again = [(await server.connection.list_tools()).tools for _ in range(2)]
    if list(map(bytes, first)) != list(map(bytes, again)):
        raise _Failed("tools/list answered other bytes the second time")


async def _root(server: _Server) -> None:
    page = await server.root()
    if page.path:
        raise _Failed(f"list without a path is about {_quoted(page.path)}")
    if not page.nodes and not page.tools:
        raise _Skipped("the catalogue is empty: most cases say nothing of it")


async def _node(server: _Server) -> None:
    nodes = (await server.root()).nodes
    if not nodes:
        raise _Skipped("there is no category at the root")
    page = await server.answer("list", {"path": nodes[0].path}, _ListPage)
    if page.path != nodes[0].path:
        raise _Failed(f"asked for {_quoted(nodes[0].path)}, and got {_quoted(page.path)}")


async def _paging(server: _Server) -> None:
    path, cursor = (await server.level()).path, None
    seen: list[str] = []
    for _ in range(_MAX_PAGES):
        page = await server.answer("list", {"path": path, "limit": 1, "cursor": cursor}, _ListPage)
        entries = [*(str(node.path) for node in page.nodes), *(tool.tool_id for tool in page.tools)]
        if len(entries) > 1:
            raise _Failed(f"a page of at most 1 has {len(entries)} entries")
        seen += entries
        if len(seen) != len(set(seen)):
            raise _Failed("following next_cursor shows an entry twice")
        if (cursor := page.next_cursor) is None:
            return
    raise _Skipped(f"no entry came twice in {_MAX_PAGES} pages; there are more, which were not read")


async def _unknown_path(server: _Server) -> None:
    await server.refused("UNKNOWN_PATH", "list", {"path": [_NO_SUCH]})


async def _bad_cursor(server: _Server) -> None:
    await server.refused("BAD_CURSOR", "list", {"cursor": _NO_SUCH})


async def _unknown_key(server: _Server) -> None:
    problem = await server.refused("INVALID_ARGUMENTS", "list", {_NO_SUCH: 1})
    if _NO_SUCH not in problem.message + str(problem.hints):
        raise _Failed("the error does not name the key that is unknown")


async def _search(server: _Server) -> None:
    summary = (await server.answer("expand_tool", {"tool_id": await server.a_tool()}, _Expanded)).summary
    page = await server.found("search_tool_by_category", {"query": summary or "a tool", "limit": 3}, _Hits)
    if page is None:
        raise _Skipped("nothing fits the first tool's own summary")
    confidences = [hit.confidence if hit.confidence is not None else -1.0 for hit in page.results]
    if len(confidences) > 3:
        raise _Failed(f"asked for at most 3 results, and got {len(confidences)}")
    if not all(0 <= one <= 1 for one in confidences) or confidences != sorted(confidences, reverse=True):
        raise _Failed(f"confidences must be from 0 to 1, the best first, and are {confidences}")


async def _named(server: _Server) -> None:
    tool_id = await server.a_tool()
    page = await server.answer("search_tool_by_category", {"query": tool_id}, _Hits)
    if not page.results or page.results[0].tool_id != tool_id:
        raise _Failed(f"a search for the id {_quoted(tool_id)} does not find that tool first")


async def _limit(server: _Server) -> None:
    page = await server.answer("list", {"limit": 1000}, _ListPage)
    if len(page.nodes) + len(page.tools) > 50:
        raise _Failed("a page has more than 50 entries")


async def _nodes(server: _Server) -> None:
    nodes = (await server.root()).nodes
    if not nodes:
        raise _Skipped("there is no category at the root")
    await server.found("search_nodes", {"query": f"{nodes[0].name} {nodes[0].summary}"[:300]}, _Nodes)


async def _expand(server: _Server) -> None:
    tool_id = await server.a_tool()
    expanded = await server.answer("expand_tool", {"tool_id": tool_id}, _Expanded)
    if expanded.tool_id != tool_id:
        raise _Failed(f"asked for {_quoted(tool_id)}, and got {_quoted(expanded.tool_id)}")
    if expanded.version < 1:
        raise _Failed(f"the version is {expanded.version}: it must be a whole number from 1 on")


async def _expand_unknown(server: _Server) -> None:
    await server.refused("TOOL_NOT_FOUND", "expand_tool", {"tool_id": f"{_NO_SUCH}.{_NO_SUCH}"})


async def _call_unknown(server: _Server) -> None:
    await server.refused("TOOL_NOT_FOUND", "call_tool", {"tool_id": f"{_NO_SUCH}.{_NO_SUCH}", "args": {}})


async def _changed(server: _Server) -> None:
    arguments = {"tool_id": await server.a_tool(), "args": {}, "expect_version": _OTHER_VERSION}
    await server.refused("TOOL_CHANGED", "call_tool", arguments)


async def _call_key(server: _Server) -> None:
    arguments = {"tool_id": await server.a_tool(), "args": {}, "expect_version": _OTHER_VERSION, _NO_SUCH: 1}
    await server.refused("INVALID_ARGUMENTS", "call_tool", arguments)


async def _call(server: _Server) -> None:
    if server.call is None:
        raise _Skipped("no tool was named that may be called: --call TOOL_ID")
    tool_id, args = server.call
    expanded = await server.answer("expand_tool", {"tool_id": tool_id}, _Expanded)
    arguments = {"tool_id": tool_id, "args": args, "expect_version": expanded.version}
    raw = await server.connection.call_tool("call_tool", Raw(encode(arguments)))
    result = msgspec.json.decode(raw, type=_Called)
    if result.isError:
        raise _Failed(f"the call of {_quoted(tool_id)} failed: {_quoted(bytes(raw).decode(errors='replace'))}")


async def _inspect(server: _Server) -> None:
    await server.needs("inspect_tool_output")
    await server.answer("inspect_tool_output", {"tool_id": await server.a_tool()}, _Inspected)


async def _handle(server: _Server) -> None:
    await server.needs("tool_output")
    result = await server.ask("tool_output", {"handle": _NO_SUCH, "extract": "anything"})
    if not result.isError or not re.search(r"\bUNKNOWN_HANDLE\b", result.content[0].text):
        raise _Failed(f"an unknown handle must fail with UNKNOWN_HANDLE: {_quoted(result.content[0].text)}")


_Case = Callable[[_Server], Awaitable[None]]
_CASES: dict[str, tuple[str, _Case]] = {
    "capability": ("the capability is announced, with its version", _announced),
    "operations": ("the five operations are in tools/list", _listed),
    "schemas": ("listed operations take what the specification says, and require no more", _schemas),
    "stable-list": ("tools/list answers the same bytes while nothing changes", _stable),
    "list-root": ("list without arguments shows the root", _root),
    "list-node": ("list shows the category that a path names", _node),
    "list-pages": ("next_cursor leads through all entries, each once", _paging),
    "limit": ("no page has more than 50 entries, whatever is asked for", _limit),
    "unknown-path": ("an unknown path fails with UNKNOWN_PATH", _unknown_path),
    "bad-cursor": ("a cursor that was not given out fails with BAD_CURSOR", _bad_cursor),
    "unknown-key": ("an unknown key is named, never dropped", _unknown_key),
    "search": ("a search shows the best first, with confidences from 0 to 1", _search),
    "search-name": ("a search for an id finds that tool first", _named),
    "search-nodes": ("a search for categories answers with them, or with an error of the form", _nodes),
    "expand": ("expand_tool shows the tool that was asked for, with a version", _expand),
    "expand-unknown": ("expanding what is not there fails with TOOL_NOT_FOUND", _expand_unknown),
    "call-unknown": ("calling what is not there fails with TOOL_NOT_FOUND", _call_unknown),
    "call-changed": ("a call for another version fails with TOOL_CHANGED, uncalled", _changed),
    "call-unknown-key": ("a call with an unknown key fails with INVALID_ARGUMENTS, uncalled", _call_key),
    "call": ("a call brings the tool's own result", _call),
    "inspect": ("inspect_tool_output answers with the structure of a result", _inspect),
    "unknown-handle": ("an unknown handle fails with UNKNOWN_HANDLE", _handle),
}


async def _run_cases(
    connection: Connection, call: tuple[str, Raw] | None = None, *, timeout_s: float = 30.0
) -> list[_Report]:
    """Runs all cases in order, each for at most `timeout_s`, all together for ten times as long. `call`: a tool that
    may be called, and its arguments."""
    server = _Server(connection, call)
    end = asyncio.get_running_loop().time() + 10 * timeout_s
    return [await _run(server, name, min(end, asyncio.get_running_loop().time() + timeout_s)) for name in _CASES]


async def _run(server: _Server, name: str, until: float) -> _Report:
    rule, case = _CASES[name]
    try:
        async with asyncio.timeout_at(until):
            await case(server)
    except _Skipped as why:
        return _Report(name, "skip", rule, str(why))
    except _Failed as why:
        return _Report(name, "fail", rule, str(why))
    except ToolfoldError as error:
        return _Report(name, "fail", rule, _quoted(error.message))
    except TimeoutError:
        return _Report(name, "fail", rule, "it took too long")
    except DECODE_ERRORS as error:
        return _Report(name, "fail", rule, f"what came has another form: {_quoted(error)}")
    return _Report(name, "pass", rule)


def _quoted(value: object) -> str:
    return printable(str(value)[: 4 * _MAX_QUOTED], _MAX_QUOTED)
