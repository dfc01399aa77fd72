"""A real OpenID provider on loopback, a person who signs in there by plain forms, and an MCP server that wants a token.

    with provider(ttl=5) as issuer:                      # npm oidc-provider, see provider.mjs for the options
        async with ProtectedHttp(issuer.issuer) as server:
            login = await (await prepare(spec)).code_login(REDIRECT)
            await vault.put(await login.finish(await issuer.visit(login.url, "alice")))

`TOOLFOLD_TEST_NODE` names a folder whose `node_modules` has `oidc-provider`; without it these tests are skipped.
"""

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx2
import pytest
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from misbehaving_http import MisbehavingHttp, Request, send

SCRIPT = Path(__file__).with_name("provider.mjs")
REDIRECT = "http://127.0.0.1:33418/callback"
_MOST_PAGES = 20


@contextmanager
def provider(**options: Any) -> Iterator["Provider"]:
    """A provider with these options, until the block ends."""
    folder = Path(os.environ.get("TOOLFOLD_TEST_NODE", "/nowhere"))
    own = folder / "node_modules/.bin/node"
    node = str(own) if own.exists() else shutil.which("node")
    if node is None or not (folder / "node_modules/oidc-provider").is_dir():
        pytest.skip("TOOLFOLD_TEST_NODE names no folder with npm's oidc-provider")
    process = subprocess.Popen(
        [node, str(SCRIPT), json.dumps(options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TOOLFOLD_TEST_NODE": str(folder)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Provider(json.loads(process.stdout.readline())["issuer"])
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(timeout=10)


class Provider:
    """What a test asks of the provider beside OAuth."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer

    async def counts(self) -> dict[str, int]:
        """How many tokens were issued, by grant type."""
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
            return dict((await client.get(f"{self.issuer}/_counts")).json())

    async def revoke(self) -> None:
        """Ends everything that anybody signed in to."""
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
            await client.post(f"{self.issuer}/_revoke")

    async def keys(self) -> KeySet:
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
            return KeySet.import_key_set((await client.get(f"{self.issuer}/jwks")).json())

    async def visit(self, url: str, account: str = "alice") -> str:
        """Signs a person in and says yes to everything; the address outside the provider where that ends, or the last
        page's own."""
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as browser:
            page = await browser.get(url)
            for _ in range(_MOST_PAGES):
                if page.has_redirect_location:
                    url = urljoin(url, page.headers["location"])
                    if not url.startswith(self.issuer):
                        return url
                    page = await browser.get(url)
                    continue
                form = Form()
                form.feed(page.text)
                if not form.action:
                    return url
                fields = {**form.fields, **({"login": account, "password": "x"} if "login" in form.fields else {})}
                url = urljoin(url, form.action)
                page = await browser.post(url, data=fields)
        raise AssertionError("the sign-in did not end")


class Form(HTMLParser):
    """The first form of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.action = ""
        self.fields: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form" and not self.action:
            self.action = given.get("action", "")
        elif tag == "input" and given.get("name"):
            self.fields.setdefault(given["name"], given.get("value", ""))


@dataclass
class ProtectedHttp(MisbehavingHttp):
    """An MCP server that wants a token of one issuer, made for it. The switches are those of a server that lies."""

    issuer: str = ""
    scopes: tuple[str, ...] = ("mcp:read",)
    needs: dict[str, str] = field(default_factory=dict)
    """MCP method to a scope that it needs besides."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What its resource metadata says otherwise."""
    metadata_url: str = ""
    """What its challenge names in the place of its own."""
    keys: KeySet | None = None
    free: tuple[str, ...] = ()
    """Methods that need no token."""
    refuse_all: bool = False
    """No token will do."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refused: list[str] = []
        self.accepted: list[dict[str, Any]] = []

    async def _respond(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        place = "/.well-known/oauth-protected-resource/mcp"
        if request.path == place:
            told = {"resource": self.url, "authorization_servers": [self.issuer], "scopes_supported": self.scopes}
            return send(writer, 200, json.dumps({**told, **self.metadata}).encode())
        if request.path.startswith("/.well-known"):
            return send(writer, 404, b"")
        challenge = f'Bearer resource_metadata="{self.metadata_url or urljoin(self.url, place)}", scope="mcp:read"'
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        claims = {} if request.method in self.free else self._claims(token)
        if claims is None:
            self.refused.append(token)
            return send(writer, 401, b"", {"WWW-Authenticate": challenge})
        wanted = self.needs.get(request.method)
        if wanted and wanted not in claims.get("scope", "").split():
            short = f'{challenge}, error="insufficient_scope"'.replace('scope="mcp:read"', f'scope="{wanted}"')
            return send(writer, 403, b"", {"WWW-Authenticate": short})
        self.accepted.append(claims)
        return await super()._respond(request, reader, writer)

    def _claims(self, token: str) -> dict[str, Any] | None:
        if self.refuse_all or not token or self.keys is None:
            return None
        try:
            claims = dict(jwt.decode(token, self.keys, algorithms=["RS256"]).claims)
        except (JoseError, ValueError):
            return None
        meant = claims.get("iss") == self.issuer and claims.get("aud") == self.url
        return claims if meant and claims["exp"] > time.time() else None
