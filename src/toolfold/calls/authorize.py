"""Refuses calls of tools that their caller may not use, or that are no longer what their caller saw.

Whoever built the call and however the tool was found: it is looked up in its caller's own view of the catalogue, after
its server was asked what it lists, unless that was done over the connection that is open now. Not every server tells
when its tools change: a call that fails as if its tool were another one by now has the list read again.
"""

import re
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from toolfold.disclosure.describer import Describer
from toolfold.disclosure.render import Expansions
from toolfold.errors import RemoteError, ToolChanged, ToolfoldError, ToolNotFound
from toolfold.policy.view import CatalogueView
from toolfold.types import CallContext, Caller, Outcome, Tool, ToolCall
from toolfold.upstream.refresh import UpstreamManager

# How much of a failed call's answer is read.
_MAX_READ = 4_000
_NOT_THERE = {-32601, -32602}  # JSON-RPC: no such method, invalid parameters
# What servers and their libraries say of a tool that they have not, and of arguments that they do not take.
_SAYS_OTHERWISE = re.compile(
    r"unknown tool|no (?:such )?(?:tool|operation)|tool\b.{0,80}not found|validation|invalid (?:arg|input|param)"
    r"|(?:extra|missing|required|unexpected|unknown).{0,40}(?:arg|field|input|key|param|propert)"
    r"|(?:arg|field|input|param|propert).{0,60}(?:missing|not (?:allowed|permitted)|required|unexpected)",
    re.IGNORECASE,
)


class Authorizer:
    """Two checks of one pipeline: `check` stands first, `recheck` after a person may have been asked. `renew` and
    `explain` look at what failed."""

    def __init__(
        self,
        view_of: Callable[[Caller], CatalogueView],
        describer: Describer,
        servers: UpstreamManager,
        expansions: Expansions,
    ) -> None:
        self._view_of = view_of
        self._describer = describer
        self._servers = servers
        self._expansions = expansions

    def check(self, call: ToolCall, context: CallContext) -> Awaitable[ToolCall] | None:
        """Gives the call its tool as it is now, and the version that its caller expanded, to be compared with it."""
        view, tool = self._view_of(context.caller), call.tool
        if call.method and not tool.fingerprint:  # of a resource that no server lists: `calls.leaves` decided on it
            return None
        # A tool that its server did not list has no fingerprint, and only a face that knows of it makes such a call.
        if view.unrestricted and (not tool.fingerprint or self._is_current(view, tool)):
            version = self._expansions.version(context.caller, tool.tool_id)
            if version is None or version == tool.version or call.expect_version is not None:
                return None
        return self._look_up(view, call, context)

    def recheck(self, call: ToolCall, context: CallContext) -> Awaitable[ToolCall] | None:
        """Refuses a call whose tool changed since `check`."""
        view, tool = self._view_of(context.caller), call.tool
        return None if not tool.fingerprint or self._is_current(view, tool) else self._look_again(view, call, context)

    def _is_current(self, view: CatalogueView, tool: Tool) -> bool:
        cached = view.catalogue.cached_tool(tool.tool_id)
        return cached is not None and cached.fingerprint == tool.fingerprint and self._servers.is_current(tool.server)

    async def _look_up(self, view: CatalogueView, call: ToolCall, context: CallContext) -> ToolCall:
        await self._servers.follow(call.tool.server, context.timeout_s)
        tool = await self._describer.tool(view, call.tool.tool_id)
        expected = call.expect_version
        if expected is None:
            expected = self._expansions.version(context.caller, tool.tool_id)
        return replace(call, tool=tool, expect_version=expected)

    async def _look_again(self, view: CatalogueView, call: ToolCall, context: CallContext) -> ToolCall:
        await self._servers.follow(call.tool.server, context.timeout_s)
        tool = await self._describer.tool(view, call.tool.tool_id)
        if tool.fingerprint != call.tool.fingerprint:
            raise ToolChanged(
                f"{tool.tool_id} changed before it was called: version {call.tool.version} is now {tool.version}",
                next_action=f"call expand_tool for {tool.tool_id} again, and use the schema it shows now",
            )
        return call

    async def renew(self, call: ToolCall, context: CallContext) -> ToolCall | None:
        """A call whose arguments do not fit, with its tool as its server lists it now; `None`: it is the same. Raises
        `ToolNotFound` where it is gone."""
        if not call.tool.fingerprint:
            return None
        await self._servers.look_again(call.tool.server)
        tool = await self._describer.tool(self._view_of(context.caller), call.tool.tool_id)
        if tool.fingerprint == call.tool.fingerprint:
            return None
        expanded = self._expansions.version(context.caller, tool.tool_id)
        return replace(call, tool=tool, expect_version=expanded if call.expect_version is None else call.expect_version)

    async def explain(
        self, call: ToolCall, context: CallContext, failure: Outcome | RemoteError
    ) -> ToolfoldError | None:
        """Why a server refused a call, where that is because its tool is another one by now."""
        if isinstance(failure, RemoteError):
            meant = failure.rpc_code in _NOT_THERE or _SAYS_OTHERWISE.search(failure.message[:_MAX_READ])
        else:
            meant = _SAYS_OTHERWISE.search(bytes(memoryview(failure.raw)[:_MAX_READ]).decode("utf-8", "replace"))
        if not meant:
            return None
        try:
            renewed = await self.renew(call, context)
        except ToolNotFound as error:
            return error
        if renewed is None:
            return None
        tool = call.tool
        return ToolChanged(
            f"{tool.tool_id} changed at its server, which refused this call: version {tool.version} is now "
            f"{renewed.tool.version}",
            next_action=f"call expand_tool for {tool.tool_id} again, and use the schema it shows now",
        )
