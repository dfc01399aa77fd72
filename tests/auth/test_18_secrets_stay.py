"""Where the secrets of a server's configuration go, and what somebody else's files do to the vault."""

import asyncio
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from msgspec import Raw
from msgspec.structs import replace
from pages import PLACE, Pages, pages

from toolfold.auth import discovery, grants
from toolfold.auth.callback import LoopbackListener, Page
from toolfold.auth.discovery import check_browser_address
from toolfold.auth.session import OAuthSession
from toolfold.auth.sign_ins import SignIns
from toolfold.auth.vault import KEY_VARIABLE, Credential, Vault
from toolfold.errors import ServerUnavailable, SignInRequired
from toolfold.redaction import redact
from toolfold.types import CallContext, OAuthSpec, ServerSpec, Tool, ToolCall, ToolDefinition
from toolfold.upstream.credentials import SignedIn
from toolfold.upstream.openapi.upstream import OpenApiUpstream

REDIRECT = "http://127.0.0.1:45103/oauth/callback"
SECRET = "fixed-secret-of-the-first-issuer"


async def sign_in(spec: ServerSpec, vault: Vault, caller: str) -> None:
    login = await (await grants.prepare(spec, vault, caller=caller)).code_login(REDIRECT)
    await vault.put(await login.finish({"state": login.state, "code": "code-of-that-sign-in"}))


def with_secret(server: Pages, **more: Any) -> ServerSpec:
    return replace(server.spec, oauth=OAuthSpec(client_id="fixed", client_secret=SECRET, **more))


@pytest.mark.parametrize("then", ["another caller", "signed out", "damaged", "from before"])
async def test_18_a_secret_stays_with_its_first_issuer(vault: Vault, then: str) -> None:
    async with pages() as server, pages() as other:
        server.honest(token_endpoint_auth_methods_supported=["client_secret_post"])
        other.honest(token_endpoint_auth_methods_supported=["client_secret_post"])
        spec = with_secret(server)
        await sign_in(spec, vault, "alice")
        assert any(SECRET.encode() in request.body for request in server.seen)
        server.pages[PLACE]["authorization_servers"] = [other.origin]
        file = next(vault.folder.glob("*.sealed"))
        if then == "signed out":
            await vault.delete("box", "alice")
        elif then == "damaged":
            file.write_bytes(b"damaged")
        elif then == "from before":
            for record in vault.folder.glob("*.issuer"):
                record.unlink()
        for caller in ("bob", "alice"):
            with pytest.raises(ServerUnavailable, match="does not get the secret"):
                await sign_in(spec, Vault(vault.folder.parent), caller)
        assert not any(SECRET.encode() in request.body for request in other.seen)
        await sign_in(with_secret(server, issuer=other.origin), vault, "bob")
        assert any(SECRET.encode() in request.body for request in other.seen), "the configuration may say so"


async def test_18_callers_share_one_registered_client(vault: Vault) -> None:
    async with pages() as server:
        server.honest()
        for caller in ("alice", "bob", "carol"):
            await sign_in(server.spec, vault, caller)
        assert [request.path for request in server.seen].count("/register") == 1
        bob = await vault.get("box", "bob")
        assert bob is not None
        await vault.put(replace(bob, registered=False, access_token="", refresh_token=""))
        await sign_in(server.spec, vault, "bob")
        assert [request.path for request in server.seen].count("/register") == 2, "the old one may be unknown there"


def stored() -> Credential:
    return Credential(
        server="box",
        resource="https://box.example/mcp",
        issuer="https://login.example",
        token_endpoint="https://login.example/token",
        client_id="me",
        access_token="token",
    )


@pytest.mark.parametrize("dangling", [False, True])
async def test_18_the_vault_writes_through_no_link(vault: Vault, tmp_path: Path, dangling: bool) -> None:
    target = tmp_path / "elsewhere"
    if not dangling:
        target.write_text("mine")
    vault.folder.mkdir(parents=True)
    for name in ("box.sealed", "vault.key") if dangling else ("box.sealed",):
        (vault.folder / name).symlink_to(target)
    await vault.put(stored())
    assert (target.read_text() if target.exists() else "") == ("" if dangling else "mine")
    assert not (vault.folder / "box.sealed").is_symlink()
    assert await vault.get("box") == stored()
    assert not list(vault.folder.glob(".*")), "nothing is left behind"


@pytest.mark.parametrize("name", ["box.sealed", "vault.key"])
async def test_18_a_pipe_in_the_vault_holds_nobody_up(vault: Vault, name: str) -> None:
    await vault.put(stored())
    (vault.folder / name).unlink(missing_ok=True)
    os.mkfifo(vault.folder / name)
    command = "import asyncio,sys;from pathlib import Path;from toolfold.auth.vault import Vault"
    read = f"{command};asyncio.run(Vault(Path(sys.argv[1])).get('box'))"
    env = {key: value for key, value in os.environ.items() if name == "box.sealed" or key != KEY_VARIABLE}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", read, str(vault.folder.parent), stderr=subprocess.PIPE, env=env
    )
    try:
        async with asyncio.timeout(30):
            said = (await process.communicate())[1]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert b"no regular file" in said


async def test_18_a_state_folder_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        await Vault(tmp_path / "home").put(stored())
    finally:
        os.umask(before)
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "home" / "sign-ins").iterdir()} == {0o600}


async def test_18_a_short_key_of_the_vault_is_refused(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "short")
    with pytest.raises(ServerUnavailable, match="fewer than 16 characters"):
        await vault.put(stored())
    monkeypatch.setenv(KEY_VARIABLE, "long enough to be a key")
    await vault.put(stored())
    monkeypatch.setenv(KEY_VARIABLE, "long enough, and another")
    with pytest.raises(SignInRequired):
        await Vault(vault.folder.parent).get("box")


@pytest.mark.parametrize("caller", ["", "https://login.example#x; touch /tmp/owned", "it's $(id)"])
async def test_18_commands_that_are_printed_are_safe_to_paste(vault: Vault, caller: str) -> None:
    wanted = ["toolfold", "login", "box", *(["--as", caller] if caller else [])]
    ended = SignedIn(server="box", caller=caller, ended=True)
    assert shlex.split(ended.command) == wanted
    async with pages() as server:
        server.honest()
        server.pages["/token"] = (400, b'{"error":"invalid_grant"}')
        credential = replace(
            stored(),
            caller=caller,
            resource=f"{server.origin}/mcp",
            issuer=server.origin,
            token_endpoint=f"{server.origin}/token",
            refresh_token="renew",
            expires_at=1.0,
        )
        await vault.put(credential)
        with pytest.raises(SignInRequired) as refused:
            await OAuthSession(server.spec, vault, caller).headers()
        assert shlex.split(refused.value.next_action.partition(": ")[2]) == wanted


async def test_18_idle_connections_keep_no_browser_out() -> None:
    async def answer(method: str, target: str, headers: Mapping[str, str]) -> Page:
        return Page.of("Here")

    async with LoopbackListener(answer) as listener:
        port = int(listener.address.rpartition(":")[2])
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
        async with asyncio.timeout(5), httpx2.AsyncClient(trust_env=False) as client:
            assert (await client.get(listener.address)).status_code == 200
        for _, writer in held:
            writer.close()


@pytest.mark.parametrize("address", ["https://known.example@other.example/x", "https://login.example/a b"])
def test_18_an_address_that_leads_a_reader_astray_is_refused(address: str) -> None:
    spec = ServerSpec(name="box", transport="http", url="https://box.example/mcp")
    with pytest.raises(ServerUnavailable, match="sign-in page"):
        check_browser_address(address, spec)


OPENAPI = {
    "openapi": "3.1.0",
    "info": {"title": "Things", "version": "1"},
    "servers": [{"url": "/api"}],
    "paths": {"/thing": {"get": {"operationId": "thing", "responses": {"200": {"description": "ok"}}}}},
}


@pytest.mark.parametrize("name", ["X-Api-Key", "Host", "X-A\nX-B"])
async def test_18_a_header_is_sent_to_an_openapi_server(vault: Vault, tmp_path: Path, name: str) -> None:
    async with pages() as server:
        server.pages["/openapi.json"], server.pages["/api/thing"] = OPENAPI, {"name": "thing"}
        config = tmp_path / "toolfold.toml"
        document = f"{server.origin}/openapi.json"
        config.write_text(f'[servers.things]\nopenapi = "{document}"\n')
        home = vault.folder.parent
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "toolfold", "login", "things", "--header", name),
            *("--config", str(config), "--home", str(home)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        async with asyncio.timeout(60):
            said = (await process.communicate(b"the-key\n"))[0].decode()
        assert process.returncode == (0 if name == "X-Api-Key" else 2), said
        if process.returncode:
            assert "no header that can carry a key" in said
            return
        upstream = OpenApiUpstream(ServerSpec(name="things", transport="openapi", document=document), vault=vault)
        await upstream.open()
        definition = ToolDefinition(name="thing", raw=Raw(b"{}"))
        tool = Tool(tool_id="things.thing", server="things", definition=definition, fingerprint="")
        await upstream.call(ToolCall(tool=tool, arguments=Raw(b"{}")), CallContext(whole=True))
        await upstream.aclose()
        assert server.seen[-1].headers["x-api-key"] == "the-key"


async def test_18_a_cookie_that_another_host_planted_is_not_the_browsers(vault: Vault) -> None:
    async with pages() as server:
        server.honest()
        made = SignIns(lambda _, caller: grants.prepare(server.spec, vault, caller=caller), vault.put)
        made.base = "https://tools.example.com"
        url = urlsplit((await made.begin("box", "ada")).url).path
        shown = await made.answer("GET", url, {})
        cookie = dict(shown.headers)["Set-Cookie"]
        assert re.fullmatch(r"__Host-\w+=[\w-]+; Path=/; Secure; Max-Age=900; HttpOnly; SameSite=Lax", cookie)
        proof = re.search(rb'action="([^"]+)"', shown.body)
        assert proof is not None
        name = cookie.partition(";")[0]
        # What a sibling of the host can set has no such prefix.
        planted = await made.answer("POST", url + proof[1].decode(), {"cookie": name.removeprefix("__Host-")})
        assert planted.status == 403
        assert (await made.answer("POST", url + proof[1].decode(), {"cookie": name})).status == 303
        await made.aclose()


async def test_18_sign_ins_that_cannot_begin_leave_nothing(vault: Vault) -> None:
    async with pages() as server:
        server.pages[PLACE] = {"resource": f"{server.origin}/mcp", "authorization_servers": [server.origin]}
        made = SignIns(lambda _, caller: grants.prepare(server.spec, vault, caller=caller), vault.put)
        for number in range(5):
            with pytest.raises(ServerUnavailable):
                await made.begin("box", f"caller-{number}")
        assert not made._by_owner
        await made.aclose()


def test_18_many_scopes_are_cut_before_each_is_searched_for_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []

    def count(text: str, secrets: tuple[str, ...]) -> str:
        searched.append(text)
        return redact(text, secrets)

    monkeypatch.setattr(discovery, "redact", count)
    assert len(discovery.valid_scopes([f"scope-{number}" for number in range(10_000)] * 2)) == 200
    assert len(searched) <= 200


@pytest.mark.parametrize(
    "answer", [{"client_id": ""}, {"client_id": "x" * 5000}, {"client_id": "me", "token_endpoint_auth_method": "tls"}]
)
async def test_18_a_registration_of_no_use_is_refused(vault: Vault, answer: dict[str, str]) -> None:
    async with pages() as server:
        server.honest()
        server.pages["/register"] = answer
        with pytest.raises(ServerUnavailable, match="it names no client that toolfold could sign in as"):
            await sign_in(server.spec, vault, "")
