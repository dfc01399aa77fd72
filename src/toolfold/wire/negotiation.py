"""Negotiation: detects the era a server speaks, at no noticeable cost to a legacy server.

On a pipe the modern probe and the legacy handshake are sent together: a legacy server refuses or ignores the one and
answers the other, so nothing waits. Over HTTP the handshake follows when the probe was refused, or when it stays
unanswered for a while. Above: `connect.py` and `http.py`. Below: `connection.py`.
"""

import asyncio
import contextlib
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolfold.errors import RemoteError, ServerClosed, ServerUnavailable, UpstreamError
from toolfold.types import Era, ServerInfo
from toolfold.wire.connection import Connection
from toolfold.wire.dispatcher import unreadable_answer
from toolfold.wire.jsonrpc import DECODE_ERRORS, UNSUPPORTED_VERSION, encode, single_line
from toolfold.wire.meta import SERVER_INFO_KEY
from toolfold.wire.types import LEGACY_VERSIONS, MODERN_VERSION, WireOptions


class NegotiationPlan(Struct, frozen=True):
    """Which questions are asked first, and how long each is waited for."""

    discover_first: bool
    initialize_first: bool
    # How long the probe is waited for once the handshake succeeded.
    probe_s: float
    # How long only the first question is waited for before the other is asked as well.
    patience_s: float


async def negotiate(connection: Connection, options: WireOptions, plan: NegotiationPlan) -> Connection:
    """Opens the connection in the era the server speaks. Where that fails, it is ended."""
    handshake = _Handshake(connection, options)
    try:
        try:
            await _decide(handshake, plan)
        finally:
            await handshake.stop()
    except BaseException:
        await asyncio.shield(connection.abort())
        raise
    connection.opened()
    return connection


class _Handshake:
    """The two questions, each asked at most once."""

    def __init__(self, connection: Connection, options: WireOptions) -> None:
        self._connection = connection
        self._options = options
        self.discover: asyncio.Task[Raw] | None = None
        self.initialize: asyncio.Task[Raw] | None = None
        self.not_modern = False
        self._retried = False

    def ask_discover(self) -> None:
        if self.discover is None:
            self.discover = self._ask("server/discover", self._connection.modern_params(b"{}"))

    def ask_discover_again(self) -> bool:
        """Once more, for a server that refuses our version and names it as one that it speaks."""
        if self._retried:
            return False
        self._retried = True
        self.discover = None
        self.ask_discover()
        return True

    def ask_initialize(self) -> None:
        if self.initialize is None:
            options = self._options
            params = b'{"protocolVersion":"%b","capabilities":%b,"clientInfo":%b}' % (
                LEGACY_VERSIONS[0].encode(),
                single_line(options.capabilities if options.handshake is None else options.handshake),
                encode({"name": options.client_name, "version": options.client_version}),
            )
            self.initialize = self._ask("initialize", params)

    def _ask(self, method: str, params: bytes) -> asyncio.Task[Raw]:
        # Quiet: a server that has not seen `initialize` yet may take a cancellation for a fault and end.
        return asyncio.ensure_future(self._connection.wait_for(method, params, quiet=True))

    async def wait(self, seconds: float | None) -> bool:
        """Waits until one of the open questions is answered; false where none was in time."""
        waiting = {task for task in (self.discover, self.initialize) if task is not None and not task.done()}
        if not waiting:
            return True
        done, _ = await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)

    async def probe_answered(self, seconds: float | None) -> bool:
        """Waits so long for a probe that is not answered yet; whether it is then."""
        if self.discover is None or self.discover.done():
            return False
        await asyncio.wait({self.discover}, timeout=seconds)
        return self.discover.done()

    async def stop(self) -> None:
        for task in (self.discover, self.initialize):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, UpstreamError):
                    await task

    def accept_modern(self, result: Raw) -> bool:
        """Settles for modern, if that is what the answer says."""
        answer = _parse(result)
        versions = answer.get("supportedVersions")
        if not isinstance(versions, list) or MODERN_VERSION not in versions:
            return False
        self._connection.settle(_info(answer, MODERN_VERSION, "modern"), _capabilities(result))
        return True

    async def accept_legacy(self, result: Raw) -> None:
        answer = _parse(result)
        version = answer.get("protocolVersion")
        if version not in LEGACY_VERSIONS:
            raise _no_common_version(f"MCP version {str(version)[:40]!r}, which is not known here")
        self._connection.settle(_info(answer, str(version), "legacy"), _capabilities(result))
        await self._connection.notify("notifications/initialized")


async def _decide(handshake: _Handshake, plan: NegotiationPlan) -> None:
    if plan.discover_first:
        handshake.ask_discover()
    if plan.initialize_first:
        handshake.ask_initialize()
    patience = None if plan.discover_first and plan.initialize_first else plan.patience_s
    while True:
        unanswered = not await handshake.wait(patience)
        if _modern_settled(handshake) or await _legacy_settled(handshake, plan.probe_s):
            return
        if unanswered:
            handshake.ask_discover()
            handshake.ask_initialize()
            patience = None


def _modern_settled(handshake: _Handshake) -> bool:
    """Whether the probe settled the era. One that was refused makes the handshake follow."""
    if handshake.discover is None or not handshake.discover.done() or handshake.not_modern:
        return False
    error = handshake.discover.exception()
    if error is None and handshake.accept_modern(handshake.discover.result()):
        return True
    if error is not None:
        if MODERN_VERSION in _supported(error) and handshake.ask_discover_again():
            return False
        _raise_if_hopeless(error)
    # Set once: the answer stays, and would start the handshake again each time.
    handshake.not_modern = True
    handshake.ask_initialize()
    return False


async def _legacy_settled(handshake: _Handshake, probe_s: float) -> bool:
    task = handshake.initialize
    if task is None or not task.done():
        return False
    error = task.exception()
    # Legacy is answered, the probe is not. It may only be slower; if the handshake failed, it is all there is.
    if await handshake.probe_answered(None if error else probe_s):
        return _modern_settled(handshake) or await _legacy_settled(handshake, probe_s)
    if error is None:
        await handshake.accept_legacy(task.result())
        return True
    if handshake.discover is None and isinstance(error, RemoteError):
        handshake.ask_discover()
        return False
    raise error


def _supported(error: BaseException) -> list[Any]:
    """The versions that a server names when it refuses ours."""
    if not isinstance(error, RemoteError) or error.rpc_code != UNSUPPORTED_VERSION or not isinstance(error.data, dict):
        return []
    answer = error.data.get("supported")
    return answer if isinstance(answer, list) else []


def _raise_if_hopeless(error: BaseException) -> None:
    """A modern server that shares no version with us, or one that is gone."""
    if isinstance(error, ServerClosed | ServerUnavailable) or not isinstance(error, UpstreamError):
        raise error
    supported = _supported(error)
    if supported and not any(version in LEGACY_VERSIONS for version in supported):
        raise _no_common_version(f"only MCP versions {', '.join(map(str, supported))[:200]}") from error


def _no_common_version(spoken: str) -> ServerUnavailable:
    return ServerUnavailable(
        f"the server speaks {spoken}",
        hints=(MODERN_VERSION, *LEGACY_VERSIONS),
        next_action="update the server, or toolfold",
    )


def _parse(result: Raw) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(result)
    except DECODE_ERRORS as error:
        raise unreadable_answer("the handshake", str(error)) from error
    if not isinstance(answer, dict):
        raise unreadable_answer("the handshake", "it is no object")
    return answer


def _info(answer: dict[str, Any], version: str, era: Era) -> ServerInfo:
    meta = answer.get("_meta")
    info = answer.get("serverInfo") or (meta.get(SERVER_INFO_KEY) if isinstance(meta, dict) else None)
    info = info if isinstance(info, dict) else {}

    def text(value: object) -> str:
        return value if isinstance(value, str) else ""

    return ServerInfo(
        name=text(info.get("name")),
        version=text(info.get("version")),
        title=text(info.get("title")),
        instructions=text(answer.get("instructions")),
        protocol_version=version,
        era=era,
    )


class _Capabilities(Struct):
    capabilities: Raw = Raw(b"{}")


def _capabilities(result: Raw) -> Raw:
    answer = msgspec.json.decode(result, type=_Capabilities).capabilities
    return answer if bytes(answer).lstrip().startswith(b"{") else Raw(b"{}")
