"""Addresses that a stranger names: in a server's redirects, endpoints, sign-in metadata and schemas, in an OpenAPI
document, in a file of the registry, in a configuration. None of them is connected to. Two witnesses: a listening socket
that counts, and every connection that this process asks the operating system for."""

import asyncio
import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gateway_process import Home, figure, until
from misbehaving_http import MisbehavingHttp
from pages import METADATA, PLACE, Pages, pages

from toolfold.auth.fetch import Fetcher
from toolfold.auth.grants import prepare
from toolfold.auth.vault import Vault
from toolfold.errors import ConfigError, ToolfoldError
from toolfold.types import ServerSpec
from toolfold.upstream.openapi import OpenApiUpstream
from toolfold.wire import HttpTarget, connect

FORBIDDEN = (
    *("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "[fd00:ec2::254]"),
    *(
        "[::ffff:169.254.169.254]",
        "[64:ff9b::a9fe:a9fe]",
        "2852039166",
        "0xa9fea9fe",
        "169.254.43518",
        "0251.0376.0251.0376",
    ),
)
"""Where clouds hand out a machine's own credentials, in every way to write it."""

INSIDE = (
    *FORBIDDEN,
    "10.0.0.1",
    "192.168.0.1",
    "172.16.0.1",
    "100.64.0.1",
    "[fc00::1]",
    "[fe80::1]",
    "0.0.0.0",
    "[::]",
)

_connected: list[tuple[Any, ...]] | None = None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _connected is not None and event == "socket.connect" and isinstance(arguments[1], tuple):
        _connected.append(arguments[1])


sys.addaudithook(_hook)  # it cannot be taken out again, so it is one for all tests, and asleep between them


@contextmanager
def witnessed() -> Iterator[list[tuple[Any, ...]]]:
    """Every address that a socket of this process is connected to meanwhile."""
    global _connected  # noqa: PLW0603 - an audit hook cannot be removed
    found: list[tuple[Any, ...]] = []
    _connected = found
    try:
        yield found
    finally:
        _connected = None


class Trap:
    """A listening socket that counts who comes."""

    def __init__(self) -> None:
        self.count = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.origin = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.count += 1
            connection.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)


@pytest.fixture
def trap() -> Iterator[Trap]:
    made = Trap()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def outside(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [address for address in found if address[0] not in {"127.0.0.1", "::1"}]


@pytest.mark.parametrize("host", FORBIDDEN)
async def test_a_configuration_cannot_name_where_a_machines_credentials_are(tmp_path: Path, host: str) -> None:
    """Not even a configuration: the file may be a project's, and its author a stranger."""
    document = tmp_path / "api.json"
    paths = {"/x": {"get": {"operationId": "x", "responses": {}}}}
    document.write_text(json.dumps({"openapi": "3.1.0", "servers": [{"url": f"http://{host}/"}], "paths": paths}))
    with witnessed() as found:
        async with asyncio.timeout(20):
            with pytest.raises(ToolfoldError, match=r"credentials|no http"):
                await connect(HttpTarget(f"http://{host}/mcp"))
            for spec in (
                ServerSpec(name="a", transport="openapi", document=f"http://{host}/openapi.json", start_timeout_s=2),
                ServerSpec(name="a", transport="openapi", document=str(document), start_timeout_s=2),
                ServerSpec(name="a", transport="openapi", document=str(document), url=f"http://{host}/x"),
            ):
                with pytest.raises(ToolfoldError, match="credentials"):
                    await OpenApiUpstream(spec).open()
    assert outside(found) == []


METADATA_FIELDS = ("authorization_servers", "token_endpoint", "registration_endpoint", "resource_metadata")


@pytest.mark.parametrize("field", METADATA_FIELDS)
@pytest.mark.parametrize("host", INSIDE)
async def test_sign_in_metadata_leads_to_no_inner_address(vault: Vault, host: str, field: str) -> None:
    async with pages() as server:
        lead_astray(server, field, f"https://{host}/x")
        with witnessed() as found:
            async with asyncio.timeout(20):
                with pytest.raises(ToolfoldError):
                    await sign_in(server, vault)
    assert outside(found) == []
    assert await vault.list() == ()


async def sign_in(server: Pages, vault: Vault) -> None:
    prepared = await prepare(server.spec, vault, fetcher=Fetcher(server.spec.url, seconds=2.0))
    login = await prepared.code_login("http://127.0.0.1:1/callback")
    await login.finish({"state": login.state, "code": "a code"})


def lead_astray(server: Pages, field: str, address: str) -> None:
    server.honest(**({field: address} if field.endswith("endpoint") else {}))
    if field == "authorization_servers":
        server.pages[PLACE] = {"resource": f"{server.origin}/mcp", "authorization_servers": [address]}
    elif field == "resource_metadata":
        # Nothing else tells of it: what the header names is all there is.
        del server.pages[PLACE], server.pages[METADATA]
        server.pages["/mcp"] = (401, b"", {"WWW-Authenticate": f'Bearer resource_metadata="{address}"'})


@pytest.mark.parametrize("host", ["mcp.example.com", "10.1.2.3"])
async def test_a_name_that_resolves_to_an_inner_address_is_not_connected_to(host: str) -> None:
    """The resolver is given: first a good address, then, to whoever asks twice, a bad one."""

    async def resolve(name: str, port: int) -> list[str]:
        return {"mcp.example.com": ["93.184.215.14"], "evil.example.com": ["127.0.0.1"]}[name]

    fetcher = Fetcher("https://mcp.example.com/mcp", resolve=resolve)
    with witnessed() as found, pytest.raises(ToolfoldError):
        await fetcher.get("https://evil.example.com/x" if host == "mcp.example.com" else f"https://{host}/x")
    assert found == []


REMOTES = (*INSIDE, "localhost", "127.0.0.1", "[::1]", "router.local", "printer.internal", "single")


@pytest.mark.parametrize("host", REMOTES)
def test_a_file_of_the_registry_names_no_inner_address(tmp_path: Path, host: str) -> None:
    file = tmp_path / "server.json"
    remote = {"type": "streamable-http", "url": f"https://{host}/mcp"}
    file.write_text(json.dumps({"name": "io.example/evil", "remotes": [remote]}))
    from toolfold.config.registry_form import read_server_json

    with pytest.raises(ConfigError, match="not reachable from the internet"):
        read_server_json(str(file))
    if host not in {"localhost", "169.254.169.254"}:
        return
    home = Home(tmp_path).write()
    refused = home.run("add", str(file))  # the command itself, for two of them
    assert refused.returncode != 0
    assert host not in home.config.read_text()


def test_the_address_of_a_registry_file_does_not_lead_elsewhere(tmp_path: Path, trap: Trap) -> None:
    """The person named one address; that it redirects to another is its owner's doing."""

    async def main() -> str:
        async with pages() as server:
            server.pages["/server.json"] = (302, b"", {"Location": "http://169.254.169.254/latest"})
            home = Home(tmp_path).write()
            done = await asyncio.to_thread(home.run, "add", "evil", f"{server.origin}/server.json")
            assert done.returncode != 0
            return done.stderr

    assert "credentials" in (said := asyncio.run(main())) or "https" in said


def openapi(trap: Trap) -> dict[str, Any]:
    """A document that leads to another origin in every way that it has."""
    there = {"$ref": f"{trap.origin}/part.json#/x"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "astray", "version": "1"},
        "paths": {
            "/fine": {
                "get": {
                    "operationId": "fine",
                    "parameters": [there, {"name": "a", "in": "query", "schema": there}],
                    "responses": {"200": {"description": "ok", "content": {"application/json": {"schema": there}}}},
                }
            },
            "/own": {"servers": [{"url": trap.origin}], "get": {"operationId": "own", "responses": {}}},
            "/moved": {"get": {"operationId": "moved", "responses": {}}},
            "/whole": there,
        },
        "externalDocs": {"url": trap.origin},
    }


async def test_servers_of_all_kinds_lead_a_real_gateway_nowhere(tmp_path: Path, trap: Trap) -> None:
    """Redirects, endpoints, documents, schemas, links and icons, by a process that is really served."""
    tools = [
        {
            "name": "call",
            "description": "Takes what it refers to.",
            "inputSchema": {"type": "object", "properties": {"a": {"$ref": f"{trap.origin}/schema.json"}}},
            "outputSchema": {"type": "object", "$ref": f"{trap.origin}/out.json"},
            "icons": [{"src": f"{trap.origin}/icon.png"}],
        }
    ]
    listed = tmp_path / "tools.json"
    listed.write_text(json.dumps(tools))
    async with pages() as site, MisbehavingHttp(redirect=f"{trap.origin}/mcp") as moved, pages() as oldest:
        site.pages["/openapi.json"] = openapi(trap)
        site.pages["/named.json"] = {**openapi(trap), "servers": [{"url": trap.origin}]}
        site.pages["/moved"] = (302, b"", {"Location": f"{trap.origin}/x"})
        site.pages["/moved.json"] = (302, b"", {"Location": f"{trap.origin}/openapi.json"})
        site.pages["/fine?a=1"] = {"uri": trap.origin}
        oldest.pages["/mcp"] = endpoint_elsewhere(trap)
        home = Home(tmp_path).write(
            Home.server("filed", "filed_stdio.py", str(listed)),
            f'[servers.moved]\nurl = "{moved.url}"\nstart_timeout_s = 5\n',
            f'[servers.oldest]\nurl = "{oldest.origin}/mcp"\nstart_timeout_s = 5\n',
            *(
                f'[servers.{name}]\nopenapi = "{site.origin}/{file}.json"\nstart_timeout_s = 5\n'
                for name, file in (("api", "openapi"), ("named", "named"), ("gone", "moved"))
            ),
        )
        failed = await asyncio.to_thread(ask_everything, home)
    assert trap.count == 0
    figure("addresses of strangers", ways=14, connections=trap.count, refused_servers=failed)


def endpoint_elsewhere(trap: Trap) -> Any:
    async def answer(request: Any, writer: asyncio.StreamWriter) -> bool:
        if request.verb != "GET":
            writer.write(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n")
            return True
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        writer.write(f"event: endpoint\ndata: {trap.origin}/messages\n\n".encode())
        await writer.drain()
        return False

    return answer


def ask_everything(home: Home) -> int:
    with home.serve() as gateway:
        gateway.wait_for("filed.call", a=1)
        gateway.call("filed.call", a={"b": "text"})
        gateway.post("expand_tool", tool_id="filed.call")
        gateway.post("inspect_tool_output", tool_id="filed.call", field_path="")
        for name in ("fine", "own", "moved", "whole"):
            gateway.call(f"api.{name}", a="1")
        for server in ("moved", "oldest", "named", "gone"):
            gateway.call(f"{server}.anything")
        until(lambda: all(server["status"] != "starting" for server in states(gateway)), "a server hangs")
        found = states(gateway)
    return sum(server["status"] == "failed" for server in found)


def states(gateway: Any) -> list[dict[str, Any]]:
    with gateway.client() as client:
        found: list[dict[str, Any]] = client.get("/v1/servers").json()["servers"]
    return found
