"""`toolfold serve`: the gateway as an MCP server, on stdio or over HTTP, until it is told to stop.

On stdio the wire is standard output, so everything that is printed by anybody goes to standard error instead. A
catalogue that is missing or old is read in the background: a client's handshake waits for no server.
"""

import argparse
import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from typing import TYPE_CHECKING

from toolfold.config import Settings
from toolfold.faces.cli.runner import load_settings, run_with_gateway
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway
from toolfold.types import Caller

if TYPE_CHECKING:
    from toolfold.wire.serving import Server

AT_A_TERMINAL = (
    "waiting for an MCP client on standard input, which clients start by themselves; to end it press Ctrl-D\n"
    "for clients that connect to an address: toolfold serve --http 127.0.0.1:8080"
)
"""Told to a person: nothing else would be seen here."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""As `malloc.h` numbers them."""
OWN_MAPPING_BYTES = 32 << 20
TRIM_BYTES = 64 << 20
"""Up to where the allocator would move these by itself, step by step, with larger and larger messages."""


def serve(arguments: argparse.Namespace, output: Output) -> int:
    settings = load_settings(arguments, require_servers=arguments.profile != "live")
    if arguments.http is None:
        if sys.stdin.isatty():
            output.note(AT_A_TERMINAL)
        read_from, write_to = _take_stdio()
        serving = _Service(arguments, settings, output)
        run_with_gateway(settings, lambda gateway: serving.on_stdio(gateway, read_from, write_to), fast=True)
    else:
        serving = _Service(arguments, settings, output)
        run_with_gateway(settings, serving.on_http, fast=True)
    return 0


def _take_stdio() -> tuple[int, int]:
    """The wire, out of reach of anybody who prints: from now on standard output is standard error."""
    sys.stdout.flush()
    read_from, write_to = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return read_from, write_to


def _tune_process() -> None:
    """For a process that stays: the collector need not look at what is loaded by now, and young objects mostly go by
    themselves; memory that messages take is not given back to the system between one message and the next."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    if sys.platform == "linux":
        import ctypes

        with suppress(AttributeError):  # only glibc has it
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(M_MMAP_THRESHOLD, OWN_MAPPING_BYTES)
            mallopt(M_TRIM_THRESHOLD, TRIM_BYTES)


class _Service:
    def __init__(self, arguments: argparse.Namespace, settings: Settings, output: Output) -> None:
        self._arguments = arguments
        self._settings = settings
        self._output = output

    async def on_stdio(self, gateway: Gateway, read_from: int, write_to: int) -> None:
        from toolfold.wire.serving.stdio import serve_stdio

        async with self._served(gateway) as (server, stop):
            caller = Caller(session=f"stdio-{os.getpid()}")
            await serve_stdio(server, caller=caller, read_from=read_from, write_to=write_to, stop=stop)

    async def on_http(self, gateway: Gateway) -> None:
        from toolfold.faces.http_api import make_app
        from toolfold.faces.identity import Identities
        from toolfold.faces.mcp_server.http import Site, listening_socket, make_guard, parse_address, run_site
        from toolfold.wire.serving.http import McpHttpApp

        host, port = parse_address(self._arguments.http)
        guard = make_guard(host, Identities(self._settings))
        with closing(listening_socket(host, port)) as bound:
            async with self._served(gateway) as (server, stop):
                mcp = McpHttpApp(server, guard)
                shown = f"[{host}]" if ":" in host else host
                self._output.note(f"serving on http://{shown}:{bound.getsockname()[1]}/mcp")
                try:
                    rest = make_app(gateway, guard)
                    await run_site(Site(mcp, rest, gateway.governor.render_metrics), bound, stop)
                finally:
                    await mcp.aclose()

    @asynccontextmanager
    async def _served(self, gateway: Gateway) -> "AsyncIterator[tuple[Server, asyncio.Event]]":
        from toolfold.faces.mcp_server.profiles import open_app
        from toolfold.wire.serving import ServeOptions, Server

        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        options = ServeOptions(max_body_bytes=self._settings.limits.max_frame_bytes)
        async with open_app(gateway, self._arguments.profile, self._arguments.server) as app:
            reading = gateway.begin()
            _tune_process()
            try:
                yield Server(app, options), stop
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
