"""Refuses calls of tools that their caller may not use, or that are no longer what their caller saw.

Whoever built the call and however the tool was found: it is looked up in its caller's own view of the catalogue, after
its server was asked what it lists, unless that was done over the connection that is open now.
"""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from toolfold.disclosure.describer import Describer
from toolfold.disclosure.render import Expansions
from toolfold.errors import ToolChanged
from toolfold.policy.view import CatalogueView
from toolfold.types import CallContext, Caller, Tool, ToolCall
from toolfold.upstream.refresh import UpstreamManager


class Authorizer:
    """Two checks of one pipeline: `check` stands first, `recheck` after a person may have been asked."""

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
