"""What an issuer says, and what is made of it: which answers end a sign-in, what is said at sign-out, which rights are
asked for, and what becomes of tokens that cannot be kept."""

import asyncio
import json
import time
from typing import Any

import pytest
from misbehaving_http import Request, send
from msgspec.structs import replace
from pages import credential, pages, sign_in
from provider import REDIRECT

from toolfold.auth import session as session_module
from toolfold.auth.grants import client_credentials, exchange, prepare
from toolfold.auth.session import OAuthSession
from toolfold.auth.vault import KEY_VARIABLE, Credential, Vault
from toolfold.errors import ServerTimeout, ServerUnavailable, SignInRequired
from toolfold.types import OAuthSpec
from toolfold.upstream.credentials import Credentials

pytestmark = [pytest.mark.usefixtures("no_proxy"), pytest.mark.requirement("G-12")]

LATER = time.time() + 3600


def refusal(status: int, code: str) -> tuple[int, bytes]:
    return status, json.dumps({"error": code} if code else {"x": 1}).encode()


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "temporarily_unavailable"),
        (400, "server_error"),
        (400, "invalid_scope"),
        (400, "invalid_request"),
        (400, "unsupported_grant_type"),
        (401, "invalid_client"),
        (500, "invalid_grant"),
        (400, ""),
        (401, ""),
        (403, ""),
        (404, ""),
    ],
)
async def test_what_is_no_refusal_of_the_grant_keeps_the_sign_in(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, status: int, code: str
) -> None:
    monkeypatch.setattr(session_module, "_RETRY_S", 0.0)
    async with pages() as server:
        server.honest()
        server.pages["/token"] = refusal(status, code)
        await vault.put(credential(server))
        session = OAuthSession(server.spec, vault)
        with pytest.raises(
            ServerUnavailable, match=f"cannot be renewed now: .* says {code or f'HTTP status {status}'}"
        ) as no:
            await session.headers()
        assert not isinstance(no.value, SignInRequired)
        assert no.value.next_action.startswith("It is kept. Call again in ")
        lasting = code.startswith(("invalid_req", "uns", "invalid_cl"))
        assert ("Where it stays so, sign in again: toolfold login box" in no.value.next_action) is lasting
        assert ("`scopes` in [servers.box.oauth]" in no.value.next_action) is (code == "invalid_scope")
        stored = await vault.get("box")
        assert stored is not None
        assert stored.refresh_token == "renew-0"
        server.honest()
        assert dict(await session.headers()) == {"Authorization": "Bearer token-1"}


@pytest.mark.parametrize(("code", "registered"), [("invalid_grant", False), ("invalid_client", True)])
async def test_a_refusal_of_the_grant_or_of_a_client_that_was_registered_ends_it(
    vault: Vault, code: str, registered: bool
) -> None:
    async with pages() as server:
        server.honest()
        server.pages["/token"] = refusal(400, code)
        await vault.put(credential(server, registered=registered))
        with pytest.raises(SignInRequired, match=f"the sign-in to box has ended: .* says {code}"):
            await OAuthSession(server.spec, vault).headers()
        stored = await vault.get("box")
        assert stored is not None
        assert not stored.refresh_token


async def test_a_configured_client_that_is_refused_is_what_to_look_at(vault: Vault) -> None:
    async with pages() as server:
        server.honest(token_endpoint_auth_methods_supported=["client_secret_post"])
        server.pages["/token"] = refusal(401, "invalid_client")
        oauth = OAuthSpec(client_id="me", client_secret="a wrong secret")
        spec = replace(server.spec, oauth=oauth)
        await vault.put(credential(server))
        with pytest.raises(ServerUnavailable) as kept:
            await OAuthSession(spec, vault).headers()
        service = replace(spec, oauth=replace(oauth, grant="client_credentials"))
        with pytest.raises(ServerUnavailable, match=r"did not succeed: .* says invalid_client") as refused:
            await client_credentials(service)
        for error in (kept.value, refused.value):
            assert "Check client_id and client_secret in [servers.box.oauth]" in error.next_action
            assert "toolfold login" not in error.next_action, "the same again cannot help"


@pytest.mark.parametrize(("code", "final"), [("invalid_grant", True), ("temporarily_unavailable", False), ("", False)])
async def test_an_exchange_is_refused_by_a_refusal_alone(vault: Vault, code: str, final: bool) -> None:
    async with pages() as server:
        server.honest(grant_types_supported=["urn:ietf:params:oauth:grant-type:token-exchange"])
        server.pages["/token"] = refusal(404, code)
        oauth = OAuthSpec(issuer=server.origin, client_id="me", client_secret="a secret", exchange=True)
        with pytest.raises(ServerUnavailable) as refused:
            await exchange(replace(server.spec, oauth=oauth), "a token", vault, caller="ann")
        assert isinstance(refused.value, SignInRequired) is final


async def test_a_code_on_another_device_outlasts_a_passing_trouble_and_counts_in_the_last_moment(vault: Vault) -> None:
    async with pages() as server:
        server.honest(device_authorization_endpoint=f"{server.origin}/device")
        server.pages["/device"] = {
            "device_code": "a device code",
            "user_code": "AB-CD",
            "verification_uri": f"{server.origin}/here",
            "interval": 1,
        }
        answers = [refusal(503, ""), (200, json.dumps({"access_token": "token-1", "token_type": "bearer"}).encode())]

        async def token(request: Request, writer: asyncio.StreamWriter) -> bool:
            return send(writer, *answers.pop(0))

        server.pages["/token"] = token
        made = await (await (await prepare(server.spec, vault)).device_login()).wait(1.5)
        assert made.access_token == "token-1"
        answers = [refusal(503, ""), refusal(503, "")]
        with pytest.raises(ServerTimeout, match=r"nobody knows whether somebody .* HTTP status 503"):
            await (await (await prepare(server.spec, vault)).device_login()).wait(1.5)


LIVES = "what lives on: the refresh token until its issuer ends it, the access token until 2"
SIGNED_OUT: dict[str, tuple[Any, dict[str, Any], bool, str]] = {
    "revoked": ({}, {}, True, "ORIGIN revoked the refresh token and the access token; a server that does not ask"),
    "failed": (refusal(500, ""), {}, False, f"not revoked: ORIGIN says HTTP status 500; {LIVES}"),
    "refused": (refusal(401, "invalid_client"), {}, False, f"not revoked: ORIGIN says invalid_client; {LIVES}"),
    "redirect": (
        (307, b"", {"Location": "/other"}),
        {},
        False,
        "not revoked: the answer of ORIGIN is not used: it redirects a request that holds secrets, which was not sent "
        f"on; {LIVES}",
    ),
    "no place": (None, {"revocation_endpoint": ""}, False, f"not revoked: ORIGIN has no place for that; {LIVES}"),
    "ended": (
        None,
        {"access_token": "", "refresh_token": ""},
        False,
        "it had ended already: no token of it was stored",
    ),
    "a key": (None, {"header": "X-Key", "issuer": ""}, False, "the key was deleted here alone: box takes it until"),
    "long ended": (
        refusal(500, ""),
        {"expires_at": 2.0},
        False,
        "not revoked: ORIGIN says HTTP status 500; what lives on: the refresh token until its issuer ends it",
    ),
}


@pytest.mark.parametrize("name", SIGNED_OUT)
async def test_sign_out_says_what_the_issuer_did_and_what_lives_on(vault: Vault, name: str) -> None:
    answer, fields, expected, said = SIGNED_OUT[name]
    async with pages() as server:
        server.pages["/revoke"] = answer
        place = {"revocation_endpoint": f"{server.origin}/revoke", "expires_at": LATER, **fields}
        await vault.put(credential(server, **place))
        revoked, left = await Credentials(lambda: [server.spec], vault.folder.parent).sign_out("box", "")
        assert left.startswith(said.replace("ORIGIN", server.origin))
        assert revoked is expected
        assert ("was not asked" in left or "was not told" in left) is False
        assert await vault.list() == ()


async def test_sign_out_knows_the_tokens_apart(vault: Vault) -> None:
    async def only_renewals(request: Request, writer: asyncio.StreamWriter) -> bool:
        return send(
            writer, *((200, b"") if b"hint=refresh" in request.body else refusal(400, "unsupported_token_type"))
        )

    async with pages() as server:
        server.pages["/revoke"] = only_renewals
        await vault.put(credential(server, revocation_endpoint=f"{server.origin}/revoke", expires_at=LATER))
        revoked, left = await Credentials(lambda: [server.spec], vault.folder.parent).sign_out("box", "")
        assert revoked, "nothing is renewed any more"
        start = f"{server.origin} revoked the refresh token; not revoked: {server.origin} says unsupported_token_type; "
        assert left.startswith(f"{start}what lives on: the access token until 2")


@pytest.mark.parametrize("fault", ["cut", "another key"])
async def test_sign_out_of_what_cannot_be_read_says_that_nothing_was_revoked(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    async with pages() as server:
        await vault.put(credential(server, revocation_endpoint=f"{server.origin}/revoke"))
        if fault == "cut":
            (vault.folder / "box.sealed").write_bytes(b"toolfold-vault-1")
        else:
            monkeypatch.setenv(KEY_VARIABLE, "another key than before")
        credentials = Credentials(lambda: [server.spec], vault.folder.parent)
        (told,) = await credentials.summaries()
        assert (KEY_VARIABLE in told.next_action) is (fault == "another key"), "a key does not mend a damaged file"
        revoked, left = await credentials.sign_out("box", "")
        assert not revoked
        assert left.startswith("nothing could be revoked: the stored sign-in to box cannot be read: ")
        assert "its tokens live on" in left
        assert not server.seen


async def test_who_cannot_be_read_is_named_in_what_to_type(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    async with pages() as server:
        spec = replace(server.spec, name="Box", credentials="caller")
        for caller in ("ann", "bob"):
            await vault.put(replace(credential(server, caller=caller), server="Box"))
        monkeypatch.setenv(KEY_VARIABLE, "another key than before")
        told = await Credentials(lambda: [spec], vault.folder.parent).summaries(["ann"])
        assert sorted(one.next_action.rpartition(": ")[2] for one in told) == [
            "toolfold login Box --as CALLER",
            "toolfold login Box --as ann",
        ]


async def test_tokens_that_cannot_be_kept_are_revoked(vault: Vault) -> None:
    async with pages() as server:
        server.pages["/revoke"] = {}
        (vault.folder / "box.sealed").mkdir(parents=True)
        made = credential(server, revocation_endpoint=f"{server.origin}/revoke", expires_at=LATER)
        with pytest.raises(
            ServerUnavailable, match=r"cannot be kept: .* revoked the refresh token and the acc"
        ) as full:
            await Credentials(lambda: [server.spec], vault.folder.parent).keep(made)
        assert "Remove what lies there" in full.value.next_action
        assert [request.path for request in server.seen] == ["/revoke"] * 2


async def test_rights_that_a_tool_wants_are_shown_and_kept_over_a_renewal_and_a_login(vault: Vault) -> None:
    async with pages() as server:
        server.honest()
        granted = {"access_token": "token-1", "token_type": "Bearer", "expires_in": 1, "refresh_token": "renew-1"}
        server.pages["/token"] = {**granted, "scope": "a b"}
        await vault.put(credential(server, asked=("a",), scope=("a",), expires_at=LATER))
        session, credentials = OAuthSession(server.spec, vault), Credentials(lambda: [server.spec], vault.folder.parent)
        sent = await session.headers()
        with pytest.raises(SignInRequired, match="more rights for this: b"):
            await session.challenged(403, 'Bearer error="insufficient_scope", scope="b"', sent)
        stored = await vault.get("box")
        assert isinstance(stored, Credential)
        await vault.put(replace(stored, expires_at=1.0))
        await OAuthSession(server.spec, vault).headers()
        (told,) = await credentials.summaries()
        assert (told.missing, told.command) == (("b",), "toolfold login box")
        assert "without rights that a tool wants: b" in told.describe()
        for _ in range(2):
            await sign_in(server.spec, vault)
            stored = await vault.get("box")
            assert stored is not None
            assert stored.asked == ("a", "b")
        (told,) = await credentials.summaries()
        assert not told.missing


async def test_a_token_among_the_scopes_comes_into_no_address(vault: Vault, caplog: pytest.LogCaptureFixture) -> None:
    async with pages() as server:
        server.honest()
        await vault.put(credential(server, access_token="token-of-twenty-letters", expires_at=LATER))
        session = OAuthSession(server.spec, vault)
        sent = await session.headers()
        scope = f"admin {sent['Authorization'].removeprefix('Bearer ')} x"
        with pytest.raises(SignInRequired, match=r"more rights for this: admin x$"):
            await session.challenged(403, f'Bearer error="insufficient_scope", scope="{scope}"', sent)
        login = await (await prepare(server.spec, vault)).code_login(REDIRECT)
        assert "scope=admin+x" in login.url
        assert "token-of" not in login.url
        assert "1 of the scopes hold a secret that toolfold knows: not asked for" in caplog.text


async def test_a_client_that_the_issuer_forgot_is_registered_anew_before_a_person_goes_there(vault: Vault) -> None:
    async with pages() as server:
        server.honest()

        async def token(request: Request, writer: asyncio.StreamWriter) -> bool:
            return send(writer, *verdict)

        server.pages["/token"] = token
        await vault.put(credential(server, client_id="former", registered=True, redirect_uri=REDIRECT))
        for code, client in (("invalid_grant", "former"), ("invalid_client", "me")):
            verdict = refusal(401, code)
            login = await (await prepare(server.spec, vault)).code_login(REDIRECT)
            assert f"client_id={client}&" in login.url
        assert not [request for request in server.seen if b"renew-0" in request.body], "its own token is not used up"
