"""Opening a connection over HTTP: streamable in either era, and last the oldest form.

Above: `connect.py`. Below: `eras.py`, `http.py`, `http_events.py`.
"""

import asyncio
import contextlib

from toolfold.errors import ServerUnavailable, UpstreamError
from toolfold.types import Era
from toolfold.wire.connection import Connection
from toolfold.wire.eras import Plan, negotiate
from toolfold.wire.http import StreamableChannel
from toolfold.wire.http_client import Http
from toolfold.wire.http_events import EventChannel
from toolfold.wire.peer import Peer
from toolfold.wire.values import Handlers, HttpTarget, WireOptions

PATIENCE = 4
"""A server that is asked over HTTP may have to start first: it gets this many probe times before the other question."""


async def open_http(target: HttpTarget, options: WireOptions, handlers: Handlers, era: Era | None) -> Connection:
    """Finds out which of the three ways the server speaks."""
    legacy = era == "legacy"
    patience = options.start_timeout_s / 2 if legacy else options.probe_timeout_s * PATIENCE
    plan = Plan(not legacy, legacy, options.probe_timeout_s, patience)
    peer = Peer(handlers, options.capabilities)
    channel = StreamableChannel(Http(target, options), options, peer)
    connection = Connection(channel, peer, options)
    try:
        await negotiate(connection, options, plan)
    except ServerUnavailable:
        await asyncio.shield(connection.abort())
        raise
    except UpstreamError as error:
        await asyncio.shield(connection.abort())
        if channel.refused is None or not 400 <= channel.refused < 500:
            raise
        return await _open_oldest(target, options, handlers, error)
    except BaseException:
        await asyncio.shield(connection.abort())
        raise
    return connection


async def _open_oldest(
    target: HttpTarget, options: WireOptions, handlers: Handlers, first_error: UpstreamError
) -> Connection:
    peer = Peer(handlers, options.capabilities)
    channel = EventChannel(Http(target, options), options, peer)
    connection = Connection(channel, peer, options)
    try:
        with contextlib.suppress(UpstreamError):
            await channel.open()
            plan = Plan(False, True, options.probe_timeout_s, options.start_timeout_s)
            await negotiate(connection, options, plan)
            return connection
    except BaseException:
        await asyncio.shield(connection.abort())
        raise
    await asyncio.shield(connection.abort())
    raise first_error
