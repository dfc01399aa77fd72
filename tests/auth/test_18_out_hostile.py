"""Metadata that loops, lies, is too large or leads astray; providers that are down or hang. Nothing is stored, nothing
hangs, and no packet goes to a forbidden address: the guard's resolver is given it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from misbehaving_http import Request, send
from msgspec import Raw
from msgspec.structs import replace
from pages import METADATA, PLACE, certificate, credential, pages, sign_in
from provider import REDIRECT

from toolfold.auth import fetch
from toolfold.auth.discovery import Challenge, fits, parse_challenge
from toolfold.auth.fetch import Fetcher
from toolfold.auth.grants import prepare, refresh
from toolfold.auth.session import OAuthSession
from toolfold.auth.vault import Vault
from toolfold.errors import ServerTimeout, ServerUnavailable, SignInRequired, UpstreamError
from toolfold.types import CallContext, OAuthSpec, ServerSpec, Tool, ToolCall, ToolDefinition
from toolfold.upstream.openapi import OpenApiUpstream
from toolfold.upstream.pool import Pool
from toolfold.wire import HttpTarget, connect

pytestmark = pytest.mark.usefixtures("no_proxy")


async def hundred_megabytes(request: Request, writer: asyncio.StreamWriter) -> bool:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 104857600\r\n\r\n")
    for _ in range(1600):
        writer.write(b" " * 65536)
        await writer.drain()
    return True


async def hang(request: Request, writer: asyncio.StreamWriter) -> bool:
    await asyncio.Event().wait()
    return False


async def drip(request: Request, writer: asyncio.StreamWriter) -> bool:
    """A byte now and then: no single read ever times out."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    for _ in range(1000):
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.05)
    return False


async def redirect_to_itself(request: Request, writer: asyncio.StreamWriter) -> bool:
    return send(writer, 302, b"", {"Location": request.path})


async def test_an_honest_server_is_signed_in_to(vault: Vault) -> None:
    async with pages() as server:
        server.honest()
        await sign_in(server.spec, vault)
        assert [credential.server for credential in await vault.list()] == ["box"]
        registered = json.loads(next(request.body for request in server.seen if request.path == "/register"))
        assert registered["application_type"] == "native"
        assert registered["redirect_uris"] == [REDIRECT]


DEEP = b'{"resource":' + b"[" * 400_000
REFUSAL = b'{"error":"invalid_grant","error_description":"x\\u001b[2J"}'
HOSTILE: dict[str, tuple[str, Any, type[UpstreamError], str]] = {
    "metadata in a circle": (PLACE, redirect_to_itself, ServerUnavailable, "in a circle"),
    "metadata by http": (PLACE, (302, b"", {"Location": "http://example.com/"}), ServerUnavailable, "only https"),
    "metadata in a file": (PLACE, (302, b"", {"Location": "file:///x"}), ServerUnavailable, "cannot be used"),
    "100 MB": (PLACE, hundred_megabytes, ServerUnavailable, "larger than"),
    "100 MB of issuer": (METADATA, hundred_megabytes, ServerUnavailable, "larger than"),
    "deep": (PLACE, (200, DEEP), ServerUnavailable, "cannot be read"),
    "no JSON": (PLACE, (200, b"<html>"), ServerUnavailable, "cannot be read"),
    "no UTF-8": (PLACE, (200, b'{"resource":"\xff"}'), ServerUnavailable, "cannot be read"),
    "wrong kinds": (METADATA, {"issuer": 7}, ServerUnavailable, "cannot be read"),
    "another resource": (PLACE, {"resource": "https://evil.example/mcp"}, ServerUnavailable, "another server"),
    "another path": (PLACE, {"resource": "http://127.0.0.1/other"}, ServerUnavailable, "another server"),
    "another issuer": (METADATA, {"issuer": "https://evil.example"}, ServerUnavailable, "another issuer"),
    "no issuer": (METADATA, (404, b""), ServerUnavailable, "no OAuth metadata"),
    "issuer fails": (METADATA, (500, b"{}"), ServerUnavailable, "answered with status 500"),
    "server is overloaded": (PLACE, (429, b""), ServerUnavailable, "answered with status 429"),
    "hangs": (PLACE, hang, ServerTimeout, "did not answer within"),
    "drips": (METADATA, drip, ServerTimeout, "did not answer within"),
    "registration refused": ("/register", (400, b'{"error":"invalid_scope"}'), ServerUnavailable, "invalid_scope"),
    "registration elsewhere": ("/register", (307, b"", {"Location": "/other"}), ServerUnavailable, "redirects a"),
    "registration hangs": ("/register", hang, ServerTimeout, "did not answer within"),
    "token refused": ("/token", (400, REFUSAL), ServerUnavailable, "invalid_grant: x"),
    "token elsewhere": ("/token", (307, b"", {"Location": "/other"}), ServerUnavailable, "redirects a request"),
    "token hangs": ("/token", hang, ServerTimeout, "did not answer within"),
    "token of 100 MB": ("/token", hundred_megabytes, ServerUnavailable, "larger than"),
    "another type": ("/token", {"access_token": "x", "token_type": "mac"}, ServerUnavailable, "type 'mac'"),
    "no token": ("/token", {"token_type": "Bearer"}, ServerUnavailable, "no header can carry"),
    "a line break": ("/token", {"access_token": "x\r\nX: 1", "token_type": "Bearer"}, ServerUnavailable, "no header"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_page_is_a_clear_error_and_stores_nothing(vault: Vault, name: str) -> None:
    path, page, kind, reason = HOSTILE[name]
    async with pages() as server:
        server.honest()
        server.pages[path] = page
        with pytest.raises(kind, match=reason) as refused:
            async with asyncio.timeout(20):
                await sign_in(server.spec, vault)
        assert refused.value.next_action
        assert "\x1b" not in refused.value.message
        assert f"{server.origin} was not asked" not in refused.value.message, "it was, with all that the request held"
        assert await vault.list() == ()


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"code_challenge_methods_supported": None}, "cannot be read"),
        ({"code_challenge_methods_supported": []}, "PKCE"),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "no https address"),
        ({"authorization_endpoint": "http://example.com/authorize"}, "no https address"),
        ({"authorization_endpoint": "file:///bin/sh"}, "no https address"),
        ({"authorization_endpoint": "https://example.com/authorize?x=1#f"}, "has a fragment"),
        ({"registration_endpoint": ""}, "needs a client id"),
        ({"token_endpoint": ""}, "names no token endpoint"),
        ({"token_endpoint": "file:///etc/passwd"}, "token endpoint of http://127.0.0.1:.* cannot be used"),
        ({"token_endpoint": "http://example.com/token"}, "only https"),
        ({"token_endpoint": "https://user:password@example.com/token"}, "cannot be used"),
        ({"token_endpoint": "https://169.254.169.254/token"}, "metadata"),
        ({"token_endpoint": "https://[::ffff:10.0.0.1]/token"}, "private"),
    ],
)
async def test_metadata_that_cannot_be_used_is_refused(vault: Vault, metadata: dict[str, Any], reason: str) -> None:
    async with pages() as server:
        server.honest(**metadata)
        with pytest.raises(ServerUnavailable, match=reason):
            await sign_in(server.spec, vault)
        assert await vault.list() == ()
        paths = {request.path for request in server.seen}
        assert not paths & {"/register", "/token"}, "before anybody did anything for it"


async def test_two_issuers_of_one_host_are_told_apart(vault: Vault) -> None:
    async with pages() as server:
        server.honest()
        spec = replace(server.spec, oauth=OAuthSpec(issuer=f"{server.origin}/realms/two"))
        server.pages[PLACE]["authorization_servers"] = [f"{server.origin}/realms/one"]
        said = f"signs in at {server.origin}/realms/one, and not at the configured issuer, {server.origin}/realms/two"
        with pytest.raises(ServerUnavailable, match=said):
            await sign_in(spec, vault)
        other = credential(server, issuer=f"{server.origin}/realms/one")
        await vault.put(other)
        with pytest.raises(
            SignInRequired, match=f"is by {server.origin}/realms/one, and `issuer` is {server.origin}/realms/two"
        ):
            await OAuthSession(spec, vault).challenged(401, "", {})


FORBIDDEN = {
    "10.1.2.3": "private",
    "172.16.0.1": "private",
    "192.168.1.1": "private",
    "100.64.0.1": "private",
    "127.0.0.1": "loopback",
    "::1": "loopback",
    "169.254.1.1": "link-local",
    "fe80::1": "link-local",
    "169.254.169.254": "metadata",
    "fd00:ec2::254": "metadata",
    "100.100.100.200": "metadata",
    "168.63.129.16": "metadata",
    "224.0.0.1": "multicast",
    "ff02::1": "multicast",
    "0.0.0.0": "unspecified",
    "::": "unspecified",
    "fc00::1": "private",
    "::ffff:127.0.0.1": "loopback",
    "64:ff9b::a9fe:a9fe": "metadata",
    "2002:7f00:1::": "loopback",
    "::7f00:1": "loopback",
    "::ffff:0:7f00:1": "private",
    "64:ff9b:1::a00:1": "private",
    "fec0::1": "private",
    "5f00::1": "private",
}


@pytest.mark.parametrize("address", FORBIDDEN)
async def test_a_name_that_leads_to_a_forbidden_address_is_not_followed(address: str) -> None:
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["93.184.215.14"] if host == "mcp.example.com" else ["93.184.215.14", address]

    fetcher = Fetcher("https://mcp.example.com/mcp", resolve=resolve)
    kind = FORBIDDEN[address].replace("metadata", "that of a machine's metadata service")
    with pytest.raises(ServerUnavailable, match=f"its address is {kind},"):
        await fetcher.get("https://metadata.example.com/x")
    assert asked.count("metadata.example.com") == 1, "a second answer of the name server would not be looked at"


async def test_a_name_is_resolved_once_and_the_connection_goes_to_what_was_looked_at() -> None:
    async with pages() as server:
        server.pages["/x"] = {"resource": "here"}
        answers = iter((["127.0.0.1"], ["169.254.169.254"]))

        async def resolve(host: str, port: int) -> list[str]:
            return next(answers)

        fetcher = Fetcher(f"http://localhost:{server.port}/mcp", resolve=resolve)
        assert (await fetcher.get(f"http://localhost:{server.port}/x")).ok
        assert server.seen[0].headers["host"] == f"localhost:{server.port}"


@pytest.mark.parametrize(("name", "reachable"), [("login.example.com", True), ("other.example.com", False)])
async def test_over_https_the_certificate_must_be_that_of_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reachable: bool
) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    secure, trusted = certificate(tmp_path, name)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    fetch._certificates.cache_clear()
    try:
        async with pages(secure) as server:
            server.pages["/x"] = {"resource": "here"}
            url = f"https://login.example.com:{server.port}/x"
            fetcher = Fetcher(url, resolve=resolve)
            if reachable:
                assert (await fetcher.get(url)).ok
                assert server.seen[0].headers["host"] == f"login.example.com:{server.port}"
            else:
                with pytest.raises(ServerUnavailable, match="cannot be reached"):
                    await fetcher.get(url)
                assert not server.seen
    finally:
        fetch._certificates.cache_clear()


async def test_a_proxy_of_the_environment_gets_the_name_unless_the_name_is_known_to_be_forbidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return {"evil.example.com": ["169.254.169.254"]}.get(host, [])

    async with pages() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.origin)
        monkeypatch.setenv("https_proxy", proxy.origin)
        fetcher = Fetcher("https://mcp.example.com/mcp", resolve=resolve)
        with pytest.raises(ServerUnavailable, match="metadata"):
            await fetcher.get("https://evil.example.com/x")
        assert not proxy.seen
        with pytest.raises(ServerUnavailable):
            await fetcher.get("https://login.example.com/x")
        assert [(request.verb, request.path) for request in proxy.seen] == [("CONNECT", "login.example.com:443")]


async def test_the_name_of_a_server_opens_no_private_network(vault: Vault) -> None:
    """Whoever has that name says where it leads: to a private address while its metadata points at another one."""

    async def resolve(host: str, port: int) -> list[str]:
        return {"mcp.corp": ["10.0.0.5"], "login.corp": ["10.9.9.9"], "evil.example": ["169.254.169.254"]}[host]

    alone = Fetcher("https://mcp.corp/mcp", resolve=resolve)
    assert await alone._addresses(alone._checked("https://mcp.corp/x")) == ["10.0.0.5"]
    with pytest.raises(ServerUnavailable, match="private") as refused:
        await alone.get("https://login.corp/token")
    assert "`issuer` under `oauth`" in refused.value.next_action
    bare = Fetcher("https://10.0.0.5/mcp", resolve=resolve)
    assert await bare._addresses(bare._checked("https://login.corp/token")) == ["10.9.9.9"]
    for fetcher in (bare, Fetcher("https://mcp.corp/mcp", "https://login.corp", resolve=resolve)):
        with pytest.raises(ServerUnavailable, match="metadata"):
            await fetcher.get("https://evil.example/token")


async def test_a_configured_issuer_may_be_private_and_the_server_outside() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return {"mcp.example.com": ["93.184.215.14"], "login.corp": ["10.9.9.9"]}[host]

    named = Fetcher("https://mcp.example.com/mcp", "https://login.corp", resolve=resolve)
    assert await named._addresses(named._checked("https://login.corp/token")) == ["10.9.9.9"]
    with pytest.raises(ServerUnavailable, match="private"):
        await Fetcher("https://mcp.example.com/mcp", resolve=resolve).get("https://login.corp/token")


async def test_plain_http_is_for_this_machine_alone(vault: Vault) -> None:
    with pytest.raises(ServerUnavailable, match="only https"):
        await Fetcher("https://mcp.example.com/mcp").get("http://127.0.0.1:1/x")
    with pytest.raises(ServerUnavailable, match="plain http"):
        await prepare(ServerSpec(name="box", transport="http", url="http://mcp.example.com/mcp"), vault)


async def test_a_provider_that_is_down_does_not_hold_up_the_server(vault: Vault) -> None:
    async with pages() as server:
        server.honest()
        server.pages[PLACE]["authorization_servers"] = ["http://127.0.0.1:1"]
        async with Pool([server.spec], vault=vault) as pool:
            with pytest.raises(SignInRequired):
                await pool.listing("box")
        with pytest.raises(ServerUnavailable, match="cannot be reached"):
            await sign_in(server.spec, vault)


async def test_a_server_of_before_2025_06_is_its_own_issuer(vault: Vault) -> None:
    async with pages() as server:
        server.honest()
        del server.pages[PLACE]
        server.pages["/mcp"] = (401, b"")
        await sign_in(server.spec, vault)
        assert (await vault.list())[0].resource == server.spec.url


async def test_a_site_that_shows_a_page_for_every_address_is_asked_for_the_other_places(vault: Vault) -> None:
    async with pages() as server:
        server.honest()
        page = (200, b"<html>Sign in</html>", {"Content-Type": "text/html; charset=utf-8"})
        server.pages["/.well-known/openid-configuration"] = server.pages[METADATA]
        server.pages[METADATA] = server.pages[PLACE] = page
        await sign_in(server.spec, vault)
        assert (await vault.list())[0].issuer == server.origin
        server.pages["/.well-known/openid-configuration"] = page
        with pytest.raises(ServerUnavailable, match="has no OAuth metadata"):
            await sign_in(server.spec, vault)


async def test_a_server_that_wants_a_key_is_not_taken_for_one_to_sign_in_to(vault: Vault) -> None:
    async with pages() as server:
        server.pages["/mcp"] = (401, b"")
        with pytest.raises(ServerUnavailable, match="refused access") as refused:
            await connect(HttpTarget(server.spec.url, authorization=OAuthSession(server.spec, vault)))
        assert not isinstance(refused.value, SignInRequired)
        assert "headers" in refused.value.next_action


async def test_an_openapi_service_is_signed_in_to_as_well(vault: Vault) -> None:
    async with pages() as server:
        server.honest(token_endpoint_auth_methods_supported=["client_secret_post"])
        server.pages["/openapi.json"] = {
            "openapi": "3.1.0",
            "info": {"title": "Things", "version": "1"},
            "servers": [{"url": "/mcp"}],
            "paths": {"/thing": {"get": {"operationId": "thing", "responses": {"200": {"description": "ok"}}}}},
        }

        async def thing(request: Request, writer: asyncio.StreamWriter) -> bool:
            if request.headers.get("authorization") == "Bearer token-1":
                return send(writer, 200, b'{"name":"thing"}')
            return send(writer, 401, b"", {"WWW-Authenticate": f'Bearer resource_metadata="{server.origin}{PLACE}"'})

        server.pages["/mcp/thing"] = thing
        plain = ServerSpec(name="things", transport="openapi", document=f"{server.origin}/openapi.json")
        oauth = OAuthSpec(client_id="service", client_secret="its secret", grant="client_credentials")
        tool = Tool(
            tool_id="t.thing", server="t", definition=ToolDefinition(name="thing", raw=Raw(b"{}")), fingerprint=""
        )
        for spec in (plain, replace(plain, oauth=oauth)):
            upstream = OpenApiUpstream(spec, vault=vault)
            await upstream.open()
            calling = upstream.call(ToolCall(tool=tool, arguments=Raw(b"{}")), CallContext(whole=True))
            if spec.oauth is None:
                with pytest.raises(SignInRequired):
                    await calling
            else:
                assert b"thing" in bytes((await calling).raw)
            await upstream.aclose()
        sent = next(request.body for request in server.seen if request.path == "/token")
        assert b"client_secret=its+secret" in sent


async def test_a_refresh_token_is_sent_to_nobody_but_its_issuer(vault: Vault) -> None:
    async with pages() as server:
        server.pages["/token"] = (307, b"", {"Location": "https://evil.example/token"})
        with pytest.raises(ServerUnavailable, match="redirects a request that holds secrets"):
            await refresh(server.spec, credential(server))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("Bearer", Challenge()),
        ('Bearer scope="a b a", error="x"', Challenge(scope=("a", "b"), error="x")),
        ('Basic realm="Bearer scope=evil", Bearer resource_metadata="https://h"', Challenge(resource_metadata="https://h")),
        ('bearer scope=one, DPoP scope="two", error="e"', Challenge(scope=("one",))),
        (r'Bearer error="a\"b"', Challenge(error='a"b')),
        ('Basic realm="x"', None),
        ("", None),
        ("Bearer " + "a" * 100_000, Challenge()),
        ("Bearer " + "a," * 50_000, Challenge()),
        ('Bearer error="' + '\\x' * 50_000, Challenge(error="x" * 100)),
        ('Bearer ' + '"' * 50_000, Challenge()),
    ],
)  # fmt: skip
def test_a_challenge_is_read(header: str, expected: Challenge | None) -> None:
    assert parse_challenge(header) == expected


@pytest.mark.parametrize(
    ("resource", "url", "expected"),
    [
        ("https://a.example/mcp", "https://a.example/mcp", True),
        ("https://a.example", "https://a.example/mcp", True),
        ("https://A.example:443/", "https://a.example/mcp", True),
        ("https://a.example/mc", "https://a.example/mcp", False),
        ("https://a.example/mcp/x", "https://a.example/mcp", False),
        ("http://a.example/mcp", "https://a.example/mcp", False),
        ("https://a.example:8443/mcp", "https://a.example/mcp", False),
        ("https://a.example.evil/mcp", "https://a.example/mcp", False),
        ("https://a.example/mcp#x", "https://a.example/mcp", False),
        ("https://[/mcp", "https://a.example/mcp", False),
    ],
)
def test_a_resource_fits_its_own_server_only(resource: str, url: str, expected: bool) -> None:
    assert fits(resource, url) is expected
