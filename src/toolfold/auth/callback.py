"""What a browser meets of a sign-in: a listener on this machine that it is sent back to, and the pages it reads.

A request is read up to its headers, bounded in size and time, and answered with one page. Nothing of it is logged: the
address carries the code. Above: `toolfold login` and `sign_ins.py`, which say what a request means.
"""

import asyncio
import html
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Self
from urllib.parse import urlsplit

from msgspec import Struct

from toolfold.errors import ConfigError

__all__ = ["CALLBACK", "DEFAULT_PORT", "LoopbackListener", "Page", "has_browser"]

CALLBACK = "/oauth/callback"
# Tried first, so that an authorization server that compares addresses to the letter knows the one of the last time.
DEFAULT_PORT = 45103

_MAX_HEAD = 16 * 1024
_READ_S = 10.0
_MAX_BROWSERS = 32

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>toolfold</title>
<style>body{{font:1.1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:15vh auto;padding:0 1rem}}
button{{font:inherit;padding:.5rem 1.2rem}}</style><h1>{title}</h1>{body}</html>"""
_HEADERS = (
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    # The address carries the code. Without any referrer a browser would hide from us, too, that a form is our own.
    ("Referrer-Policy", "same-origin"),
    ("X-Content-Type-Options", "nosniff"),
)


class Page(Struct, frozen=True):
    """One answer to a browser."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = _HEADERS

    @staticmethod
    def of(title: str, *paragraphs: str, status: int = 200, form: str = "", cookie: str = "") -> "Page":
        """A page of plain text; `form` is HTML of ours that stands after it."""
        texts = "".join(f"<p>{html.escape(text)}</p>" for text in paragraphs)
        body = _PAGE.format(title=html.escape(title), body=texts + form)
        return Page(status, body.encode(), (*_HEADERS, ("Set-Cookie", cookie)) if cookie else _HEADERS)

    @staticmethod
    def redirect(url: str) -> "Page":
        return Page(303, b"", (("Location", url), ("Cache-Control", "no-store"), ("Referrer-Policy", "no-referrer")))


# A method, the path with its query, and the headers by their names in lower case.
Answer = Callable[[str, str, Mapping[str, str]], Awaitable[Page]]


class LoopbackListener:
    """HTTP on a port of this machine, for one browser. Use it as `async with`; `port` 0 is the usual one, or any."""

    def __init__(self, answer: Answer, port: int = 0) -> None:
        self._answer = answer
        self._port = port
        self._over = False
        self._connections: set[asyncio.Task[None]] = set()
        # Those that have not said yet what they want, the oldest first.
        self._idle: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def __aenter__(self) -> Self:
        bound = _bind(self._port)
        self._port = bound.getsockname()[1]
        self._server = await asyncio.start_server(self._connected, sock=bound, limit=_MAX_HEAD)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Who asked for a page gets one, be it that this is over."""
        self._server.close()
        self._over = True
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of ours: of one that it made itself, asyncio would print that it was cancelled.
        if self._over or not self._make_room():
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        self._idle[task] = writer
        task.add_done_callback(lambda done: self._forget(done, writer))

    def _forget(self, task: "asyncio.Task[None]", writer: asyncio.StreamWriter) -> None:
        self._idle.pop(task, None)
        self._connections.discard(task)
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_READ_S):
                head = await reader.readuntil(b"\r\n\r\n")
            if (task := asyncio.current_task()) is not None:
                self._idle.pop(task, None)
            try:
                page = await self._page(head.decode("latin-1"))
            except asyncio.CancelledError:
                writer.write(_encode(Page.of("Given up", "This sign-in was given up. You can close this.", status=503)))
                raise
            writer.write(_encode(page))
            async with asyncio.timeout(_READ_S):
                await writer.drain()

    def _make_room(self) -> bool:
        """Whether one more can be answered. Somebody who only holds connections open does not keep a browser out."""
        if len(self._connections) >= _MAX_BROWSERS and self._idle:
            oldest = next(iter(self._idle))
            self._idle.pop(oldest).transport.abort()
            self._connections.discard(oldest)
        return len(self._connections) < _MAX_BROWSERS

    async def _page(self, head: str) -> Page:
        first, _, rest = head.partition("\r\n")
        method, _, target = first.partition(" ")
        target = target.rpartition(" ")[0]
        lines = (line.partition(":") for line in rest.split("\r\n") if line)
        headers = {name.strip().lower(): value.strip() for name, _, value in lines}
        # A page of others may lead a name of its own to this machine: it would then read what stands here.
        if urlsplit(f"//{headers.get('host', '')}").hostname not in ("127.0.0.1", "localhost"):
            return Page.of("Not here", "This address is for a browser on this machine.", status=421)
        return await self._answer(method, target, headers)


def _bind(port: int) -> socket.socket:
    for number in (port,) if port else (DEFAULT_PORT, 0):
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(("127.0.0.1", number))
        except OSError as error:
            bound.close()
            problem = error
        else:
            return bound
    raise ConfigError(
        f"127.0.0.1:{port} cannot be listened on: {problem.strerror}",
        next_action="end what uses it, or set another redirect_port for the server, or use --no-browser",
    )


def _encode(page: Page) -> bytes:
    fields = (*page.headers, ("Content-Length", str(len(page.body))), ("Connection", "close"))
    first = f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}"
    lines = (first, *(f"{name}: {value}" for name, value in fields), "", "")
    return "\r\n".join(lines).encode("latin-1") + page.body


def has_browser(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a browser that is opened here is one that the person sees."""
    if environ.get("SSH_CONNECTION") or environ.get("SSH_TTY"):
        return False
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(environ.get("BROWSER") or environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))
