"""What a stranger may read of a gateway before it comes in: its server card, and its entry for the MCP registry.

A card says who the server is, where it is reached, and whether a key is wanted; no tool, no server behind it, no caller
and no secret stands in it. It is made of the configuration alone. An address stands in it where the configuration says
that the public may know it, or where this machine alone can read it. Above: `toolfold serve`, `http.py`.
"""

import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Any
from urllib.parse import urlsplit

import msgspec

from toolfold import __version__
from toolfold.addresses import host_kind
from toolfold.config import Settings
from toolfold.errors import ConfigError
from toolfold.wire import LEGACY_VERSIONS, MODERN_VERSION
from toolfold.wire.serving.http_guard import HttpError, HttpGuard
from toolfold.wire.serving.http_stream import Receive, Scope, Send

__all__ = ["_CardApp", "_server_card", "_server_json"]

_CARD_SCHEMA = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
_REGISTRY_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
_CARD_TYPE = b"application/mcp-server-card+json"
_CACHED = b"public, max-age=3600"

_TITLE = "toolfold"
_ABOUT = "Finds and calls the tools of many MCP servers through a few operations"
_NAME = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+")
_MAX_NAME = 200
_KEY: dict[str, Any] = {
    "name": "Authorization",
    "description": "A key that whoever runs this gateway gives out",
    "value": "Bearer {key}",
    "isRequired": True,
    "isSecret": True,
    "variables": {"key": {"description": "The key", "isRequired": True, "isSecret": True}},
}


def _public_address(settings: Settings) -> str:
    """Where the configuration says that MCP is reached from outside; empty where it does not."""
    public = settings.sign_in.public_url
    return settings.auth.resource or (f"{public.rstrip('/')}/mcp" if public else "")


def _remote(settings: Settings, address: str) -> dict[str, Any]:
    """An address and what it wants. Where there is an issuer, a client that is refused learns of it by itself."""
    keyed = not settings.auth.issuer and any(caller.key for caller in settings.callers)
    return {"type": "streamable-http", "url": address, **({"headers": [_KEY]} if keyed else {})}


def _server_card(settings: Settings, address: str, *, is_open: bool) -> bytes:
    """`address` is the one that is served on; `is_open`: only this machine comes in."""
    shown = _public_address(settings) or (address if is_open else "")
    host = urlsplit(shown).hostname or ""
    labels = [] if host_kind(host) or not re.fullmatch(r"[a-zA-Z0-9.-]+", host) else host.split(".")[::-1]
    card: dict[str, Any] = {
        "$schema": _CARD_SCHEMA,
        "name": f"{'.'.join(labels)[: _MAX_NAME - 20] or 'localhost'}/{_TITLE}",
        "title": _TITLE,
        "description": _ABOUT,
        "version": __version__,
    }
    if shown:
        versions = [MODERN_VERSION, *LEGACY_VERSIONS]
        card["remotes"] = [{**_remote(settings, shown), "supportedProtocolVersions": versions}]
    return msgspec.json.encode(card)


def _server_json(settings: Settings, name: str) -> dict[str, Any]:
    """A `server.json` for the registry, of this gateway as it is deployed. Raises `ConfigError`."""
    if not _NAME.fullmatch(name) or not 3 <= len(name) <= _MAX_NAME:
        raise ConfigError(
            f"{name[:100]!r} is no name of the registry",
            next_action="give one in a namespace that you own, such as com.example/tools",
        )
    address = _public_address(settings)
    parts = urlsplit(address)
    if parts.scheme != "https" or host_kind(parts.hostname or ""):
        what = f"{address} cannot be reached from everywhere" if address else "no public address is configured"
        raise ConfigError(
            f"{what}, and the registry is for servers that can",
            next_action='set public_url = "https://tools.example.com" under [sign_in], or resource under [auth]',
        )
    about = {"title": _TITLE, "description": _ABOUT, "version": __version__}
    return {"$schema": _REGISTRY_SCHEMA, "name": name, **about, "remotes": [_remote(settings, address)]}


class _CardApp:
    """Answers `GET /mcp/server-card`. `guard` says which pages may ask while no key is wanted."""

    def __init__(self, settings: Callable[[], Settings], guard: HttpGuard, address: str) -> None:
        """`settings` gives those that hold now: they may change while it is served."""
        self._settings = settings
        self._guard = guard
        self._address = address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        guard, is_open = self._guard, not self._guard.any_host
        try:
            # Where keys are wanted it is for everybody, pages of others too. Where none is, it is for this machine.
            headers = guard.admit(scope) if is_open else _headers(scope)
        except HttpError as refusal:
            await _answer(send, refusal.status, msgspec.json.encode({"error": refusal.message}), b"application/json")
            return
        if scope["method"] not in {"GET", "HEAD"}:
            await _answer(send, 405, b"", _CARD_TYPE, (b"allow", b"GET, HEAD"))
            return
        card = _server_card(self._settings(), self._address, is_open=is_open)
        tag = f'"{blake2b(card, digest_size=12).hexdigest()}"'
        more = [(b"cache-control", _CACHED), (b"etag", tag.encode()), (b"x-content-type-options", b"nosniff")]
        if not is_open:
            more += [(b"access-control-allow-origin", b"*"), (b"access-control-allow-methods", b"GET")]
        if headers.get("if-none-match") == tag:
            await _answer(send, 304, b"", _CARD_TYPE, *more)
        else:
            await _answer(send, 200, card, _CARD_TYPE, *more)


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1").strip() for name, value in scope["headers"]}


async def _answer(send: Send, status: int, body: bytes, kind: bytes, *more: tuple[bytes, bytes]) -> None:
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
