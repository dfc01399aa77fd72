"""Who may talk to the port: MCP and the HTTP/JSON face on it give the same answer."""

from pathlib import Path

import httpx2
import pytest

from toolfold import Gateway, Settings
from toolfold.config.sections import CallerKey
from toolfold.errors import ConfigError
from toolfold.faces.http_api import make_app
from toolfold.faces.identity import Identities
from toolfold.faces.mcp_server.http import Site, listening_socket, make_guard, parse_address
from toolfold.faces.mcp_server.profiles import open_app
from toolfold.wire.serving import Server
from toolfold.wire.serving.http import McpHttpApp

HOSTS = (
    "127.0.0.1:80",
    "localhost",
    "[::1]:1",
    "127.0.0.5",
    "127.1.2.3:9",
    "evil.example",
    "10.0.0.1",
    "0.0.0.0",
    "[",
    "",
)
ORIGINS = (
    "http://localhost:3000",
    "http://127.0.0.9",
    "https://[::1]",
    "https://evil.example",
    "null",
    "file://",
    "http://[",
)
DISCOVER = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@pytest.mark.requirement("G-04")
async def test_both_faces_of_a_port_let_in_the_same_requests(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    guard = make_guard("127.0.0.1", Identities(settings))
    async with Gateway(settings) as gateway, open_app(gateway, "discovery") as app:
        mcp = McpHttpApp(Server(app), guard)
        transport = httpx2.ASGITransport(Site(mcp, make_app(gateway, guard)))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            asked = [{"Host": host} for host in HOSTS] + [{"Host": "localhost", "Origin": one} for one in ORIGINS]
            refused = []
            for headers in asked:
                one = await client.post("/mcp", json=DISCOVER, headers=headers)
                other = await client.get("/v1/instructions", headers=headers)
                assert (one.status_code == 403) == (other.status_code == 403), headers
                if other.status_code == 403:
                    refused.append(headers)
                    error = other.json()["error"]
                    assert one.json()["error"]["message"] == error["message"]
                    assert error["next_action"]
        assert refused == [*asked[5:10], *asked[13:]]
        await mcp.aclose()


@pytest.mark.parametrize(
    ("text", "address"),
    [("8080", ("127.0.0.1", 8080)), (":1", ("127.0.0.1", 1)), ("[::1]:2", ("::1", 2)), ("0.0.0.0:3", ("0.0.0.0", 3))],
)
def test_an_address_may_leave_out_its_host(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "host", "host:port", "1:65536", "1:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no address"):
        parse_address(text)


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with listening_socket("127.0.0.1", 0) as taken, pytest.raises(ConfigError, match="cannot be listened on"):
        listening_socket("127.0.0.1", taken.getsockname()[1])


def test_without_keys_nobody_else_is_let_in(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no caller has a key"):
        make_guard("0.0.0.0", Identities(Settings(home=tmp_path)))


async def test_15_18_every_address_of_the_port_checks_the_host(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    guard = make_guard("127.0.0.1", Identities(settings))
    async with Gateway(settings) as gateway, open_app(gateway, "discovery") as app:
        mcp = McpHttpApp(Server(app), guard)
        transport = httpx2.ASGITransport(Site(mcp, make_app(gateway, guard), gateway.render_metrics))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for path in ("/docs", "/openapi.json", "/healthz", "/metrics", "/v1/servers", "/mcp"):
                answer = await client.get(path, headers={"Host": "evil.example"})
                assert answer.status_code == 403, path
            assert (await client.get("/docs")).status_code == 200
        await mcp.aclose()


async def test_15_18_two_keys_in_one_request_are_none(tmp_path: Path) -> None:
    settings = Settings(
        home=tmp_path, callers=(CallerKey(name="ann", key="a" * 20), CallerKey(name="bob", key="b" * 20))
    )
    guard = make_guard("127.0.0.1", Identities(settings))
    keys = [("Authorization", "Bearer " + "a" * 20), ("Authorization", "Bearer " + "b" * 20)]
    async with Gateway(settings) as gateway, open_app(gateway, "discovery") as app:
        mcp = McpHttpApp(Server(app), guard)
        transport = httpx2.ASGITransport(Site(mcp, make_app(gateway, guard), gateway.render_metrics))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for path in ("/v1/servers", "/metrics", "/mcp"):
                answer = await client.get(path, headers=keys)
                assert answer.status_code == 400, path
                assert "more than once" in answer.text
            assert (await client.get("/v1/servers", headers=keys[:1])).status_code == 200
        await mcp.aclose()


async def test_17_who_may_not_read_the_figures_is_told_so_in_plain_json(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, callers=(CallerKey(name="ann", key="a" * 20),))
    guard = make_guard("127.0.0.1", Identities(settings))
    async with Gateway(settings) as gateway, open_app(gateway, "discovery") as app:
        mcp = McpHttpApp(Server(app), guard)
        transport = httpx2.ASGITransport(Site(mcp, make_app(gateway, guard), gateway.render_metrics))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            figures, servers = await client.get("/metrics"), await client.get("/v1/servers")
            assert (figures.status_code, figures.headers["content-type"]) == (401, "application/json")
            assert "jsonrpc" not in figures.json()
            error = figures.json()["error"]
            assert error["code"] == servers.json()["error"]["code"] == "NOT_AUTHENTICATED"
            assert "Authorization: Bearer" in error["next_action"]
            assert error.keys() == servers.json()["error"].keys()
        await mcp.aclose()
