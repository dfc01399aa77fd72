"""Signing in to a server as a client, from end to end, against a real provider."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from misbehaving_http import MisbehavingHttp
from msgspec import Raw
from msgspec.structs import replace
from provider import REDIRECT, ProtectedHttp, Provider, provider

from toolfold.auth.grants import client_credentials, prepare
from toolfold.auth.revocation import revoke
from toolfold.auth.session import OAuthSession
from toolfold.auth.vault import Credential, Vault
from toolfold.errors import ServerUnavailable, SignInRequired
from toolfold.types import CallContext, OAuthSpec, Outcome, ServerSpec, Tool, ToolCall, ToolDefinition
from toolfold.upstream.pool import Pool
from toolfold.wire import HttpTarget, connect

pytestmark = pytest.mark.requirement("G-12")

SECRET = "a secret: with/odd characters & more"
SERVICE = {
    "client_id": "service",
    "client_secret": SECRET,
    "grant_types": ["client_credentials"],
    "redirect_uris": [],
    "response_types": [],
    "token_endpoint_auth_method": "client_secret_basic",
    "scope": "mcp:read mcp:write",
}


@pytest.fixture(scope="module")
def issuer() -> Iterator[Provider]:
    with provider(clients=[SERVICE]) as running:
        yield running


@pytest.fixture(scope="module")
def short_lived() -> Iterator[Provider]:
    with provider(ttl=5) as running:
        yield running


@asynccontextmanager
async def protected(issuer: Provider, **switches: Any) -> AsyncIterator[tuple[ProtectedHttp, ServerSpec]]:
    async with ProtectedHttp(issuer=issuer.issuer, keys=await issuer.keys(), **switches) as server:
        yield server, ServerSpec(name="box", transport="http", url=server.url)


async def sign_in(issuer: Provider, spec: ServerSpec, vault: Vault, account: str = "alice") -> Credential:
    login = await (await prepare(spec, vault)).code_login(REDIRECT)
    credential = await login.finish(await issuer.visit(login.url, account))
    await vault.put(credential)
    return credential


async def call(pool: Pool, server: str = "box", **arguments: Any) -> Outcome:
    definition = ToolDefinition(name="echo", raw=Raw(b"{}"))
    tool = Tool(tool_id=f"{server}.echo", server=server, definition=definition, fingerprint="")
    return await pool.call(ToolCall(tool=tool, arguments=Raw(b'{"text":"hello"}')), CallContext(whole=True))


async def call_until_it_fails(pool: Pool) -> None:
    while True:
        await call(pool)


def text_of_files(folder: Path) -> list[str]:
    return [file.read_bytes().decode("latin-1") for file in folder.rglob("*") if file.is_file()]


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_person_signs_in_once_and_every_request_carries_the_token(
    issuer: Provider, vault: Vault, era: str
) -> None:
    async with protected(issuer, era=era, listen=True, session=era == "legacy") as (server, spec):
        async with Pool([spec], vault=vault) as pool:
            with pytest.raises(SignInRequired) as needed:
                await pool.listing("box")
            assert pool.state("box").status == "needs sign-in"
            assert needed.value.next_action == "Run: toolfold login box"
            credential = await sign_in(issuer, spec, vault)
            assert credential.resource == server.url
            assert credential.issuer == issuer.issuer
            assert set(credential.scope) >= {"mcp:read"}
            before = len(server.seen)
            assert (await pool.listing("box")).tools
            assert not (await call(pool)).is_error
            assert pool.state("box").status == "ready"
        sent = [request for request in server.seen[before:] if not request.path.startswith("/.well-known")]
        assert {request.headers.get("authorization") for request in sent} == {f"Bearer {credential.access_token}"}
        assert {request.verb for request in sent} == ({"POST", "GET", "DELETE"} if era == "legacy" else {"POST"})


@pytest.mark.load
async def test_a_token_that_lives_5_seconds_under_200_concurrent_calls(short_lived: Provider, vault: Vault) -> None:
    before = (await short_lived.counts()).get("refresh_token", 0)
    async with protected(short_lived, era="modern") as (server, spec):
        await sign_in(short_lived, spec, vault)

        def tokens() -> int:
            return len({claims["jti"] for claims in server.accepted})

        async def caller(pool: Pool) -> int:
            done = 0
            while tokens() < 3:
                assert not (await call(pool)).is_error
                done += 1
            return done

        async with Pool([spec], vault=vault) as pool:
            answers = await asyncio.gather(*(caller(pool) for _ in range(200)))
        assert sum(answers) > 200
        assert (await short_lived.counts())["refresh_token"] - before == tokens() - 1


async def test_two_gateways_renew_one_token_once(short_lived: Provider, vault: Vault) -> None:
    async with protected(short_lived) as (_, spec):
        credential = await sign_in(short_lived, spec, vault)
        await vault.put(replace(credential, expires_at=1.0))
        before = (await short_lived.counts()).get("refresh_token", 0)
        sessions = [OAuthSession(spec, Vault(vault.folder.parent)) for _ in range(6)]
        headers = await asyncio.gather(*(session.headers() for session in sessions for _ in range(5)))
        assert len({sent["Authorization"] for sent in headers}) == 1
        assert (await short_lived.counts())["refresh_token"] - before == 1


async def test_a_revoked_sign_in_stops_one_server_and_the_next_sign_in_opens_it(
    short_lived: Provider, vault: Vault
) -> None:
    async with protected(short_lived) as (server, spec), MisbehavingHttp() as open_server:
        other = ServerSpec(name="other", transport="http", url=open_server.url)
        await sign_in(short_lived, spec, vault)
        async with Pool([spec, other], vault=vault) as pool:
            assert not (await call(pool)).is_error
            await short_lived.revoke()
            with pytest.raises(SignInRequired) as ended:
                await call_until_it_fails(pool)
            assert "invalid_grant" in ended.value.message
            with pytest.raises(SignInRequired):
                await call(pool)
            assert pool.state("box").status == "needs sign-in"
            asked = len(server.seen)
            for _ in range(5):
                with pytest.raises(SignInRequired):
                    await call(pool)
            assert not (await call(pool, "other")).is_error
            assert len(server.seen) == asked, "a server that waits for a person is not asked again and again"
            stored = await vault.get("box")
            assert stored is not None
            assert not stored.access_token
            assert not stored.refresh_token
            await sign_in(short_lived, spec, vault)
            assert not (await call(pool)).is_error
            assert pool.state("box").status == "ready"


async def test_a_server_that_opens_to_anybody_and_lists_to_nobody_is_not_opened_in_a_loop(
    issuer: Provider, vault: Vault
) -> None:
    free = ("server/discover", "initialize", "notifications/initialized")
    async with protected(issuer, free=free) as (server, spec), Pool([spec], vault=vault) as pool:
        for _ in range(3):
            with pytest.raises(SignInRequired):
                await pool.listing("box")
        assert pool.state("box").status == "needs sign-in"
        assert len([request for request in server.seen if request.method in free]) <= 2
        await sign_in(issuer, spec, vault)
        assert (await pool.listing("box")).tools
        assert pool.state("box").status == "ready"


async def test_a_step_up_asks_for_the_old_rights_with_the_new_ones(issuer: Provider, vault: Vault) -> None:
    async with protected(issuer, needs={"tools/call": "mcp:write"}) as (server, spec):
        await sign_in(issuer, spec, vault)
        async with Pool([spec], vault=vault) as pool:
            await pool.listing("box")
            with pytest.raises(SignInRequired, match="mcp:write"):
                await call(pool)
            assert pool.state("box").status == "ready", "what it may do it goes on doing"
            credential = await sign_in(issuer, spec, vault)
            assert set(credential.asked) >= {"mcp:read", "mcp:write"}
            assert not (await call(pool)).is_error
            await sign_in(issuer, spec, vault)
            assert not (await call(pool)).is_error, "a plain login keeps the rights that were won"
            server.needs["tools/call"] = "mcp:never"
            with pytest.raises(SignInRequired):
                await call(pool)
            await sign_in(issuer, spec, vault)
            with pytest.raises(ServerUnavailable, match="refused access") as refused:
                await call(pool)
            assert not isinstance(refused.value, SignInRequired), "what was asked for in vain is not asked for again"


async def test_a_server_that_refuses_every_token_is_not_asked_for_ever(issuer: Provider, vault: Vault) -> None:
    async with protected(issuer, refuse_all=True) as (server, spec):
        await sign_in(issuer, spec, vault)
        async with Pool([spec], vault=vault) as pool:
            with pytest.raises(SignInRequired, match="refuses tokens"):
                await pool.listing("box")
        assert len(server.refused) <= 6


async def test_a_service_signs_in_as_itself_and_steps_up_by_itself(issuer: Provider, vault: Vault) -> None:
    async with protected(issuer, needs={"tools/call": "mcp:write"}) as (server, plain):
        oauth = OAuthSpec(client_id="service", client_secret=SECRET, grant="client_credentials")
        spec = replace(plain, oauth=oauth)
        async with Pool([spec], vault=vault) as pool:
            await pool.listing("box")
            assert not (await call(pool)).is_error
        stored = await vault.get("box")
        assert stored is not None
        assert set(stored.scope) == {"mcp:read", "mcp:write"}
        assert not stored.client_secret, "the configuration's secret stays there"
        wrong = replace(oauth, client_secret="another secret")
        with pytest.raises(ServerUnavailable, match="invalid_client"):
            await client_credentials(replace(plain, oauth=wrong))
        assert {claims["client_id"] for claims in server.accepted} == {"service"}


async def test_a_device_signs_in_with_a_short_code(issuer: Provider, vault: Vault) -> None:
    async with protected(issuer) as (_, spec):
        prospect = await prepare(spec, vault)
        assert prospect.offers_device
        login = await prospect.device_login()
        waiting = asyncio.create_task(login.wait())
        await issuer.visit(login.verification_uri_complete, "bob")
        credential = await waiting
        await vault.put(credential)
        async with Pool([spec], vault=vault) as pool:
            assert not (await call(pool)).is_error


async def test_a_revoked_credential_is_of_no_use(issuer: Provider, vault: Vault) -> None:
    async with protected(issuer) as (_, spec):
        credential = await sign_in(issuer, spec, vault)
        revoked, left = await revoke(spec, credential)
        assert revoked
        assert left.startswith(
            f"{issuer.issuer} revoked the refresh token; not revoked: {issuer.issuer} says unsupported"
        )
        assert "what lives on: the access token until 2" in left
        await vault.put(replace(credential, expires_at=1.0))
        with pytest.raises(SignInRequired, match="invalid_grant"):
            await OAuthSession(spec, vault).headers()


def changed(address: str, **parameters: str | None) -> str:
    parts = urlsplit(address)
    query = {**dict(parse_qsl(parts.query)), **parameters}
    return parts._replace(query=urlencode({k: v for k, v in query.items() if v is not None})).geturl()


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"state": "another"}, "state"),
        ({"state": None}, "state"),
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"iss": None}, "which issuer"),
        ({"iss": "https://evil.example", "error": "access_denied", "code": None}, "another issuer"),
        ({"error": "access_denied", "error_description": "no\x1b[31m", "code": None}, "access_denied: no"),
        ({"code": None}, "no code"),
        ({"code": "another"}, "invalid_grant"),
    ],
)
async def test_an_answer_that_is_not_right_is_refused(
    issuer: Provider, vault: Vault, parameters: dict[str, str | None], reason: str
) -> None:
    async with protected(issuer) as (_, spec):
        login = await (await prepare(spec, vault)).code_login(REDIRECT)
        address = await issuer.visit(login.url)
        before = await issuer.counts()
        with pytest.raises(ServerUnavailable, match=reason) as refused:
            await login.finish(changed(address, **parameters))
        assert "\x1b" not in refused.value.message
        assert await issuer.counts() == before, "no token was issued"
        assert await vault.list() == ()


async def test_a_code_is_used_once(issuer: Provider, vault: Vault) -> None:
    async with protected(issuer) as (_, spec):
        prospect = await prepare(spec, vault)
        first = await prospect.code_login(REDIRECT)
        address = await issuer.visit(first.url)
        await first.finish(address)
        with pytest.raises(ServerUnavailable, match="over already"):
            await first.finish(address)
        second = await prospect.code_login(REDIRECT)
        with pytest.raises(ServerUnavailable, match="invalid_grant"):
            await second.finish(changed(address, state=second.state))


async def test_a_token_goes_to_its_own_server_only(issuer: Provider, vault: Vault) -> None:
    async with protected(issuer) as (_, spec), ProtectedHttp(issuer=issuer.issuer) as other:
        await sign_in(issuer, spec, vault)
        moved = OAuthSession(replace(spec, url=other.url), vault)
        with pytest.raises(SignInRequired):
            await connect(HttpTarget(other.url, authorization=moved))
        async with ProtectedHttp(redirect=other.url) as lure:
            lure.keys = await issuer.keys()
            session = OAuthSession(spec, vault)
            token = dict(await session.headers())["Authorization"]
            lure_target = HttpTarget(lure.url, authorization=session)
            with pytest.raises(ServerUnavailable):
                await connect(lure_target)
        assert not any(token in str(request.headers) for request in other.seen)


async def test_nothing_secret_is_left_in_files_or_logs(
    issuer: Provider, vault: Vault, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with protected(issuer) as (_, spec):
        credential = await sign_in(issuer, spec, vault)
        await vault.put(replace(credential, expires_at=1.0))
        session = OAuthSession(spec, vault)
        renewed = dict(await session.headers())["Authorization"].removeprefix("Bearer ")
        async with Pool([spec], vault=vault) as pool:
            await call(pool)
        stored = await vault.get("box")
        assert stored is not None
        secret = {renewed, *credential.secrets, *stored.secrets}
        texts = [caplog.text, repr(stored), repr(session), str(spec)]
        texts += text_of_files(tmp_path)
        assert len(texts) > 4
        assert not [text for text in texts for one in secret if one in text]
        assert all((file.stat().st_mode & 0o777) == 0o600 for file in vault.folder.iterdir())
        assert (vault.folder.stat().st_mode & 0o777) == 0o700
