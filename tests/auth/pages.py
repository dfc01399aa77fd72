"""A web server on loopback whose pages a test writes, an MCP server and its issuer in one; and certificates for it."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from misbehaving_http import Request, read_request, send
from provider import REDIRECT

from toolfold.auth.fetch import Fetcher
from toolfold.auth.grants import prepare
from toolfold.auth.vault import Credential, Vault
from toolfold.types import ServerSpec

PLACE = "/.well-known/oauth-protected-resource/mcp"
METADATA = "/.well-known/oauth-authorization-server"


class Pages:
    """A web server whose pages a test writes: JSON, or a function that answers. It is MCP server and issuer in one."""

    def __init__(self) -> None:
        self.pages: dict[str, Any] = {}
        self.seen: list[Request] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def spec(self) -> ServerSpec:
        return ServerSpec(name="box", transport="http", url=f"{self.origin}/mcp", start_timeout_s=5)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def honest(self, **metadata: Any) -> None:
        """The pages of a server that does everything right, changed in these fields."""
        self.pages[PLACE] = {"resource": f"{self.origin}/mcp", "authorization_servers": [self.origin]}
        self.pages[METADATA] = {
            "issuer": self.origin,
            "authorization_endpoint": f"{self.origin}/authorize",
            "token_endpoint": f"{self.origin}/token",
            "registration_endpoint": f"{self.origin}/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            **metadata,
        }
        self.pages["/register"] = {"client_id": "me"}
        self.pages["/token"] = {"access_token": "token-1", "token_type": "Bearer", "expires_in": 3600}

    async def open(self, secure: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=secure)
        self.port = self._server.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            while (request := await read_request(reader)) is not None:
                self.seen.append(request)
                if not await self._answer(request, writer):
                    break
                await writer.drain()
        except ConnectionError:
            return
        finally:
            writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        page = self.pages.get(request.path)
        if callable(page):
            return bool(await page(request, writer))
        if isinstance(page, tuple):
            return send(writer, *page)
        if page is None and request.path == "/mcp":
            return send(writer, 401, b"", {"WWW-Authenticate": f'Bearer resource_metadata="{self.origin}{PLACE}"'})
        return send(writer, 404 if page is None else 200, json.dumps(page).encode())


@asynccontextmanager
async def pages(secure: ssl.SSLContext | None = None) -> AsyncIterator[Pages]:
    server = Pages()
    await server.open(secure)
    try:
        yield server
    finally:
        await server.aclose()


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, Path]:
    """A server's context with a certificate for that name, and the file that has to be trusted for it."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    public, private = folder / f"{name}.pem", folder / f"{name}.key"
    public.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, private)
    return context, public


async def sign_in(spec: ServerSpec, vault: Vault, **options: Any) -> None:
    login = await (await prepare(spec, vault, fetcher=Fetcher(spec.url, seconds=1.0), **options)).code_login(REDIRECT)
    await vault.put(await login.finish({"state": login.state, "code": "a code"}))


def credential(server: Pages, **fields: Any) -> Credential:
    known = {"server": "box", "resource": f"{server.origin}/mcp", "issuer": server.origin, "client_id": "me"}
    tokens = {"access_token": "token-0", "refresh_token": "renew-0", "obtained_at": 1.0, "expires_at": 2.0}
    return Credential(**{**known, "token_endpoint": f"{server.origin}/token", **tokens, **fields})
