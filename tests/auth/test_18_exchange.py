"""A caller's own token is exchanged for one of the server (RFC 8693) at a real provider, and goes nowhere else."""

import asyncio
import json
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace
from provider import REDIRECT, Provider, provider
from served_config import Served, call
from sign_in_kit import MarkedHttp

from toolfold import Gateway, Settings
from toolfold.auth.grants import prepare
from toolfold.auth.vault import Credential
from toolfold.config import Auth
from toolfold.errors import ServerUnavailable, SignInRequired
from toolfold.faces.identity import Identities
from toolfold.types import Caller, OAuthSpec, ServerSpec

pytestmark = pytest.mark.requirement("G-14")

GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
SECRET = "gateway-secret-0123"
CLIENT: dict[str, Any] = {"client_id": "gateway", "client_secret": SECRET, "grant_types": [GRANT]}
CLIENT |= {"redirect_uris": [], "response_types": []}
PLAIN = {**CLIENT, "grant_types": ["client_credentials"]}
ADA = "key-of-ada-0123456789"


@pytest.fixture(scope="module")
def issuer() -> Iterator[Provider]:
    with provider(exchange=True, exchangeTtl=3, refuse={"carol": 1}, clients=[CLIENT]) as running:
        yield running


def table(server: MarkedHttp, issuer: Provider, more: str = "exchange = true") -> str:
    who = f'issuer = "{issuer.issuer}"\nclient_id = "gateway"\nclient_secret = "{SECRET}"'
    box = f'[servers.box]\nurl = "{server.url}"\ncredentials = "caller"\n[servers.box.oauth]\n{who}\n{more}\n'
    return f'{box}[auth]\nissuer = "{issuer.issuer}"\npolicy = "default"\nrequired_scopes = "mcp:read"\n'


def spec_of(server: MarkedHttp, issuer: Provider, name: str = "box", *, exchange: bool = True) -> ServerSpec:
    oauth = OAuthSpec(issuer=issuer.issuer, client_id="gateway", client_secret=SECRET, exchange=exchange)
    return ServerSpec(name=name, transport="http", url=server.url, credentials="caller", oauth=oauth)


async def token_of(account: str, url: str, issuer: Provider) -> str:
    """A token for the resource at an address, as a client of the gateway gets it."""
    prospect = await prepare(ServerSpec(name="gateway", transport="http", url=url))
    login = await prospect.code_login(REDIRECT)
    return (await login.finish(await issuer.visit(login.url, account))).access_token


def jti_of(token: str) -> str:
    payload = token.split(".")[1]
    return str(json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["jti"])


class Inside:
    """A gateway in this process, and callers who come in with tokens for it."""

    def __init__(self, gateway: Gateway, issuer: Provider, resource: str) -> None:
        self.gateway, self.issuer, self._resource = gateway, issuer, resource
        came_in = gateway.upstreams.arrivals.came_in
        self._guard = Identities(gateway.settings, address=resource, on_token=came_in).guard

    async def token(self, account: str) -> str:
        """Tokens for the gateway, whose metadata a server of the same issuer stands in for."""
        return await token_of(account, self._resource, self.issuer)

    async def come_in(self, token: str) -> Caller:
        found = self._guard.identify({"authorization": f"Bearer {token}"})
        return found if isinstance(found, Caller) else await found

    async def whoami(self, token: str, number: int = 0, server: str = "box") -> str:
        caller = await self.come_in(token)
        return (await self.gateway.call_tool(f"{server}.whoami", {"n": number}, caller=caller)).text

    async def asked(self) -> int:
        return (await self.issuer.counts()).get("asked", 0)


@asynccontextmanager
async def opened(issuer: Provider, home: Path, *specs: ServerSpec, known: bool = True) -> AsyncIterator[Inside]:
    """A gateway where ada has a key for each server, so that there are tools before anybody comes in; or none."""
    async with MarkedHttp(issuer=issuer.issuer, keys=await issuer.keys()) as door:
        auth = Auth(issuer=issuer.issuer, policy="default")
        settings = Settings(servers=specs, home=home, auth=auth)
        async with Gateway(settings) as gateway:
            for spec in specs if known else ():
                await gateway.upstreams.credentials.vault.put(key_for(spec))
            await gateway.build()
            yield Inside(gateway, issuer, door.url)


def key_for(spec: ServerSpec) -> Credential:
    where: dict[str, Any] = {"issuer": "", "token_endpoint": "", "client_id": "", "header": "X-Api-Key"}
    return Credential(server=spec.name, caller="ada", resource=spec.url, access_token=ADA, **where)


@asynccontextmanager
async def marked(issuer: Provider, **options: Any) -> AsyncIterator[MarkedHttp]:
    keys = {"keys": await issuer.keys(), "api_keys": {ADA: "ada"}}
    async with MarkedHttp(**{"issuer": issuer.issuer, **keys, **options}) as server:
        yield server


async def test_18_callers_over_http_get_their_own_answers(issuer: Provider, tmp_path: Path) -> None:
    served, own = Served(tmp_path), {"alice": ("pay",)}
    async with marked(issuer, own=own) as server:
        served.write(table(server, issuer))
        with served.over_http() as url:
            tokens = {name: await token_of(name, url, issuer) for name in ("alice", "bob")}
            for _ in range(2):
                for name, token in tokens.items():
                    answer = await asyncio.to_thread(call, url, "box.whoami", {}, token)  # its tools are waited for
                    assert answer["content"][0]["text"] == f"{name} 0"
            assert (await asyncio.to_thread(call, url, "box.pay", {}, tokens["alice"]))["content"]
            refused = await asyncio.to_thread(call, url, "box.pay", {}, tokens["bob"])
            assert refused["error"]["code"] == "TOOL_NOT_FOUND"
            headers = {"authorization": f"Bearer {tokens['alice']}"}
            async with httpx2.AsyncClient(trust_env=False, headers=headers) as client:
                told = (await client.get(url.replace("/mcp", "/v1/sign-ins"))).json()
            assert [one["server"] for one in told["sign_ins"]] == ["box"], told
        assert set(server.calls) == {"alice", "bob"}
        assert {claims["aud"] for claims in server.accepted} == {server.url}
        sent = json.dumps(server.refused)
    for token in tokens.values():
        assert token not in sent
        check_nothing_is_left(served, token)


def check_nothing_is_left(served: Served, token: str) -> None:
    files = [path for path in served.home.rglob("*") if path.is_file()]
    assert any(path.suffix == ".sealed" for path in files)
    assert not any(token.encode() in path.read_bytes() for path in files)
    assert not any(token in line for line in served.said)


async def test_18_a_refusal_is_told_and_another_token_is_tried(issuer: Provider, tmp_path: Path) -> None:
    async with marked(issuer) as server, opened(issuer, tmp_path, spec_of(server, issuer)) as inside:
        token, before = await inside.token("carol"), await inside.asked()
        for _ in range(2):
            with pytest.raises(SignInRequired, match=r"was not exchanged: http://\S+ says invalid_grant") as refused:
                await inside.whoami(token)
            assert "the same token is tried again after a minute" in refused.value.message
            assert token[:40] not in f"{refused.value.message} {refused.value.hints} {refused.value.next_action}"
        assert await inside.asked() == before + 1
        assert await inside.whoami(await inside.token("carol")) == "carol 0"
        assert token not in server.refused


async def test_18_what_has_ended_is_exchanged_anew_with_the_current_token(issuer: Provider, tmp_path: Path) -> None:
    async with marked(issuer) as server, opened(issuer, tmp_path, spec_of(server, issuer)) as inside:
        first, second = await inside.token("alice"), await inside.token("alice")
        assert await inside.whoami(first) == "alice 0"
        number = 0
        async with asyncio.timeout(30):
            while jti_of(second) not in await issuer.counts():
                number += 1
                assert await inside.whoami(second, number) == f"alice {number}"
        counts = await issuer.counts()
        assert (counts[jti_of(first)], counts[jti_of(second)]) == (1, 1)
        assert await inside.whoami(second, 1) == "alice 1"
        mine = next(one for one in await inside.gateway.upstreams.credentials.summaries() if "#alice" in one.caller)
        assert (mine.renews, mine.exchanged) == (False, True)
        assert ", exchanged anew when they come in" in mine.describe()
        assert not mine.ended


async def test_18_without_the_key_nothing_is_sent(issuer: Provider, tmp_path: Path) -> None:
    async with marked(issuer) as server, marked(issuer) as other:
        plain = spec_of(server, issuer, exchange=False)
        async with opened(issuer, tmp_path / "one", plain) as inside:
            token, before = await inside.token("alice"), await inside.asked()
            with pytest.raises(SignInRequired, match=r"(#alice|bob) is not signed in to it"):
                await inside.whoami(token)
            assert inside.gateway.upstreams.credentials.vault.holders() == ()
            assert await inside.asked() == before
        # Another server's key is not this one's; and who came in by a key has no token to exchange.
        async with opened(issuer, tmp_path / "two", plain, spec_of(other, issuer, "den")) as inside:
            assert await inside.whoami(await inside.token("alice"), server="den") == "alice 0"
            for name, server_name in ((f"{issuer.issuer}#alice", "box"), ("bob", "den")):
                with pytest.raises(SignInRequired, match=r"(#alice|bob) is not signed in to it"):
                    await inside.gateway.call_tool(f"{server_name}.whoami", {}, caller=Caller(name=name))
            assert await inside.asked() == before + 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"clients": [PLAIN]}, "does not offer token exchange"),
        ({"clients": [CLIENT], "exchange": True, "echo": True}, "gave the same token back"),
        ({"clients": [PLAIN], "exchange": True}, "requested grant type is not allowed for this client"),
    ],
)
@pytest.mark.parametrize("known", [True, False])
async def test_18_issuers_that_are_of_no_help(
    options: dict[str, Any], reason: str, tmp_path: Path, known: bool
) -> None:
    with provider(**options) as issuer:
        async with marked(issuer) as server, opened(issuer, tmp_path, spec_of(server, issuer), known=known) as inside:
            token = await inside.token("alice")
            with pytest.raises(SignInRequired, match=reason) as refused:
                await inside.whoami(token)
            assert refused.value.next_action == f"Run: toolfold login box --as '{issuer.issuer}#alice'"
            assert await inside.asked() == bool(options.get("echo"))
            assert token not in server.refused


async def test_18_a_server_cannot_choose_who_gets_the_token(issuer: Provider, tmp_path: Path) -> None:
    with provider(exchange=True, clients=[CLIENT]) as foreign:
        async with marked(issuer, metadata={"authorization_servers": [foreign.issuer]}) as server:
            named = spec_of(server, issuer)
            assert named.oauth is not None
            unnamed = replace(named, name="den", oauth=replace(named.oauth, issuer=""))
            async with opened(issuer, tmp_path, named, unnamed) as inside:
                token, before = await inside.token("alice"), await inside.asked()
                with pytest.raises(ServerUnavailable, match="not at the configured issuer"):
                    await inside.whoami(token)
                with pytest.raises(SignInRequired, match="names no issuer"):
                    await inside.whoami(token, server="den")
                assert (await inside.asked(), (await foreign.counts()).get("asked", 0)) == (before, 0)


async def test_18_browsers_are_led_to_the_origin_of_the_resource(issuer: Provider, tmp_path: Path) -> None:
    served = Served(tmp_path)
    async with marked(issuer) as server:
        key = "key-of-dora-0123456789-0123456789"
        box = f'[servers.box]\nurl = "{server.url}"\ncredentials = "caller"\n[callers.dora]\nkey = "{key}"\n'
        auth = f'[auth]\nissuer = "{issuer.issuer}"\nresource = "https://tools.example/team/mcp"\n'
        served.write(box, auth)
        with served.over_http() as url:
            async with httpx2.AsyncClient(trust_env=False, headers={"authorization": f"Bearer {key}"}) as client:
                answer = (await client.post(url.replace("/mcp", "/v1/sign-ins/box"))).json()
            assert answer["url"].startswith("https://tools.example/oauth/"), answer
