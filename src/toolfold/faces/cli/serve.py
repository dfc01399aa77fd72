"""`toolfold serve`: the gateway as an MCP server, on stdio or over HTTP, until a signal or the client ends it.

On stdio the wire is standard output, so everything that is printed by anybody goes to standard error instead. A
catalogue that is missing or old is read in the background: a client's handshake waits for no server.
"""

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from msgspec.structs import replace

from toolfold.config import MIN_KEY_LENGTH, Settings, fill
from toolfold.containers import TaskSet
from toolfold.errors import ConfigError, ToolfoldError
from toolfold.faces.cli.runner import load_settings, run_with_gateway
from toolfold.faces.cli.terminal import Output
from toolfold.faces.cli.workers import _as_worker, _supervise, _Worker
from toolfold.faces.config_watch import ConfigWatch
from toolfold.faces.identity import Identities
from toolfold.gateway import Gateway
from toolfold.telemetry.logs import EventLog, level_of, log_as_json, log_handler
from toolfold.telemetry.server_logs import ServerLogs
from toolfold.types import Caller

if TYPE_CHECKING:
    from toolfold.faces.console import _OwnerEntry
    from toolfold.wire.serving import Server
    from toolfold.wire.serving.peers import Peers

log = logging.getLogger("toolfold.serve")

# For a person who starts it by hand and would see nothing at all.
AT_A_TERMINAL = (
    "waiting for an MCP client on standard input, which clients start by themselves; to end it press Ctrl-D\n"
    "for clients that connect to an address: toolfold serve --http 127.0.0.1:8080"
)

_LOG_FORMAT = "%%(asctime)s %%(levelname)s %s%%(message)s"

# The others offer no search.
_SEARCHING_PROFILES = ("discovery", "auto")

# Loading keeps the interpreter busy: a client's handshake comes first.
_HANDSHAKE_S = 0.5

# As `malloc.h` numbers them.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
# glibc would raise both thresholds by itself, step by step, as larger messages come, up to these values.
MMAP_BYTES = 32 << 20
TRIM_BYTES = 64 << 20


def serve(arguments: argparse.Namespace, output: Output) -> None:
    if arguments.server_json is not None:
        from toolfold.faces.mcp_server.server_card import _server_json

        output.data(_server_json(load_settings(arguments, require_servers=False), arguments.server_json))
        return
    settings = load_settings(arguments, require_servers=arguments.profile != "live")
    worker = _as_worker() if arguments.workers > 1 else None
    _set_up_logs(settings, arguments, f"worker {worker.number}: " if worker is not None else "")
    if arguments.workers > 1 and arguments.http is None:
        raise ConfigError("--workers is for --http", next_action="give an address: --http 127.0.0.1:8080")
    if arguments.workers > 1 and worker is None:
        sys.exit(_supervise(arguments.http, arguments.workers, settings, output))
    if arguments.http is not None:
        run_with_gateway(settings, lambda gateway: _serve_http(gateway, arguments, output, worker), fast=True)
        return
    if sys.stdin.isatty():
        output.note(AT_A_TERMINAL)
    from toolfold.wire.serving.stdio import take_standard_streams

    # Before a server is started: it would inherit the wire.
    streams = take_standard_streams()
    run_with_gateway(settings, lambda gateway: _serve_stdio(gateway, arguments, streams), fast=True)


def _set_up_logs(settings: Settings, arguments: argparse.Namespace, who: str) -> None:
    """What happens while it serves is told on standard error, and other parts say what they do with `-v`."""
    if arguments.log == "json":
        log_as_json(level_of(arguments.verbose))
    elif settings.telemetry.logs != "json" and not arguments.verbose:
        formatter = logging.Formatter(_LOG_FORMAT % who, datefmt="%H:%M:%S")
        logging.basicConfig(level=logging.WARNING, handlers=[log_handler(formatter)])
    log.setLevel(level_of(max(arguments.verbose, 1)))
    for text in () if who else settings.file_warnings:
        log.warning("%s", text)


async def _serve_stdio(gateway: Gateway, arguments: argparse.Namespace, streams: tuple[int, int]) -> None:
    from toolfold.wire.serving.stdio import serve_stdio

    session = f"stdio-{os.getpid()}"

    def identify(client: str) -> Caller:
        return replace(Identities.of_client(gateway.settings, client, session), subset=arguments.subset or "")

    async with _open_server(gateway, arguments) as (server, stop):
        await serve_stdio(server, identify=identify, read_from=streams[0], write_to=streams[1], stop=stop)


async def _serve_http(
    gateway: Gateway,
    arguments: argparse.Namespace,
    output: Output,
    worker: _Worker | None = None,
    entry: "_OwnerEntry | None" = None,
) -> None:
    from toolfold.faces.console import _console_routes
    from toolfold.faces.http_api import _Drain, make_app
    from toolfold.faces.mcp_server.http import Site, in_subset, listening_socket, make_guard, parse_address, run_site
    from toolfold.faces.mcp_server.server_card import _CardApp
    from toolfold.wire.serving.http import McpHttpApp

    host, port = parse_address(arguments.http)
    shown = f"[{host}]" if ":" in host else host
    # Before anything listens: an address that others reach needs keys or an issuer.
    make_guard(host, Identities(gateway.settings, address=f"http://{shown}:{port}/mcp"))
    with closing(listening_socket(host, port) if worker is None else worker.bound) as bound:
        address = f"http://{shown}:{bound.getsockname()[1]}/mcp"
        identities = Identities(gateway.settings, address=address, on_token=gateway.upstreams.arrivals.came_in)
        guard = make_guard(host, identities, gateway.audit_log.record_refused_key)
        guard = guard if entry is None else entry.guard
        guard = in_subset(guard, arguments.subset) if arguments.subset else guard
        async with _open_server(gateway, arguments, identities.reconfigure) as (server, stop):
            mcp = McpHttpApp(server, guard)
            subsets: dict[str, McpHttpApp] = {}

            def subset(name: str) -> McpHttpApp | None:
                if arguments.subset or all(name != known.name for known in gateway.settings.subsets):
                    return None
                if name not in subsets:
                    subsets[name] = McpHttpApp(server, in_subset(guard, name))
                return subsets[name]

            drain = _Drain(gateway, stop)
            drain.follow_signals()
            _announce(address, gateway, output, worker, entry)
            settings = gateway.settings
            public = settings.sign_in.public_url or urljoin(settings.auth.resource or address, "/")
            gateway.upstreams.credentials.sign_ins.base = public.rstrip("/")
            try:
                pages = _console_routes(gateway, guard) if entry is None else entry.routes(gateway)
                rest = make_app(gateway, guard, drain, pages)
                card = _CardApp(lambda: gateway.settings, guard, address)
                site = Site(mcp, rest, gateway.render_metrics, subset, identities.metadata, card=card)
                await run_site(drain.wrap(site), bound, stop)
            finally:
                for app in (*subsets.values(), mcp):
                    await app.aclose()


def _announce(
    address: str, gateway: Gateway, output: Output, worker: _Worker | None, entry: "_OwnerEntry | None"
) -> None:
    """Says where it is served; of several workers the one that started them does."""
    if entry is not None:
        entry.announce(urljoin(address, "/"))
    elif worker is None:
        output.note(f"serving on {address}")
    else:
        worker.watch(gateway.settings)


@asynccontextmanager
async def _open_server(
    gateway: Gateway, arguments: argparse.Namespace, check: Callable[[Settings], None] | None = None
) -> "AsyncIterator[tuple[Server, asyncio.Event]]":
    """The server of the chosen profile, and the event that a signal sets. Its configuration is followed; `check` may
    refuse a new one."""
    from toolfold.faces.mcp_server.profiles import open_app
    from toolfold.wire.serving import ServeOptions

    if arguments.subset:  # said at once where there is none of that name
        gateway.access.subset(arguments.subset)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    # The last server may leave while it serves, as it may be disabled.
    load = partial(load_settings, arguments, require_servers=False)
    watch = ConfigWatch(gateway, load, partial(_check_new, arguments.subset, check))
    if hasattr(signal, "SIGHUP"):
        loop.add_signal_handler(signal.SIGHUP, watch.reload)
    options = ServeOptions(max_body_bytes=gateway.settings.limits.max_frame_bytes)
    async with (
        _told(gateway),
        _among_others(gateway, arguments) as peers,
        open_app(gateway, arguments.profile, arguments.server) as app,
    ):
        first_build, tasks = gateway.begin(), TaskSet(log)
        tasks.keep(watch.run, name="watching the configuration")
        if arguments.http is not None or arguments.profile in _SEARCHING_PROFILES:
            tasks.start(_prepare_search(gateway, first_build), name="preparing the search")
        if gateway.settings.telemetry.audit:
            from toolfold.telemetry.audit_export import _AuditExporter

            exporter = _AuditExporter(gateway.store, gateway.audit_log, gateway.settings.telemetry.audit_endpoint)
            tasks.keep(exporter.run, name="exporting the audit log")
        _tune_process()
        try:
            yield _make_server(gateway, "pipe" if arguments.http is None else "tcp", app, options, peers), stop
        finally:
            first_build.cancel()
            await tasks.cancel()
            await asyncio.gather(first_build, return_exceptions=True)


def _check_new(subset: str | None, check: Callable[[Settings], None] | None, settings: Settings) -> None:
    """Refuses settings without what is served."""
    if subset and all(known.name != subset for known in settings.subsets):
        raise ConfigError(f"the subset {subset} that is served is not there any more")
    if check is not None:
        check(settings)


@asynccontextmanager
async def _among_others(gateway: Gateway, arguments: argparse.Namespace) -> "AsyncIterator[Peers | None]":
    """This gateway among those on the same store, where clients may reach any of them: over HTTP."""
    if arguments.http is None:
        yield None
        return
    from toolfold.wire.serving.peers import Peers
    from toolfold.wire.serving.seal import Seals

    keys = [fill(key, "serve.seal_keys") for key in gateway.settings.serve.seal_keys]
    if any(len(key) < MIN_KEY_LENGTH for key in keys):
        raise ConfigError(
            "a key under serve.seal_keys is too short to be safe",
            next_action=f"give at least {MIN_KEY_LENGTH} random characters, such as `openssl rand -base64 32` prints",
        )
    gateway.peers = peers = Peers(gateway.store, Seals(gateway.store, keys))
    await peers.open()
    try:
        yield peers
    finally:
        await peers.aclose()


def _make_server(gateway: Gateway, transport: str, *given: Any) -> "Server":
    """A server with what it is given, measured where telemetry wants that."""
    from toolfold.wire.serving import Server

    if gateway.tracing is None:
        return Server(*given)
    from toolfold.telemetry.server_spans import _ObservedServer

    return _ObservedServer(gateway.tracing, transport, *given)


@asynccontextmanager
async def _told(gateway: Gateway) -> "AsyncIterator[None]":
    """Tells what happens in the log, and in the files that `toolfold logs` reads."""
    files = ServerLogs(gateway.settings.home / "logs")
    gateway.upstreams.on_log = files.write
    events = EventLog(gateway.events, partial(files.write, writer="toolfold"), gateway.redactor.text)
    try:
        yield
    finally:
        events.close()
        files.flush()


async def _prepare_search(gateway: Gateway, first_build: "asyncio.Task[None]") -> None:
    """Loads the encoder while the servers are read, then takes their tools in: the first search waits for neither."""
    try:
        await asyncio.sleep(_HANDSHAKE_S)
        await gateway.search.warm()
        await asyncio.wait([first_build])
        await gateway.search.sync()
    except ToolfoldError as error:  # the first search says it to whoever asks
        log.warning("search could not be prepared: %s", error.message)


def _tune_process() -> None:
    """Settings for a process that stays: fewer collections, and memory held from one message to the next."""
    # What is loaded by now stays for good, so the collector need not look at it; young objects mostly go by themselves.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    if sys.platform == "linux":
        import ctypes

        with suppress(AttributeError):  # musl has no mallopt
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(M_MMAP_THRESHOLD, MMAP_BYTES)
            mallopt(M_TRIM_THRESHOLD, TRIM_BYTES)
