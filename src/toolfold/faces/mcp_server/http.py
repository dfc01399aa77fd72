"""One port: MCP under `/mcp`, figures under `/metrics`, everything else to the HTTP/JSON face.

Raw ASGI, so that a request for `/mcp` passes through nothing on its way. Above: `toolfold serve`.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolfold.auth.resource import METADATA_PATH
from toolfold.errors import ConfigError
from toolfold.faces.identity import Identities
from toolfold.types import Caller
from toolfold.wire.http_client import is_loopback
from toolfold.wire.jsonrpc import parse_number
from toolfold.wire.serving.http_guard import HttpError, HttpGuard
from toolfold.wire.serving.http_stream import Receive, Scope, Send

if TYPE_CHECKING:
    from toolfold.wire.serving.http import McpHttpApp
    from toolfold.wire.serving.http_connection import ConnectionLimits

Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]
# Gives the content type and the text of what was measured and a caller may see.
RenderMetrics = Callable[[Caller], Awaitable[tuple[str, bytes]]]

ENDPOINT = "/mcp"
SUBSETS = "/mcp/p/"
METRICS = "/metrics"
CARD = "/mcp/server-card"
SHUTDOWN_GRACE_S = 3
# The event loop takes one new connection from a socket in each turn. A turn may answer hundreds of requests, so a crowd
# that arrives at once would wait for seconds; the same socket under several numbers lets in several a turn.
SOCKET_COPIES = 32


class Site:
    """The ASGI app of one port. `rest` answers whatever is not MCP; `subset` gives the app of a subset by its name,
    if there is one now; `metadata` what clients that sign in read first, where there is an issuer; `card` answers with
    the server card."""

    def __init__(
        self,
        mcp: "McpHttpApp",
        rest: Asgi | None = None,
        metrics: RenderMetrics | None = None,
        subset: "Callable[[str], McpHttpApp | None]" = lambda name: None,
        metadata: Callable[[], bytes] = bytes,
        *,
        card: Asgi | None = None,
    ) -> None:
        self._mcp = mcp
        self._pages: dict[str, Asgi] = {} if card is None else {CARD: card}
        if metrics is not None:
            self._pages[METRICS] = partial(_call_metrics, mcp, metrics)
        self._subset = subset
        self._rest = rest
        self._metadata = metadata

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in (ENDPOINT, ENDPOINT + "/"):
            await self._mcp(scope, receive, send)
        elif scope["path"].startswith(SUBSETS):
            await self._call_subset(scope, receive, send)
        elif (page := self._pages.get(scope["path"])) is not None:
            await page(scope, receive, send)
        elif f"{scope['path']}/".startswith(f"{METADATA_PATH}/") and (document := self._metadata()):
            await self._mcp.public(scope, receive, send, document)
        elif self._rest is not None:
            await self._rest(scope, receive, send)
        elif scope["type"] == "http":
            await _nothing_here(scope, receive, send)

    async def _call_subset(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (app := self._subset(scope["path"].removeprefix(SUBSETS).rstrip("/"))) is not None:
            await app(scope, receive, send)
        elif scope["type"] == "http":  # whoever may not come in learns no subset's name
            await self._mcp.admitted(scope, receive, send, self._rest or _nothing_here)


async def _call_metrics(mcp: "McpHttpApp", metrics: RenderMetrics, scope: Scope, receive: Receive, send: Send) -> None:
    await mcp.guarded(scope, receive, send, metrics)


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    body = b'{"error":{"code":"NOT_FOUND","message":"MCP is served under /mcp"}}'
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def parse_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, `:PORT` or `PORT`; without a host it is this machine's own."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    number = parse_number(port)
    if number is None or number > 65535:
        raise ConfigError(f"{text!r} is no address", next_action="give HOST:PORT, such as 127.0.0.1:8080")
    return host, number


def make_guard(
    host: str, identities: Identities, on_refused: Callable[[str, HttpError], None] | None = None
) -> HttpGuard:
    """The guard of a port; `on_refused` hears of keys that are not known. Raises `ConfigError` for an address that
    others reach while no key is asked for."""
    if identities.open and not is_loopback(host):
        raise ConfigError(
            f"{host} is reached from other machines, and no caller has a key",
            next_action="serve on 127.0.0.1, or configure keys under [callers.NAME] or an issuer under [auth]",
        )
    return identities.guard if on_refused is None else replace(identities.guard, on_refused=on_refused)


def in_subset(guard: HttpGuard, name: str) -> HttpGuard:
    """The same guard, whose callers come in by a subset of the tools."""
    return replace(guard, subset=name)


def listening_socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit it: small answers leave at once.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"{host}:{port} cannot be listened on: {error.strerror}", next_action="choose another address with --http"
        ) from error
    listening.listen(1024)
    listening.setblocking(False)
    return listening


async def run_site(
    site: Asgi, bound: socket.socket, stop: asyncio.Event, limits: "ConnectionLimits | None" = None
) -> None:
    """Serves on a socket until `stop` is set."""
    import resource

    import uvicorn

    from toolfold.wire.serving.http_connection import ConnectionLimits

    limits = limits or ConnectionLimits.for_descriptors(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    config = uvicorn.Config(
        site,
        http=limits.protocol(),
        ws="none",  # its connections would escape the limits
        loop="none",
        lifespan="off",  # the gateway is opened and closed around all of this
        log_config=None,
        log_level="error",  # below it, anybody could fill the log with requests that are none
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
        # After the 5 seconds of uvicorn a client that thinks between its calls would have to connect again.
        timeout_keep_alive=75,
    )
    server = uvicorn.Server(config)
    # Signals are the business of whoever sets `stop`: uvicorn would close the port at the first.
    server.capture_signals = nullcontext  # type: ignore[assignment, method-assign]

    async def exit_on_stop() -> None:
        await stop.wait()
        server.should_exit = True

    copies = [bound.dup() for _ in range(SOCKET_COPIES - 1)]
    watcher = asyncio.ensure_future(exit_on_stop())
    try:
        await server.serve(sockets=[bound, *copies])
    finally:
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)
