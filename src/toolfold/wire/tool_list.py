"""The list of tools of a server, page after page, each tool as the exact object that was sent.

An entry that cannot be a tool is left out, one that is only slightly wrong is not; both give a warning. Above:
`connection.py`.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolfold.errors import RemoteError
from toolfold.text import cut_deep
from toolfold.wire.dispatcher import unreadable_answer
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS, METHOD_NOT_FOUND, parse_string
from toolfold.wire.types import ToolList, WireOptions

_T = TypeVar("_T")
_Request = Callable[[str, Raw | None], Awaitable[Raw]]


class _Page(Struct):
    tools: Raw = ABSENT
    nextCursor: Raw = ABSENT  # noqa: N815 - the protocol's spelling
    ttlMs: Raw = ABSENT  # noqa: N815 - as above
    cacheScope: Raw = ABSENT  # noqa: N815 - as above


class _Tool(Struct):
    name: str
    inputSchema: Raw | UnsetType = UNSET  # noqa: N815 - as above


_page = msgspec.json.Decoder(_Page)
_tool = msgspec.json.Decoder(_Tool)
_list = msgspec.json.Decoder(list[Raw])

_END = (b"", b"null", b'""')


class _Pages:
    """What was read so far."""

    def __init__(self) -> None:
        self.tools: list[Raw] = []
        self.warnings: list[str] = []
        self.ttls: list[int] = []
        self.scopes: set[str] = set()
        self.size = 0

    def add(self, result: Raw) -> bytes:
        """Adds a page; returns the cursor of the next, as JSON."""
        try:
            page, entries = _read_page(result)
        except DECODE_ERRORS as error:
            raise unreadable_answer("tools/list", str(error)) from error
        if entries is None:
            raise unreadable_answer("tools/list", "it has no `tools`")
        for entry in entries:
            self._add_tool(entry)
        self.size += memoryview(result).nbytes
        ttl = _parse(page.ttlMs, int, -1)
        if ttl >= 0:
            self.ttls.append(ttl)
        self.scopes.add(parse_string(page.cacheScope) or "private")
        return bytes(page.nextCursor)

    def _add_tool(self, entry: Raw) -> None:
        try:
            tool = _tool.decode(entry)
        except DECODE_ERRORS as error:
            self.warnings.append(f"an entry of the list is no tool and was left out: {error}")
            return
        if not tool.name:
            self.warnings.append("a tool without a name was left out")
            return
        self.tools.append(entry)

    def result(self) -> ToolList:
        scope = "public" if self.scopes == {"public"} else "private"
        ttl = min(self.ttls) if self.ttls else None
        return ToolList(tuple(self.tools), ttl, scope, tuple(self.warnings))


async def list_tools(request: _Request, options: WireOptions, capabilities: Raw) -> ToolList:
    """Follows every `nextCursor`, but no cursor twice, and no more than `max_pages` or one frame's cap of bytes."""
    pages = _Pages()
    cursors: set[bytes] = set()
    cursor = b""
    for _ in range(options.max_pages):
        params = Raw(b'{"cursor":%b}' % cursor) if cursor else None
        try:
            result = await request("tools/list", params)
        except RemoteError as error:
            if (
                error.rpc_code == METHOD_NOT_FOUND
                and not cursors
                and "tools" not in _parse(capabilities, dict[str, Raw], {})
            ):
                return ToolList(())
            raise
        cursor = pages.add(result)
        if cursor in _END:
            return pages.result()
        # Some servers repeat a cursor for ever.
        if cursor in cursors or pages.size > options.max_frame_bytes:
            pages.warnings.append("the list of tools repeats its pages or has no end; what came so far was kept")
            break
        cursors.add(cursor)
    else:
        pages.warnings.append(f"the list of tools has more than {options.max_pages} pages; the rest was left out")
    pages.tools = list(map(Raw, dict.fromkeys(map(bytes, pages.tools))))
    return pages.result()


def _read_page(result: Raw) -> tuple[_Page, list[Raw] | None]:
    try:
        page = _page.decode(result)
        return page, _list.decode(page.tools) if page.tools is not ABSENT else None
    except RecursionError:
        cut = Raw(cut_deep(bytes(result)))
        if cut == result:
            raise
    return _read_page(cut)  # the definition that is so deep is still a tool


def announces_tool_changes(capabilities: Raw) -> bool:
    """Whether the server says that it tells when its tools change."""
    tools = _parse(capabilities, dict[str, Any], {}).get("tools")
    return bool(isinstance(tools, dict) and tools.get("listChanged"))


def _parse(raw: Raw, kind: type[_T], default: _T) -> _T:
    """A value of that kind; the default where it is none."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except DECODE_ERRORS:
        return default
