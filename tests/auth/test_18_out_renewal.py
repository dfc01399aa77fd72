"""Renewals against issuers that are busy, down, changed or talkative: calls fail and recover, the sign-in is kept, and
nothing that was issued stands in an error."""

import asyncio
import json
import time

import pytest
from misbehaving_http import Request, send
from msgspec.structs import replace
from pages import PLACE, credential, pages, sign_in
from provider import REDIRECT

from toolfold.auth import session as session_module
from toolfold.auth.grants import client_credentials, prepare, refresh
from toolfold.auth.session import OAuthSession
from toolfold.auth.vault import Vault
from toolfold.config import Settings
from toolfold.errors import ServerUnavailable, SignInRequired
from toolfold.gateway import Gateway
from toolfold.telemetry.logs import EventLog
from toolfold.types import OAuthSpec
from toolfold.upstream.credentials import Credentials
from toolfold.upstream.pool import Pool

pytestmark = pytest.mark.usefixtures("no_proxy")


@pytest.mark.parametrize("down", [False, True])
async def test_an_issuer_that_is_busy_or_down_costs_calls_and_not_the_sign_in(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, down: bool
) -> None:
    async with pages() as server:
        server.honest()
        server.pages["/token"] = (503, b"")
        await vault.put(credential(server, **{"token_endpoint": "http://127.0.0.1:1/token"} if down else {}))
        session = OAuthSession(server.spec, vault)
        for _ in range(3):
            with pytest.raises(ServerUnavailable, match="the sign-in to box cannot be renewed now") as refused:
                await session.headers()
            assert refused.value.next_action == "It is kept. Call again in 5 s: it is then tried again."
        assert not isinstance(refused.value, SignInRequired)
        with pytest.raises(ServerUnavailable, match="cannot be renewed now"):
            await session.challenged(401, "Bearer", {"Authorization": "Bearer token-0"})
        if down:
            return
        assert len([request for request in server.seen if request.path == "/token"]) == 1, "not asked for every call"
        stored = await vault.get("box")
        assert stored is not None
        assert stored.refresh_token == "renew-0"
        monkeypatch.setattr(session_module, "_RETRY_S", 0.0)
        with pytest.raises(ServerUnavailable):
            await (again := OAuthSession(server.spec, vault)).headers()
        server.honest()
        assert dict(await again.headers()) == {"Authorization": "Bearer token-1"}


async def test_a_renewal_that_fails_while_the_token_works_is_told_once(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session_module, "_RETRY_S", 0.0)
    async with pages() as server:
        server.honest()
        server.pages["/token"] = (503, b"")
        await vault.put(credential(server, obtained_at=1.0, expires_at=time.time() + 30))
        session = OAuthSession(server.spec, vault)
        for _ in range(3):
            assert dict(await session.headers()) == {"Authorization": "Bearer token-0"}
            await session.aclose()
        assert len([request for request in server.seen if request.path == "/token"]) == 3
        assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
            f"the sign-in to box cannot be renewed now: {server.origin} says HTTP status 503"
        ]


async def test_what_one_issuer_issued_is_of_no_use_where_the_configuration_names_another(vault: Vault) -> None:
    async with pages() as server, pages() as other:
        server.honest()
        spec = replace(server.spec, oauth=OAuthSpec(issuer=other.origin, client_id="me", client_secret="of the other"))
        for life in (1.0, time.time() + 600):
            stored = credential(server, expires_at=life, revocation_endpoint=f"{server.origin}/revoke")
            await vault.put(stored)
            session = OAuthSession(spec, vault)
            assert dict(await session.headers()) == {}
            with pytest.raises(SignInRequired, match=f"is by {server.origin}, and `issuer` is {other.origin} now"):
                await session.challenged(401, "Bearer", {})
            assert await vault.get("box") == stored, "it is of use again where the configuration is put back"
            with pytest.raises(ServerUnavailable, match=f"{server.origin} was not asked: the configuration names"):
                await refresh(spec, stored)
        credentials = Credentials(lambda: [spec], vault.folder.parent)
        revoked, left = await credentials.sign_out("box", "")
        assert not revoked
        assert f"{server.origin} was not asked: the configuration names {other.origin}" in left
        assert not server.seen
        assert not other.seen


async def test_a_server_that_waits_for_a_person_does_not_fill_the_memory_with_where_that_was_said(vault: Vault) -> None:
    async with pages() as server:
        server.honest()
        depths = []
        async with Pool([server.spec], vault=vault) as pool:
            for _ in range(5):
                with pytest.raises(SignInRequired) as waiting:
                    await pool.listing("box")
                depths.append(len(waiting.traceback))
        assert depths[-1] == depths[1]


async def test_servers_that_wait_for_a_person_are_told_of_in_one_line_each(vault: Vault) -> None:
    async with pages() as server:
        server.honest()
        specs = (server.spec, replace(server.spec, name="own", credentials="caller"))
        for _ in range(2):  # the first build, and a catalogue that is there
            told: list[str] = []
            async with Gateway(Settings(servers=specs, home=vault.folder.parent)) as gateway:
                log = EventLog(gateway.events, lambda *line, told=told: told.append(": ".join(line)), str)
                await gateway.begin()
                for name in ("box", "own", "box", "own"):
                    await gateway.reread(name)
                log.close()
            assert sorted(line for line in told if "started" not in line) == [
                "box: needs sign-in: nobody is signed in to it; next: toolfold login box",
                "own: needs sign-in: each caller signs in with an account of its own, and nobody has yet; next: run "
                "`toolfold login own --as CALLER`",
            ]


async def test_an_issuer_that_repeats_what_it_was_sent_puts_no_secret_into_an_error(vault: Vault) -> None:
    async def repeat(request: Request, writer: asyncio.StreamWriter) -> bool:
        said = f"got {request.body.decode()} {request.headers.get('authorization')}"
        return send(writer, 400, json.dumps({"error": "invalid_grant", "error_description": said}).encode())

    async with pages() as server:
        server.honest(token_endpoint_auth_methods_supported=["client_secret_post"])
        server.pages["/token"] = repeat
        await vault.put(credential(server, refresh_token="renewal-to-be-hidden"))
        with pytest.raises(SignInRequired, match="invalid_grant: got") as ended:
            await OAuthSession(server.spec, vault).headers()
        assert "to-be-hidden" not in ended.value.message
        oauth = OAuthSpec(client_id="me", client_secret="secret-to-be-hidden", grant="client_credentials")
        with pytest.raises(ServerUnavailable, match="invalid_grant: got") as refused:
            await client_credentials(replace(server.spec, oauth=oauth))
        assert "to-be-hidden" not in refused.value.message
        login = await (await prepare(server.spec, vault)).code_login(REDIRECT)
        with pytest.raises(ServerUnavailable, match="invalid_grant: got") as unsigned:
            await login.finish({"state": login.state, "code": "a code"})
        assert "code=***" in unsigned.value.message
        assert "code_verifier=***" in unsigned.value.message


async def test_a_cancelled_call_does_not_lose_a_rotated_token(vault: Vault) -> None:
    async with pages() as server:
        server.honest()
        asked, go = asyncio.Event(), asyncio.Event()

        async def token(request: Request, writer: asyncio.StreamWriter) -> bool:
            asked.set()
            await go.wait()
            body = {"access_token": "token-1", "token_type": "bearer", "refresh_token": "renew-1", "expires_in": 60}
            return send(writer, 200, json.dumps(body).encode())

        server.pages["/token"] = token
        await vault.put(credential(server))
        session = OAuthSession(server.spec, vault)
        call = asyncio.ensure_future(session.headers())
        await asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        go.set()
        await session.aclose()
        stored = await vault.get("box")
        assert stored is not None
        assert stored.refresh_token == "renew-1"


async def test_a_changed_issuer_gets_no_secret_of_the_old_one(vault: Vault) -> None:
    async with pages() as server, pages() as other:
        server.honest()
        other.honest()
        server.pages[PLACE]["authorization_servers"] = [other.origin]
        kept = credential(
            server, client_id="former-id", client_secret="former-secret", registered=True, redirect_uri=REDIRECT
        )
        await vault.put(kept)
        await sign_in(server.spec, vault)
        oauth = OAuthSpec(client_id="fixed", client_secret="fixed-secret", grant="client_credentials")
        await vault.put(credential(server, client_id="fixed"))
        with pytest.raises(ServerUnavailable, match="does not get the secret"):
            await client_credentials(replace(server.spec, oauth=oauth), vault)
        sent = b"".join(request.body + str(request.headers).encode() for request in other.seen)
        assert b"former" not in sent
        assert b"fixed" not in sent
        await client_credentials(replace(server.spec, oauth=replace(oauth, issuer=other.origin)), vault)
        with pytest.raises(ServerUnavailable, match="not at the configured issuer"):
            await client_credentials(replace(server.spec, oauth=replace(oauth, issuer="https://third.example")), vault)
