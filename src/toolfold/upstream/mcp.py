"""An MCP server as an upstream, over stdio or HTTP, of either era.

It stands on one `wire` connection and adds what a catalogue needs: tolerant reading of tools, results as the bytes that
came, errors with the server's name. It never repeats a call.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, BinaryIO

import msgspec
from msgspec import Raw, Struct

from toolfold.auth.session import OAuthSession, session_for
from toolfold.config.self_reference import answers_as_toolfold
from toolfold.errors import ProtocolViolation, ServerClosed, ServerUnavailable, UpstreamError
from toolfold.text import printable, truncate
from toolfold.types import (
    RENDERS_APPS,
    CallContext,
    Listing,
    OnInput,
    OnProgress,
    Outcome,
    ServerInfo,
    ServerSpec,
    ToolCall,
)
from toolfold.upstream.base import SIGN_IN_ENDED, Hooks, PassthroughRequest
from toolfold.upstream.definitions import read_definitions
from toolfold.upstream.leaves import call_result, list_leaves, request_of, watched_lists
from toolfold.upstream.redaction import mask, mask_progress, redact_error, secrets_of
from toolfold.upstream.result_reader import ResultReader
from toolfold.upstream.tasks import ServerTasks
from toolfold.wire import Connection, Handlers, HttpTarget, StdioTarget, connect
from toolfold.wire.connection import requires_input
from toolfold.wire.jsonrpc import ABSENT, DECODE_ERRORS
from toolfold.wire.types import LISTS_CHANGED, LOG_MESSAGE, NO_TIMEOUT, TASK_STATUS

# Lines that a server wrote beside the protocol: the last ones explain why it died.
_MAX_LOG_LINES = 12
_MAX_LOG_LINE = 500
# What is read of a log message: more than is kept, so that no secret is cut in two before it is masked.
_MAX_LOG_READ = 8_000


class McpUpstream:
    """One MCP server, as `spec` says how to reach it."""

    def __init__(self, spec: ServerSpec, hooks: Hooks | None = None) -> None:
        self.spec = spec
        self._hooks = hooks if hooks is not None else Hooks()
        self._secrets = secrets_of(spec)
        self._session: OAuthSession | None = None
        self._connection: Connection | None = None
        self._tasks: ServerTasks  # of the connection that is open
        self._log: deque[str] = deque(maxlen=_MAX_LOG_LINES)

    @property
    def pid(self) -> int | None:
        return self._connection.pid if self._connection is not None else None

    @property
    def log(self) -> tuple[str, ...]:
        """The last lines the server wrote beside the protocol, without secrets."""
        return tuple(self._log)

    async def open(self) -> ServerInfo:
        spec, hooks = self.spec, self._hooks
        target: StdioTarget | HttpTarget
        if spec.transport == "stdio":
            target = StdioTarget(spec.command, spec.args, spec.env, spec.cwd, spec.inherit_env)
        else:
            self._session = session_for(spec, hooks.vault, hooks.caller)
            target = HttpTarget(spec.url, spec.headers, self._session)
        call_timeout_s = hooks.wire.request_timeout_s if spec.call_timeout_s is None else spec.call_timeout_s
        options = msgspec.structs.replace(
            hooks.wire,
            start_timeout_s=spec.start_timeout_s,
            request_timeout_s=call_timeout_s,
            lists_to=RENDERS_APPS,  # some of our clients do
        )
        handlers = Handlers(
            on_notification=self._on_notification,
            on_stderr=self._on_log,
            on_noise=self._on_log,
            on_closed=self._on_closed,
        )
        self._log.clear()
        try:
            connection = await connect(target, options=options, handlers=handlers, era=hooks.known_era)
        except UpstreamError as error:
            raise redact_error(error, spec, hints=self.log) from None
        if answers_as_toolfold(spec, connection.info):
            await connection.aclose()
            raise ServerUnavailable(
                f"{spec.name} is toolfold itself, which would serve its own tools through itself",
                server=spec.name,
                next_action="Take it out of the configuration.",
            )
        self._connection = connection
        self._tasks = ServerTasks(connection, call_timeout_s, self._secrets)
        connection.watch_tools()
        if watched := watched_lists(connection.capabilities):
            wanted = msgspec.json.encode({f"{name}ListChanged": True for name in watched})
            self.subscribe(wanted, tuple(watched.values()))
        if hooks.remember_era is not None and connection.info.era is not None:
            hooks.remember_era(spec.name, connection.info.era)
        return connection.info

    def _on_notification(self, method: str, params: Raw) -> None:
        if self._connection is not None and method == TASK_STATUS["legacy"]:
            self._tasks.on_status(params)
        if method == LOG_MESSAGE and self._hooks.on_log is not None:
            # It names no request, so whom it concerns is a guess at best: whatever becomes of it, the log has it.
            self._hooks.on_log(self.spec.name, truncate(mask(_log_line(params), self._secrets), _MAX_LOG_LINE))
        if self._hooks.on_notification is not None:
            self._hooks.on_notification(self.spec.name, method, params)
        if method in LISTS_CHANGED and self._hooks.on_changed is not None:
            self._hooks.on_changed(self.spec.name)

    def _on_log(self, line: str) -> None:
        text = truncate(mask(line, self._secrets), _MAX_LOG_LINE)
        self._log.append(text)
        if self._hooks.on_log is not None:
            self._hooks.on_log(self.spec.name, text)

    def _on_closed(self, reason: str) -> None:
        if self._hooks.on_closed is not None:
            self._hooks.on_closed(self.spec.name, mask(reason, self._secrets))

    def _failed(self, error: UpstreamError, hints: tuple[str, ...] = ()) -> UpstreamError:
        if self._session is not None and self._session.lost:
            self._on_closed(SIGN_IN_ENDED)
        return redact_error(error, self.spec, hints=hints)

    def _opened(self) -> Connection:
        if self._connection is None:
            raise ServerClosed(
                f"{self.spec.name} is not open", server=self.spec.name, next_action="Open it and call again."
            )
        return self._connection

    async def listing(self) -> Listing:
        connection = self._opened()
        try:
            listing = await connection.list_tools()
        except UpstreamError as error:
            raise self._failed(error, hints=self.log) from None
        tools, warnings = read_definitions(listing.tools)
        # The rest of the time is for the tools: whoever starts this server waits for both.
        leaves, odd = await list_leaves(connection.request, connection.capabilities, self.spec.start_timeout_s / 2)
        warnings = (*warnings, *(mask(text, self._secrets) for text in odd))
        if refused := connection.unwatched:
            warnings = (*warnings, f"it does not tell when its tools change: {mask(refused, self._secrets)}")
        return Listing(
            server=self.spec.name,
            tools=(*tools, *leaves),
            info=connection.info,
            ttl_ms=listing.ttl_ms,
            warnings=(*listing.warnings, *warnings),
        )

    async def call(self, call: ToolCall, context: CallContext) -> Outcome:
        if call.tool.kind != "tool":
            return await self._call_leaf(call, context)
        connection, tasks = self._opened(), self._tasks
        spilled: list[BinaryIO] = []
        reader = ResultReader()
        try:
            result = await connection.call_tool(
                call.tool.name,
                call.arguments,
                meta=context.meta,
                # A second timer beside the caller's would cost every call, and could only fire later.
                timeout_s=None if context.timeout_s is None else NO_TIMEOUT,
                on_progress=mask_progress(context.on_progress, self._secrets),
                on_input=context.on_input,
                capabilities=tasks.declared(context.capabilities),
                on_spilled=None if context.whole else spilled.append,
                is_plain=reader.is_plain,
                inputs=context.inputs,
                task=tasks.asked(call, context),
                on_late=tasks.on_late,
            )
            if spilled:
                return Outcome(raw=result, spilled=spilled.pop())
            if (created := tasks.created(result)) is not None:
                result = await tasks.follow(created, context)
            return reader.read(result)
        except UpstreamError as error:
            raise self._failed(error) from None
        finally:
            for file in spilled:  # the call was cancelled after its answer had gone to a file
                file.close()

    async def _call_leaf(self, call: ToolCall, context: CallContext) -> Outcome:
        method, params = request_of(call, context.meta)
        try:
            result = await self._opened().request(
                method,
                params,
                timeout_s=None if context.timeout_s is None else NO_TIMEOUT,
                on_progress=mask_progress(context.on_progress, self._secrets),
                on_input=context.on_input,
                capabilities=context.capabilities,
                inputs=context.inputs,
            )
            if requires_input(result):
                return Outcome(raw=result)
            return Outcome(raw=call_result(call, method, params, result))
        except UpstreamError as error:
            if (
                call.tool.kind == "skill"
                and isinstance(error, ProtocolViolation)
                and self._hooks.on_changed is not None
            ):
                self._hooks.on_changed(self.spec.name)  # it may be another by now
            raise self._failed(error) from None

    @property
    def passthrough(self) -> "McpUpstream | None":
        return self if self._connection is not None else None

    @property
    def capabilities(self) -> Raw:
        return self._opened().capabilities

    @property
    def info(self) -> ServerInfo:
        return self._opened().info

    async def request(
        self, request: PassthroughRequest, *, on_progress: OnProgress | None = None, on_input: OnInput | None = None
    ) -> Raw:
        """Any request, passed on as it is."""
        try:
            return await self._opened().request(
                request.method,
                request.params,
                on_progress=mask_progress(on_progress, self._secrets),
                on_input=on_input,
                capabilities=request.capabilities,
                inputs=request.inputs,
            )
        except UpstreamError as error:
            raise self._failed(error) from None

    async def notify(self, method: str, params: Raw) -> None:
        await self._opened().notify(method, params)

    def subscribe(self, notifications: bytes, changed: tuple[str, ...]) -> Callable[[], None] | None:
        connection = self._opened()
        return connection.subscribe(notifications, changed).stop if connection.info.era == "modern" else None

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._tasks.aclose()
            await connection.aclose()
        if self._session is not None:
            await self._session.aclose()


class _LogMessage(Struct):
    level: Any = "info"
    logger: Any = ""
    data: Raw = ABSENT


def _log_line(params: Raw) -> str:
    """A log message of the protocol as one line: its level, who said it, and what."""
    try:
        said = msgspec.json.decode(params, type=_LogMessage)
        text = msgspec.json.decode(said.data) if bytes(said.data)[:1] == b'"' else bytes(said.data)[:_MAX_LOG_READ]
    except DECODE_ERRORS:
        return printable(bytes(params)[:_MAX_LOG_READ].decode("utf-8", "replace"), _MAX_LOG_READ)
    text = text if isinstance(text, str) else text.decode("utf-8", "replace")
    who = f"{said.logger}: " if isinstance(said.logger, str) and said.logger else ""
    level = said.level if isinstance(said.level, str) else "info"
    return printable(f"{level}: {who}{text}", _MAX_LOG_READ)
