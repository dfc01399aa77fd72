"""An MCP server as an upstream, over stdio or HTTP, of either era.

It stands on one `wire` connection and adds what a catalogue needs: tools read kindly, results passed on as the bytes
that came, errors with the server's name. It never repeats a call.
"""

import re
from collections import deque
from collections.abc import Callable
from typing import BinaryIO

import msgspec
from msgspec import Raw, Struct
from msgspec.json import Decoder

from toolfold.errors import ProtocolViolation, ServerClosed, UpstreamError
from toolfold.redaction import redact
from toolfold.types import Call, Listing, Outcome, ServerInfo, ServerSpec
from toolfold.upstream.base import Hooks, OnInput, OnProgress, PassthroughRequest
from toolfold.upstream.definitions import read_definitions
from toolfold.upstream.redaction import redact_error, secrets_of
from toolfold.wire import Connection, Handlers, HttpTarget, StdioTarget, connect
from toolfold.wire.results import trailing_members
from toolfold.wire.types import TOOLS_CHANGED

_LOG_LINES = 12
"""How much of what a server wrote beside the protocol is kept, to explain why it died."""

_IS_ERROR = b'"isError"'
_TRUE = re.compile(rb"\s*:\s*true")


class _Flag(Struct):
    is_error: object = msgspec.field(name="isError", default=False)


_flag = Decoder(_Flag)


class McpUpstream:
    """One MCP server, as `spec` says how to reach it."""

    def __init__(self, spec: ServerSpec, hooks: Hooks | None = None) -> None:
        self._spec = spec
        self._hooks = hooks if hooks is not None else Hooks()
        self._secrets = secrets_of(spec)
        self._connection: Connection | None = None
        self._log: deque[str] = deque(maxlen=_LOG_LINES)

    @property
    def spec(self) -> ServerSpec:
        return self._spec

    @property
    def pid(self) -> int | None:
        return self._connection.pid if self._connection is not None else None

    @property
    def log(self) -> tuple[str, ...]:
        """The last lines the server wrote beside the protocol, without secrets."""
        return tuple(self._log)

    async def open(self) -> ServerInfo:
        spec, hooks = self._spec, self._hooks
        target = (
            StdioTarget(spec.command, spec.args, spec.env, spec.cwd)
            if spec.transport == "stdio"
            else HttpTarget(spec.url, spec.headers)
        )
        options = msgspec.structs.replace(
            hooks.wire, start_timeout_s=spec.start_timeout_s, request_timeout_s=spec.call_timeout_s
        )
        handlers = Handlers(
            on_notification=self._notified,
            on_stderr=self._logged,
            on_noise=self._logged,
            on_closed=self._closed,
        )
        self._log.clear()
        try:
            connection = await connect(target, options=options, handlers=handlers, era=hooks.known_era)
        except UpstreamError as error:
            raise redact_error(error, spec, hints=self.log) from None
        self._connection = connection
        connection.watch_tools()
        if hooks.remember_era is not None and connection.info.era is not None:
            hooks.remember_era(spec.name, connection.info.era)
        return connection.info

    def _notified(self, method: str, params: Raw) -> None:
        if self._hooks.on_notification is not None:
            self._hooks.on_notification(self._spec.name, method, params)
        if method == TOOLS_CHANGED and self._hooks.on_changed is not None:
            self._hooks.on_changed(self._spec.name)

    def _logged(self, line: str) -> None:
        text = redact(line, self._secrets)[:500]
        self._log.append(text)
        if self._hooks.on_log is not None:
            self._hooks.on_log(self._spec.name, text)

    def _closed(self, reason: str) -> None:
        if self._hooks.on_closed is not None:
            self._hooks.on_closed(self._spec.name, redact(reason, self._secrets))

    def _open_connection(self) -> Connection:
        if self._connection is None:
            raise ServerClosed(
                f"{self._spec.name} is not open", server=self._spec.name, next_action="Open it and call again."
            )
        return self._connection

    async def listing(self) -> Listing:
        connection = self._open_connection()
        try:
            listed = await connection.list_tools()
        except UpstreamError as error:
            raise redact_error(error, self._spec, hints=self.log) from None
        tools, warnings = read_definitions(listed.tools)
        if refused := connection.unwatched:
            warnings = (*warnings, f"it does not tell when its tools change: {redact(refused, self._secrets)}")
        return Listing(
            server=self._spec.name,
            tools=tools,
            info=connection.info,
            ttl_ms=listed.ttl_ms,
            warnings=(*listed.warnings, *warnings),
        )

    async def call(
        self, call: Call, *, on_progress: OnProgress | None = None, on_input: OnInput | None = None
    ) -> Outcome:
        connection = self._open_connection()
        kept: list[BinaryIO] = []
        try:
            result = await connection.call_tool(
                call.tool,
                call.arguments,
                meta=call.meta,
                timeout_s=call.timeout_s,
                on_progress=on_progress,
                on_input=on_input,
                capabilities=call.capabilities,
                on_spilled=kept.append if call.may_spill else None,
                inputs=call.inputs,
            )
            if kept:
                return Outcome(result=result, spilled=kept.pop())
            return Outcome(result=result, is_error=is_error_result(result))
        except UpstreamError as error:
            raise redact_error(error, self._spec) from None
        finally:
            for file in kept:
                file.close()

    @property
    def passes_on(self) -> bool:
        return self._connection is not None

    @property
    def capabilities(self) -> Raw:
        return self._open_connection().capabilities

    @property
    def info(self) -> ServerInfo:
        return self._open_connection().info

    async def request(
        self, question: PassthroughRequest, *, on_progress: OnProgress | None = None, on_input: OnInput | None = None
    ) -> Raw:
        """Any request, passed on as it is."""
        try:
            return await self._open_connection().request(
                question.method,
                question.params,
                timeout_s=question.timeout_s,
                on_progress=on_progress,
                on_input=on_input,
                capabilities=question.capabilities,
                inputs=question.inputs,
            )
        except UpstreamError as error:
            raise redact_error(error, self._spec) from None

    async def notify(self, method: str, params: Raw) -> None:
        await self._open_connection().notify(method, params)

    def subscribe(self, notifications: bytes, changed: tuple[str, ...]) -> Callable[[], None] | None:
        connection = self._open_connection()
        return connection.subscribe(notifications, changed).stop if connection.info.era == "modern" else None

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()


def is_error_result(result: Raw) -> bool:
    """Whether the result says `isError: true` at its top. Most results never say it, and are not read for it."""
    text = bytes(result)
    try:
        if text.startswith(b"{"):
            said = trailing_members(text).get(b"isError")
            if said is not None:
                return said == b"true"
            return _mentions_error(text) and _flag.decode(text).is_error is True
        problem = "it is no object"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        problem = str(error)
    raise ProtocolViolation(
        f"the result of the call cannot be read: {problem}", next_action="Report this to the server's authors."
    )


def _mentions_error(text: bytes) -> bool:
    """Whether the words stand anywhere. A plain search finds the name many times faster than a pattern would."""
    at = text.find(_IS_ERROR)
    while at >= 0:
        at += len(_IS_ERROR)
        if _TRUE.match(text, at):
            return True
        at = text.find(_IS_ERROR, at)
    return False
