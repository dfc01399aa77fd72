"""Which era a server speaks, found out so that it costs a legacy server nothing noticeable.

On a pipe the modern probe and the legacy handshake are sent together: a legacy server refuses or ignores the one and
answers the other, so nothing waits. Over HTTP the handshake follows when the probe was refused, or when it stays
unanswered for a while. Above: `connect.py`. Below: `connection.py`.
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
from toolfold.wire.transport import RequestHead
from toolfold.wire.types import LEGACY_VERSIONS, MODERN_VERSION, NO_TIMEOUT, WireOptions


class NegotiationPlan(Struct, frozen=True):
    """How to ask."""

    discover_first: bool
    initialize_first: bool
    probe_s: float
    """How long the probe is waited for once the handshake succeeded."""
    patience_s: float
    """How long only the first question is waited for before the other is asked as well."""


async def negotiate(connection: Connection, options: WireOptions, plan: NegotiationPlan) -> None:
    """Opens the connection in the era the server speaks."""
    talk = _Handshake(connection, options)
    try:
        await _decide(talk, plan)
    finally:
        await talk.stop()
    connection.opened()


class _Handshake:
    """The two questions, each asked at most once."""

    def __init__(self, connection: Connection, options: WireOptions) -> None:
        self._connection = connection
        self._options = options
        self.discover: asyncio.Task[Raw] | None = None
        self.initialize: asyncio.Task[Raw] | None = None
        self.not_modern = False
        self._again = False

    def ask_discover(self) -> None:
        if self.discover is None:
            self.discover = self._ask("server/discover", self._connection.modern_params(b"{}"))

    def ask_discover_again(self) -> bool:
        """Once more, for a server that refuses our version and names it as one that it speaks."""
        if self._again:
            return False
        self._again = True
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
        connection = self._connection
        asking = connection.exchange(
            connection.next_number(), method, params, RequestHead(method), timeout_s=NO_TIMEOUT, quiet=True
        )
        return asyncio.ensure_future(asking)

    async def wait(self, seconds: float | None) -> bool:
        """Until one of the open questions is answered; false, if none was within the time."""
        still = {task for task in (self.discover, self.initialize) if task is not None and not task.done()}
        if not still:
            return True
        done, _ = await asyncio.wait(still, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)

    async def stop(self) -> None:
        for task in (self.discover, self.initialize):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, UpstreamError):
                    await task

    def take_modern(self, result: Raw) -> bool:
        """Settles for modern, if that is what the answer says."""
        found = _parse(result)
        versions = found.get("supportedVersions")
        if not isinstance(versions, list) or MODERN_VERSION not in versions:
            return False
        self._connection.settle(_info(found, MODERN_VERSION, "modern"), _capabilities(result), "modern")
        return True

    async def take_legacy(self, result: Raw) -> None:
        found = _parse(result)
        version = found.get("protocolVersion")
        if version not in LEGACY_VERSIONS:
            raise ServerUnavailable(
                f"the server speaks MCP version {str(version)[:40]!r}, which is not known here",
                hints=(MODERN_VERSION, *LEGACY_VERSIONS),
                next_action="update the server, or toolfold",
            )
        self._connection.settle(_info(found, str(version), "legacy"), _capabilities(result), "legacy")
        await self._connection.notify("notifications/initialized")


async def _decide(talk: _Handshake, plan: NegotiationPlan) -> None:
    if plan.discover_first:
        talk.ask_discover()
    if plan.initialize_first:
        talk.ask_initialize()
    patience: float | None = None if plan.discover_first and plan.initialize_first else plan.patience_s
    while True:
        unanswered = not await talk.wait(patience)
        if _modern_settled(talk):
            return
        if await _legacy_settled(talk, plan.probe_s):
            return
        if unanswered:
            talk.ask_discover()
            talk.ask_initialize()
            patience = None


def _modern_settled(talk: _Handshake) -> bool:
    """Whether the probe settled it. Says so once when it settled that the server is not modern."""
    if talk.discover is None or not talk.discover.done() or talk.not_modern:
        return False
    error = talk.discover.exception()
    if error is None and talk.take_modern(talk.discover.result()):
        return True
    if error is not None:
        if _supports_our_version(error) and talk.ask_discover_again():
            return False
        _raise_if_hopeless(error)
    talk.not_modern = True
    talk.ask_initialize()
    return False


async def _legacy_settled(talk: _Handshake, probe_s: float) -> bool:
    task = talk.initialize
    if task is None or not task.done():
        return False
    error = task.exception()
    if talk.discover is not None and not talk.discover.done():
        # Legacy is answered, the probe is not. It may only be slower; if the handshake failed, it is all there is.
        await asyncio.wait({talk.discover}, timeout=None if error else probe_s)
        if talk.discover.done():
            return _modern_settled(talk) or await _legacy_settled(talk, probe_s)
    if error is not None:
        if talk.discover is None and isinstance(error, RemoteError):
            talk.ask_discover()
            return False
        raise error
    await talk.take_legacy(task.result())
    return True


def _supported(error: BaseException) -> list[Any]:
    """The versions that a server names when it refuses ours."""
    if not isinstance(error, RemoteError) or error.rpc_code != UNSUPPORTED_VERSION or not isinstance(error.data, dict):
        return []
    found = error.data.get("supported")
    return found if isinstance(found, list) else []


def _supports_our_version(error: BaseException) -> bool:
    return MODERN_VERSION in _supported(error)


def _raise_if_hopeless(error: BaseException) -> None:
    """A modern server that shares no version with us, or one that is gone."""
    if isinstance(error, ServerClosed | ServerUnavailable) or not isinstance(error, UpstreamError):
        raise error
    supported = _supported(error)
    if supported and not any(version in LEGACY_VERSIONS for version in supported):
        raise ServerUnavailable(
            f"the server speaks only MCP versions {', '.join(map(str, supported))[:200]}",
            hints=(MODERN_VERSION, *LEGACY_VERSIONS),
            next_action="update the server, or toolfold",
        ) from error


def _parse(result: Raw) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(result)
    except DECODE_ERRORS as error:
        raise unreadable_answer("the handshake", str(error)) from error
    if not isinstance(found, dict):
        raise unreadable_answer("the handshake", "it is no object")
    return found


def _info(found: dict[str, Any], version: str, era: Era) -> ServerInfo:
    meta = found.get("_meta")
    info = found.get("serverInfo") or (meta.get(SERVER_INFO_KEY) if isinstance(meta, dict) else None)
    info = info if isinstance(info, dict) else {}

    def text(value: object) -> str:
        return value if isinstance(value, str) else ""

    return ServerInfo(
        name=text(info.get("name")),
        version=text(info.get("version")),
        title=text(info.get("title")),
        instructions=text(found.get("instructions")),
        protocol_version=version,
        era=era,
    )


class _Capabilities(Struct):
    capabilities: Raw = Raw(b"{}")


def _capabilities(result: Raw) -> Raw:
    found = msgspec.json.decode(result, type=_Capabilities).capabilities
    return found if bytes(found).lstrip().startswith(b"{") else Raw(b"{}")
