"""Signing in from inside a conversation: clients of both eras are given an address, and the call goes on."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from provider import Provider, provider
from sign_in_kit import Browser, MarkedHttp, write_config

import fork_server
from toolfold import Gateway, Settings
from toolfold.calls import sign_in
from toolfold.faces.mcp_server.http import Site, listening_socket, run_site
from toolfold.faces.mcp_server.profiles import open_app
from toolfold.faces.surface.instructions import sign_in_line
from toolfold.types import LOCAL, ServerSpec
from toolfold.wire.serving import Server
from toolfold.wire.serving.http import McpHttpApp

MODES = {"legacy": "legacy", "modern": "2026-07-28"}
ASK = {"tool_id": "box.whoami", "args": {"n": 7}}


@pytest.fixture(scope="module")
def issuer() -> Iterator[Provider]:
    with provider() as running:
        yield running


class Person:
    """Somebody in front of a client, who opens what they are shown, at once or later."""

    def __init__(self, issuer: Provider, account: str = "ada", action: Any = "accept", *, later: bool = False) -> None:
        self.issuer = issuer
        self.account = account
        self.action = action
        self.later = later
        self.urls: list[str] = []
        self.pages: list[str] = []
        self.told: asyncio.Queue[str] = asyncio.Queue()

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        assert params.mode == "url"
        self.urls.append(params.url)
        if self.action == "accept" and not self.later:
            await self.open(params.url)
        return types.ElicitResult(action=self.action)

    async def open(self, url: str) -> None:
        async with Browser(self.issuer) as browser:
            self.pages.append(await browser.sign_in(url, self.account))

    async def message(self, message: Any) -> None:
        method = getattr(message, "method", None) or getattr(getattr(message, "root", None), "method", None)
        if method is not None:
            self.told.put_nowait(str(method))

    def client(self, server: str, era: str, **more: Any) -> Client:
        return Client(
            server,
            mode=MODES[era],
            read_timeout_seconds=60,
            cache=None,
            elicitation_callback=self.elicit,
            message_handler=self.message,
            **more,
        )


@asynccontextmanager
async def conversation(issuer: Provider, tmp_path: Path, credentials: Any) -> AsyncIterator[tuple[str, Gateway]]:
    """A gateway that serves the person at this machine, in front of a server that wants a sign-in."""
    async with MarkedHttp(issuer=issuer.issuer, keys=await issuer.keys()) as server:
        spec = ServerSpec(name="box", transport="http", url=server.url, credentials=credentials)
        async with Gateway(Settings(servers=(spec,), home=tmp_path)) as gateway:
            await gateway.build()
            async with open_app(gateway, "discovery") as app:
                mcp = McpHttpApp(Server(app))
                bound, stop = listening_socket("127.0.0.1", 0), asyncio.Event()
                serving = asyncio.create_task(run_site(Site(mcp), bound, stop))
                try:
                    yield f"http://127.0.0.1:{bound.getsockname()[1]}/mcp", gateway
                finally:
                    await mcp.aclose()
                    stop.set()
                    await serving


async def known(gateway: Gateway, issuer: Provider) -> None:
    """Has the tools in the catalogue, and nobody signed in: somebody was, once."""
    credentials = gateway.upstreams.credentials
    owner = credentials.owner("box", "earlier")
    begun = await credentials.sign_ins.begin("box", owner)
    async with Browser(issuer) as browser:
        await browser.sign_in(begun.url, "earlier")
    gateway.upstreams.sign_in_changed("box", owner)
    await gateway.reread("box")
    if not owner:
        await credentials.vault.delete("box")
        gateway.upstreams.sign_in_changed("box")


def text_of(result: Any) -> str:
    return str(result.content[0].text)


@pytest.mark.parametrize("credentials", ["caller", "shared"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_call_asks_for_the_sign_in_and_goes_on(
    issuer: Provider, tmp_path: Path, era: str, credentials: str
) -> None:
    person = Person(issuer)
    async with conversation(issuer, tmp_path, credentials) as (url, gateway):
        await known(gateway, issuer)
        async with person.client(url, era) as client:
            assert text_of(await client.call_tool("call_tool", ASK)) == "ada 7"
            assert text_of(await client.call_tool("call_tool", ASK)) == "ada 7"
            assert len(person.urls) == 1
            assert "You can close this." in person.pages[0]
            if era == "legacy":
                async with asyncio.timeout(10):
                    while await person.told.get() != "notifications/elicitation/complete":
                        pass


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_first_caller_signs_in_where_no_tool_is_known(issuer: Provider, tmp_path: Path, era: str) -> None:
    person, first = Person(issuer), {"tool_id": "box.sign_in"}
    async with conversation(issuer, tmp_path, "caller") as (url, gateway):
        assert "call the tool id `NAME.sign_in` (`box.sign_in`)" in await sign_in_line(gateway, LOCAL)
        async with person.client(url, era) as client:
            assert text_of(await client.call_tool("call_tool", first)).startswith("Signed in to box.")
            assert text_of(await client.call_tool("call_tool", ASK)) == "ada 7"
            assert text_of(await client.call_tool("call_tool", first)).startswith("Signed in to box.")
            unknown = await client.call_tool("call_tool", {"tool_id": "box.other"})
            assert json.loads(text_of(unknown))["error"]["code"] == "TOOL_NOT_FOUND"
        assert len(person.urls) == 1
        assert await sign_in_line(gateway, LOCAL) == ""


async def test_who_takes_long_is_told_when_it_is_done(
    issuer: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_in, "_HELD_S", 0.05)
    person = Person(issuer, later=True)
    async with conversation(issuer, tmp_path, "caller") as (url, gateway):
        await known(gateway, issuer)
        async with person.client(url, "legacy") as client:
            with pytest.raises(MCPError) as needed:
                await client.call_tool("call_tool", ASK)
            assert needed.value.error.code == -32042
            asked = needed.value.error.data["elicitations"][0]
            assert asked["url"] == person.urls[0]
            assert asked["mode"] == "url"
            await person.open(asked["url"])
            async with asyncio.timeout(10):
                while await person.told.get() != "notifications/elicitation/complete":
                    pass
            assert text_of(await client.call_tool("call_tool", ASK)) == "ada 7"
        # A modern client comes back with the same request until it is done.
        await gateway.upstreams.credentials.sign_out("box", "local")
        gateway.upstreams.sign_in_changed("box", "local")
        late = Person(issuer, "bob", later=True)
        async with late.client(url, "modern") as client:
            waiting = asyncio.create_task(client.call_tool("call_tool", ASK))
            async with asyncio.timeout(30):
                while len(late.urls) < 2 and not waiting.done():
                    await asyncio.wait([waiting], timeout=0.05)
            await late.open(late.urls[0])
            assert text_of(await waiting) == "bob 7"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_who_declines_or_cannot_be_asked_gets_an_error(issuer: Provider, tmp_path: Path, era: str) -> None:
    async with conversation(issuer, tmp_path, "caller") as (url, gateway):
        await known(gateway, issuer)
        async with Person(issuer, action="decline").client(url, era) as client:
            error = json.loads(text_of(await client.call_tool("call_tool", ASK)))["error"]
            assert error["code"] == "SIGN_IN_REQUIRED"
            assert "did not want to" in error["message"]
        async with Client(url, mode=MODES[era], read_timeout_seconds=60, cache=None) as client:
            error = json.loads(text_of(await client.call_tool("call_tool", ASK)))["error"]
            assert error["code"] == "SIGN_IN_REQUIRED"
            await Person(issuer).open(error["hints"][0])
            assert text_of(await client.call_tool("call_tool", ASK)) == "ada 7"


async def test_another_browser_cannot_end_a_sign_in(issuer: Provider, tmp_path: Path) -> None:
    async with conversation(issuer, tmp_path, "caller") as (_, gateway):
        credentials = gateway.upstreams.credentials
        begun = await credentials.sign_ins.begin("box", "mallory")
        async with Browser(issuer) as attacker, Browser(issuer) as victim:
            handed_out = await attacker.start(begun.url)
            assert "used by the caller “mallory”" in attacker.shown
            page = await victim.finish(handed_out, "victim")
            assert page.status_code == 403
            assert "began in another browser" in page.text
            assert not credentials.has("box", "mallory")
        async with httpx2.AsyncClient(trust_env=False) as stranger:
            pressed = await stranger.post(begun.url)
            forged = await stranger.post(f"{begun.url}?proof=00", headers={"Cookie": "toolfold_x=y"})
            framed = await stranger.get(begun.url)
        assert [pressed.status_code, forged.status_code] == [403, 403]
        assert "frame-ancestors 'none'" in framed.headers["content-security-policy"]
        # Who reads the page and goes on is who it is for: this is told to both.
        async with Browser(issuer) as honest:
            await honest.sign_in(begun.url, "mallory")
        assert credentials.has("box", "mallory")
        async with Browser(issuer) as again:
            assert (await again._client.get(begun.url)).status_code == 404


@contextmanager
def served(folder: Path, options: tuple[str, ...]) -> Iterator[str]:
    command = [sys.executable, "-m", "toolfold", *options, "serve", "--http", "127.0.0.1:0"]
    with fork_server.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder, env=os.environ) as process:
        assert process.stderr is not None
        try:
            said = process.stderr.readline()
            assert "serving on " in said, said
            yield said.split("serving on ")[1].strip().removesuffix("/mcp")
        finally:
            process.terminate()
            process.wait(20)


async def test_over_http_each_key_has_its_own_account(issuer: Provider, tmp_path: Path) -> None:
    keys = {name: f"key-of-{name}-0123456789" for name in ("ann", "ben")}
    tables = "".join(f'[callers.{name}]\nkey = "{key}"\n' for name, key in keys.items())
    async with (
        MarkedHttp(issuer=issuer.issuer, keys=await issuer.keys()) as own,
        MarkedHttp(issuer=issuer.issuer, keys=await issuer.keys()) as common,
    ):
        tables += '[callers.out]\nkey = "key-of-out-0123456789"\npolicy = "none"\n[policy.none]\ndeny = ["box.*"]\n'
        keys_out = {"Authorization": "Bearer key-of-out-0123456789"}
        more = f'credentials = "caller"\n[servers.common]\nurl = "{common.url}"\n{tables}'
        with served(tmp_path, write_config(tmp_path, own.url, more)) as base:
            async with httpx2.AsyncClient(base_url=base, trust_env=False, timeout=60) as http:

                async def ask(name: str, method: str, path: str, body: Any = None) -> Any:
                    headers = {"Authorization": f"Bearer {keys[name]}"}
                    return (await http.request(method, path, json=body, headers=headers)).json()

                # On a fresh gateway no tool is known, and a call tells how to begin, but to whom the server is hidden.
                states = {one["name"]: one["status"] for one in (await ask("ann", "GET", "/v1/servers"))["servers"]}
                assert states["box"] == "needs sign-in"
                fresh = (await ask("ann", "POST", "/v1/call_tool", {"tool_id": "box.sign_in"}))["error"]
                assert fresh["code"] == "SIGN_IN_REQUIRED"
                assert fresh["hints"][0].startswith(f"{base}/oauth/start/")
                assert "POST /v1/sign-ins/box" in fresh["next_action"]
                assert "toolfold login" not in fresh["next_action"]
                hidden = await http.post("/v1/call_tool", json={"tool_id": "box.sign_in"}, headers=keys_out)
                assert hidden.json()["error"]["code"] == "TOOL_NOT_FOUND"
                assert "box" not in (await http.get("/v1/servers", headers=keys_out)).text
                for name in keys:
                    address = (await ask(name, "POST", "/v1/sign-ins/box"))["url"]
                    assert address.startswith(f"{base}/oauth/start/")
                    async with Browser(issuer) as browser:
                        await browser.sign_in(address, f"account-of-{name}")
                    answer = await ask(name, "POST", "/v1/call_tool", ASK)  # at once, as the page says
                    assert answer["content"][0]["text"] == f"account-of-{name} 7"
                signed_in = (await ask("ann", "GET", "/v1/sign-ins"))["sign_ins"]
                assert [(one["server"], one["caller"]) for one in signed_in] == [("box", "ann")]
                # An account that all share is not connected by a caller with a key.
                assert (await ask("ann", "POST", "/v1/sign-ins/common"))["error"]["code"] == "NOT_FOUND"
                assert (await ask("ann", "DELETE", "/v1/sign-ins/box"))["revoked"]
                refused = await ask("ann", "POST", "/v1/call_tool", ASK)
                assert refused["error"]["code"] == "SIGN_IN_REQUIRED"
                assert refused["error"]["hints"][0].startswith(f"{base}/oauth/start/")
                answer = await ask("ben", "POST", "/v1/call_tool", ASK)
                assert answer["content"][0]["text"] == "account-of-ben 7"
                told = (await ask("ann", "GET", "/v1/instructions"))["instructions"]
                assert "Sign-in needed: box, common." in told
