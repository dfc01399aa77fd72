"""The official client signs in at a real provider and comes in, and `toolfold serve` follows what `[auth]` says."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from provider import REDIRECT, Provider, provider
from pydantic import AnyUrl
from served_config import Served

from toolfold.__main__ import main

pytestmark = pytest.mark.requirement("G-13")

CLAIMS = {"alice": {"groups": ["platform"]}, "bob": {"groups": ["sales"]}, "carol": {}}
POLICIES = """
[policy.platform]
claims = { groups = "platform" }
[policy.sales]
claims = { groups = "sales" }
scopes = "mcp:write"
deny = ["b.*"]
"""
GATEWAY = {"client_id": "gateway", "client_secret": "gateway-secret-0123", "redirect_uris": [], "response_types": []}
GATEWAY |= {"grant_types": ["client_credentials"]}


# One that registers itself may never ask for more than it did first: its scopes are registered with it.
APP = {"client_id": "app", "token_endpoint_auth_method": "none", "redirect_uris": [REDIRECT]}
APP |= {"grant_types": ["authorization_code", "refresh_token"], "application_type": "native"}


class _Storage:
    """What the official client keeps, in memory."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Person:
    """Somebody with the official client."""

    def __init__(self, account: str, url: str, issuer: Provider) -> None:
        self.storage = _Storage()
        self.visits = 0
        self._account, self._url, self._issuer = account, url, issuer
        self._landed = ""

    async def _browse(self, url: str) -> None:
        self.visits += 1
        self._landed = await self._issuer.visit(url, self._account)

    async def _landing(self) -> AuthorizationCodeResult:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self._landed).query).items()}
        return AuthorizationCodeResult(code=query["code"], state=query["state"], iss=query.get("iss"))

    @asynccontextmanager
    async def connected(self, era: str) -> AsyncIterator[Client]:
        metadata = OAuthClientMetadata(
            client_name="test",
            redirect_uris=[AnyUrl(REDIRECT)],
            token_endpoint_auth_method="none",
            application_type="native",
        )
        auth = OAuthClientProvider(self._url, metadata, self.storage, self._browse, self._landing)
        async with (
            httpx2.AsyncClient(auth=auth, trust_env=False, timeout=30) as http,
            Client(streamable_http_client(self._url, http_client=http), mode=era) as client,
        ):
            yield client

    @property
    def token(self) -> str:
        assert self.storage.tokens is not None
        return self.storage.tokens.access_token


def config(served: Served, issuer: str, more: str = "") -> None:
    auth = f'[auth]\nissuer = "{issuer}"\nrequired_scopes = "mcp:read"\n{more}\n'
    served.write(served.table("a", "stay"), served.table("b", "go"), auth, POLICIES)


async def names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools} - {"tool_output"}


@pytest.mark.parametrize("form", ["jwt", "opaque"])
async def test_18_the_official_client_signs_in_and_gets_what_its_groups_may_have(form: str, tmp_path: Path) -> None:
    served = Served(tmp_path)
    with provider(claims=CLAIMS, format=form, clients=[GATEWAY, APP]) as issuer:
        config(served, issuer.issuer, 'introspection_client = "gateway"\nintrospection_secret = "gateway-secret-0123"')
        with served.over_http() as url:
            served.wait_for("b: started")
            alice, bob = Person("alice", url, issuer), Person("bob", url, issuer)
            bob.storage.client = OAuthClientInformationFull.model_validate(APP)
            for era in ("legacy", "2026-07-28"):
                async with alice.connected(era) as client:
                    assert await names(client) == {"a_stay", "b_go"}
                # His policy needs one scope more. The official client signs in once per request: the next one steps up.
                if not bob.visits:
                    with pytest.raises(ExceptionGroup):
                        async with bob.connected(era):
                            raise AssertionError("he came in")
                async with bob.connected(era) as client:
                    assert await names(client) == {"a_stay"}
            assert (alice.visits, bob.visits) == (1, 2)
            assert ("." in alice.token) == (form == "jwt")
            figures = {"authorization": f"Bearer {bob.token}"}
            async with httpx2.AsyncClient(trust_env=False, headers=figures) as plain:
                assert (await plain.get(url.replace("/mcp", "/metrics"))).status_code == 200
                found = (await plain.get(url.replace("/mcp", "/v1/servers"))).json()
                assert [server["name"] for server in found["servers"]] == ["a"]
    check_nothing_is_left(served, alice.token, bob.token, "gateway-secret-0123")


def check_nothing_is_left(served: Served, *secrets: str) -> None:
    left = [path for path in served.home.rglob("*") if path.is_file() and path != served.config]
    assert left
    for secret in secrets:
        assert not any(secret.encode() in path.read_bytes() for path in left)
        assert not any(secret in line for line in served.said)


async def test_18_a_person_without_a_policy_is_refused_and_recorded(tmp_path: Path) -> None:
    served = Served(tmp_path)
    with provider(claims=CLAIMS) as issuer:
        config(served, issuer.issuer)
        with served.over_http() as url:
            carol = Person("carol", url, issuer)
            async with carol.connected("2026-07-28") as client:
                with pytest.raises(MCPError, match="no policy here is for what the token claims"):
                    await client.list_tools()
            headers = {"authorization": f"Bearer {carol.token}"}
            async with httpx2.AsyncClient(trust_env=False, headers=headers) as plain:
                answer = await plain.get(url.replace("/mcp", "/v1/servers"))
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "NOT_AUTHORIZED")


def test_18_the_configuration_is_followed_and_auth_cannot_be_taken_away(tmp_path: Path) -> None:
    served = Served(tmp_path)
    with provider(claims=CLAIMS) as issuer:
        config(served, issuer.issuer)
        with served.over_http() as url:
            place = url.replace("/mcp", "/v1/servers")
            with httpx2.Client(trust_env=False) as plain:
                assert 'scope="mcp:read"' in plain.get(place).headers["www-authenticate"]
                served.write(served.table("a", "stay"))
                served.wait_for("the new configuration is not used")
                assert plain.get(place).status_code == 401
                config(served, issuer.issuer.replace("127.0.0.1", "localhost"), 'resource = "https://tools.example/x"')
                served.wait_for("the configuration was read again")
                said = plain.get(place).headers["www-authenticate"]
                assert '"https://tools.example/.well-known/oauth-protected-resource/x"' in said


def test_18_doctor_asks_the_issuer_and_claims_can_be_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    served = Served(tmp_path)

    def run(*arguments: str) -> tuple[int, Any]:
        code = main(["--config", str(served.config), "--home", str(tmp_path / "state"), "--json", *arguments])
        return code, json.loads(capsys.readouterr().out)

    def finding() -> dict[str, str]:
        return next(item for item in run("doctor", "--connect")[1]["findings"] if item["subject"] == "sign-in")

    with provider() as issuer:
        config(served, issuer.issuer)
        assert "publishes 2 keys" in finding()["text"]
    assert finding()["verdict"] == "wrong"
    assert run("build")[0] == 0
    for group, servers in (("platform", {"a", "b"}), ("sales", {"a"})):
        found = run("servers", "--as", json.dumps({"groups": [group], "scope": "mcp:read mcp:write"}))[1]
        assert {server["name"] for server in found} == servers
    assert main(["--config", str(served.config), "tree", "--as", '{"groups": ["platform"]}']) == 2
    said = capsys.readouterr().err
    assert "the token is not granted all scopes that are needed" in said
    assert 'next: add what the token is granted to the braces: "scope": "mcp:read"' in said
    for claims in ("{}", "{", '{"groups": "other", "scope": "mcp:read"}'):
        assert main(["--config", str(served.config), "tree", "--as", claims]) == 2


@pytest.mark.parametrize("secret", ["gateway-secret-0123", "another-secret-0123"])
def test_18_an_issuer_that_refuses_the_gateways_client_is_told(
    secret: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served = Served(tmp_path)
    with provider(clients=[GATEWAY]) as issuer:
        config(served, issuer.issuer, f'introspection_client = "gateway"\nintrospection_secret = "{secret}"')
        main(["--config", str(served.config), "--home", str(tmp_path / "state"), "--json", "doctor", "--connect"])
        findings = json.loads(capsys.readouterr().out)["findings"]
        finding = next(item for item in findings if item["subject"] == "sign-in")
        with served.over_http() as url, httpx2.Client(trust_env=False) as plain:
            place = url.replace("/mcp", "/v1/servers")
            answers = [plain.get(place, headers={"authorization": f"Bearer opaque-{number}"}) for number in range(3)]
        told = [line for line in served.said if "introspection_secret" in line]
        if secret == GATEWAY["client_secret"]:
            assert finding["verdict"] == "well"
            assert [answer.status_code for answer in answers] == [401] * 3
            assert not told
            return
        assert finding["verdict"] == "wrong"
        assert "refuses the client that this gateway asks with" in finding["text"]
        assert "`introspection_secret` of [auth]" in finding["fix"]
        assert [answer.status_code for answer in answers] == [503] * 3
        error = answers[0].json()["error"]
        assert "refuses the client that this gateway asks with, with status 401" in error["message"]
        assert "trying again does not help" in error["next_action"]
        assert len(told) == 1
        assert not any(secret in line for line in served.said)
