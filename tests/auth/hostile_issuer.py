"""A small issuer on loopback that lies, stalls and floods on demand, and the tokens that it signs.

For hostile cases that no real provider would play. `Scene` is a gateway behind `[auth]`, asked in every way there is.
"""

import base64
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx2
from joserfc import jws
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from toolfold import Gateway, Settings
from toolfold.config import Auth, Policy
from toolfold.faces.http_api import make_app
from toolfold.faces.identity import Identities
from toolfold.faces.mcp_server.http import Site, in_subset, make_guard
from toolfold.faces.mcp_server.profiles import open_app
from toolfold.wire.serving import Server
from toolfold.wire.serving.http import McpHttpApp

RESOURCE = "http://127.0.0.1:8080/mcp"
Key = RSAKey | ECKey | OKPKey | OctKey
_KEYS = {kid: RSAKey.generate_key(2048, {"kid": kid}) for kid in ("one", "two")}
EC = ECKey.generate_key("P-256", {"kid": "ec"})
ED = OKPKey.generate_key("Ed25519", {"kid": "ed"})


class Issuer:
    """What it publishes can be changed at any time; `asked` counts requests by path."""

    def __init__(self) -> None:
        self.keys: dict[str, Key] = {"one": _KEYS["one"], "ec": EC, "ed": ED}
        self.pages: dict[str, bytes] = {}
        self.down = False
        self.stall: threading.Event | None = None
        self.flood = 0
        self.asked: list[str] = []
        self.tokens: dict[str, dict[str, Any]] = {}
        self.clients: list[str] = []
        self.url = ""

    def page(self, path: str) -> bytes | None:
        if path in self.pages:
            return self.pages[path]
        if path == "/.well-known/openid-configuration":
            names = {"issuer": self.url, "jwks_uri": f"{self.url}/jwks"}
            return json.dumps({**names, "introspection_endpoint": f"{self.url}/introspect"}).encode()
        if path == "/jwks":
            return json.dumps({"keys": [key.as_dict(private=False) for key in self.keys.values()]}).encode()
        return None

    def rotate(self) -> None:
        self.keys = {"two": _KEYS["two"]}

    def claims(self, **changed: Any) -> dict[str, Any]:
        """What a good token says; `None` leaves a claim out."""
        now = int(time.time())
        good = {"iss": self.url, "sub": "ann", "aud": RESOURCE, "exp": now + 300, "iat": now, "scope": "tools:use"}
        return {name: value for name, value in {**good, **changed}.items() if value is not None}

    def sign(
        self, *, kid: str = "one", alg: str = "RS256", key: Key | None = None, header: Any = None, **changed: Any
    ) -> str:
        head = {"alg": alg, "kid": kid, "typ": "at+jwt", **(header or {})}
        parts = (json.dumps(head), json.dumps(self.claims(**changed)))
        signed = ".".join(map(encoded, parts))
        signing = key or self.keys.get(kid) or _KEYS["one"]
        return f"{signed}.{encoded(jws.JWSRegistry.algorithms[alg].sign(signed.encode(), signing))}"


def encoded(text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class _Handler(BaseHTTPRequestHandler):
    issuer: Issuer

    def do_GET(self) -> None:
        self._answer(self.issuer.page(self.path))

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
        self.issuer.clients.append(self.headers.get("authorization", ""))
        self._answer(json.dumps(self.issuer.tokens.get(form["token"][0], {"active": False})).encode())

    def _answer(self, body: bytes | None) -> None:
        issuer = self.issuer
        issuer.asked.append(self.path)
        if issuer.stall is not None:
            issuer.stall.wait(30)
        status = 503 if issuer.down else 404 if body is None else 200
        self.send_response(status)
        if status == 503:  # what stands before an issuer answers for it, with a page for people
            self.send_header("Content-Type", "text/html")
        self.end_headers()
        with contextlib.suppress(OSError):  # whoever was flooded goes away
            self.wfile.write((body or b"") if status == 200 else b"")
            for _ in range(issuer.flood):
                self.wfile.write(b" " * 1_000_000)

    def log_message(self, *args: Any) -> None:
        """Tests read the output."""


@contextlib.contextmanager
def issuing() -> Iterator[Issuer]:
    issuer = Issuer()
    handler = type("Handler", (_Handler,), {"issuer": issuer})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        issuer.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield issuer
        finally:
            if issuer.stall is not None:
                issuer.stall.set()
            server.shutdown()
            thread.join()


_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}
_MODERN = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": _META}}
_LEGACY_PARAMS = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
_LEGACY = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _LEGACY_PARAMS}
_MODERN_HEADERS = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "server/discover"}
WAYS: Mapping[str, tuple[str, str, Any, dict[str, str]]] = {
    "modern": ("POST", "/mcp", _MODERN, _MODERN_HEADERS),
    "legacy": ("POST", "/mcp", _LEGACY, {}),
    "subset": ("POST", "/mcp/p/some", _MODERN, _MODERN_HEADERS),
    "v1": ("GET", "/v1/servers", None, {}),
    "metrics": ("GET", "/metrics", None, {}),
}


class Scene:
    """A gateway that is asked over all of its faces."""

    def __init__(self, client: httpx2.AsyncClient, identities: Identities, gateway: Gateway) -> None:
        self.client = client
        self.identities = identities
        self.gateway = gateway

    async def ask(self, token: str | None, way: str = "v1", path: str = "") -> httpx2.Response:
        method, where, body, headers = WAYS[way]
        if token is not None:
            headers = {**headers, "Authorization": f"Bearer {token}"}
        sent = [(name.encode(), value.encode()) for name, value in headers.items()]
        return await self.client.request(method, path or where, json=body, headers=sent)

    async def everywhere(self, token: str | None) -> list[httpx2.Response]:
        return [await self.ask(token, way) for way in WAYS]


def message_of(response: httpx2.Response) -> str:
    return str(response.json()["error"]["message"])


@contextlib.asynccontextmanager
async def scene(home: Path, issuer: Issuer, *policies: Policy, **auth: Any) -> AsyncIterator[Scene]:
    """`[auth]` with this issuer; without a word on policies every token has `default`."""
    if not policies:
        auth.setdefault("policy", "default")
    settings = Settings(home=home, auth=Auth(issuer=issuer.url, **auth), policies=policies)
    identities = Identities(settings, address=RESOURCE)
    async with Gateway(settings) as gateway, open_app(gateway, "discovery") as app:
        guard = make_guard("127.0.0.1", identities, gateway.audit_log.record_refused_key)
        mcp, some = McpHttpApp(Server(app), guard), McpHttpApp(Server(app), in_subset(guard, "some"))
        site = Site(mcp, make_app(gateway, guard), gateway.render_metrics, {"some": some}.get, identities.metadata)
        transport = httpx2.ASGITransport(site, client=("192.0.2.7", 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
            try:
                yield Scene(client, identities, gateway)
            finally:
                await mcp.aclose()
                await some.aclose()
