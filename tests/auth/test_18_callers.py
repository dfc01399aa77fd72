"""Servers at which each caller has an account of its own: whose token goes where, and who sees what."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace
from provider import REDIRECT, Provider, provider
from sign_in_kit import MarkedHttp

from toolfold import Gateway, Settings
from toolfold.__main__ import main
from toolfold.auth.grants import prepare
from toolfold.auth.vault import Credential, Vault
from toolfold.config import CallerKey
from toolfold.errors import ServerUnavailable, SignInRequired, ToolNotFound
from toolfold.events import Event
from toolfold.faces.http_api import make_app
from toolfold.faces.identity import Identities
from toolfold.faces.surface.direct import DirectSurface
from toolfold.types import LOCAL, CallContext, Caller, ServerSpec, Tool, ToolCall, ToolDefinition
from toolfold.upstream import arrivals
from toolfold.upstream.base import Hooks
from toolfold.upstream.caller_tools import CallerTools
from toolfold.upstream.factory import make_upstream
from toolfold.upstream.per_caller import PerCallerUpstream
from toolfold.upstream.supervisor import PoolLimits

pytestmark = pytest.mark.requirement("G-14")

KEYS = {f"key-of-{name}-0123456789": name for name in ("ada", "bob", "eve")}


@pytest.fixture(scope="module")
def issuer() -> Iterator[Provider]:
    with provider() as running:
        yield running


def spec_of(server: MarkedHttp) -> ServerSpec:
    return ServerSpec(name="box", transport="http", url=server.url, credentials="caller")


def key_of(server: MarkedHttp, name: str, *, caller: str = "") -> Credential:
    value = next(key for key, account in server.api_keys.items() if account == name)
    return Credential(
        server="box",
        caller=caller or name,
        resource=server.url,
        issuer="",
        token_endpoint="",
        client_id="",
        header="X-Api-Key",
        access_token=value,
    )


@asynccontextmanager
async def opened(
    tmp_path: Path, own: Mapping[str, tuple[str, ...]] | None = None, signed_in: tuple[str, ...] = ("ada", "bob")
) -> AsyncIterator[tuple[MarkedHttp, Gateway]]:
    async with MarkedHttp(api_keys=KEYS, own=own or {}) as server:
        vault = Vault(tmp_path)
        for name in signed_in:
            await vault.put(key_of(server, name))
        async with Gateway(Settings(servers=(spec_of(server),), home=tmp_path)) as gateway:
            await gateway.build()
            yield server, gateway


async def whoami(gateway: Gateway, name: str, number: int = 0) -> str:
    return (await gateway.call_tool("box.whoami", {"n": number}, caller=Caller(name=name))).text


@pytest.mark.timeout(300)
@pytest.mark.load
async def test_a_hundred_callers_get_their_own_answers(issuer: Provider, tmp_path: Path) -> None:
    names = [f"person{number}" for number in range(100)]
    async with MarkedHttp(issuer=issuer.issuer, keys=await issuer.keys()) as server:
        # All ask at once, and the last is answered when all were.
        spec = replace(spec_of(server), call_timeout_s=240.0)
        vault, gate = Vault(tmp_path), asyncio.Semaphore(8)
        prospect = await prepare(spec, vault)

        async def sign_in(name: str) -> str:
            async with gate:
                login = await replace(prospect, caller=name).code_login(REDIRECT)
                credential = await login.finish(await issuer.visit(login.url, name))
                await vault.put(credential)
                return credential.access_token

        tokens = await asyncio.gather(*map(sign_in, names))
        assert len(set(tokens)) == 100
        async with Gateway(Settings(servers=(spec,), home=tmp_path)) as gateway:
            await gateway.build()
            calls = [(name, number) for number in range(3) for name in names]
            answers = await asyncio.gather(*(whoami(gateway, name, number) for name, number in calls))
            assert answers == [f"{name} {number}" for name, number in calls]
            assert Counter(server.calls) == dict.fromkeys(names, 3)
            # A connection carries the token of one caller, from its first request to its last.
            with pytest.raises(SignInRequired) as refused:
                await whoami(gateway, "somebody else")
            assert refused.value.next_action == "Run: toolfold login box --as 'somebody else'"


async def test_the_union_is_indexed_and_each_caller_sees_its_own(tmp_path: Path) -> None:
    own = {"ada": ("pay_invoice",), "bob": ("delete_account",)}
    async with opened(tmp_path, own) as (_, gateway):
        for name in ("ada", "bob"):
            await whoami(gateway, name)
        await gateway.reread("box")
        everything = {tool.tool_id async for tool in _tools(gateway, None)}
        assert everything == {"box.whoami", "box.pay_invoice", "box.delete_account"}
        assert {tool.tool_id async for tool in _tools(gateway, "ada")} == {"box.whoami", "box.pay_invoice"}
        assert {tool.tool_id async for tool in _tools(gateway, "bob")} == {"box.whoami", "box.delete_account"}
        # Who has not signed in sees what all have, and nothing of anybody's own.
        assert {tool.tool_id async for tool in _tools(gateway, "new")} == {"box.whoami"}
        found = await gateway.search_tool_by_category("pay an invoice", caller=Caller(name="ada"))
        assert found["results"][0]["tool_id"] == "box.pay_invoice"
        with pytest.raises(ToolNotFound):
            await gateway.call_tool("box.pay_invoice", {}, caller=Caller(name="bob"))
        outcome = await gateway.call_tool("box.pay_invoice", {"n": 4}, caller=Caller(name="ada"))
        assert outcome.text == "ada 4"
    async with Gateway(Settings(servers=gateway.settings.servers, home=tmp_path)) as again:
        assert {tool.tool_id async for tool in _tools(again, "bob")} == {"box.whoami", "box.delete_account"}


async def _tools(gateway: Gateway, name: str | None) -> AsyncIterator[Tool]:
    if name is None:
        async with gateway.catalogue.snapshot() as snapshot:
            found = await snapshot.tools()
    else:
        found = list(await gateway.tools_below((), caller=Caller(name=name)))
    for tool in found:
        yield tool


async def test_who_signs_out_is_refused_and_others_go_on(tmp_path: Path) -> None:
    async with opened(tmp_path, {"bob": ("delete_account",)}) as (server, gateway):
        assert await whoami(gateway, "ada") == "ada 0"
        assert await whoami(gateway, "bob") == "bob 0"
        await gateway.reread("box")
        await Vault(tmp_path).delete("box", "bob")
        gateway.upstreams.sign_in_changed("box", "bob")
        with pytest.raises(SignInRequired):
            await whoami(gateway, "bob")
        assert await whoami(gateway, "ada", 1) == "ada 1"
        await gateway.reread("box")
        assert {tool.tool_id async for tool in _tools(gateway, None)} == {"box.whoami"}
        # An account that changes: the new one's answers, and a connection of its own.
        await Vault(tmp_path).put(key_of(server, "eve", caller="ada"))
        gateway.upstreams.sign_in_changed("box", "ada")
        assert await whoami(gateway, "ada", 2) == "eve 2"


async def test_nobody_signed_in_holds_nothing_up(tmp_path: Path) -> None:
    async with MarkedHttp(api_keys=KEYS) as server:
        plain = ServerSpec(name="free", transport="http", url="http://127.0.0.1:9/none")
        async with Gateway(Settings(servers=(spec_of(server), plain), home=tmp_path)) as gateway:
            build = await gateway.build()
            assert {record.name: record.error.partition(":")[0] for record in build.servers}["box"] == (
                "box needs sign-in"
            )
            states = {state.name: state for state in await gateway.servers()}
            assert states["box"].status == "needs sign-in"
            assert states["box"].next_action == "run `toolfold login box --as CALLER`"
        async with Gateway(Settings(servers=(spec_of(server), plain), home=tmp_path)) as gateway:
            recorded = {state.name: state.status for state in await gateway.servers()}
            assert recorded == {"box": "needs sign-in", "free": "failed"}


async def _call(own: PerCallerUpstream, name: str) -> str:
    definition = ToolDefinition(name="whoami", raw=b"{}")  # type: ignore[arg-type]
    tool = Tool(tool_id="box.whoami", server="box", definition=definition, fingerprint="")
    call = ToolCall(tool=tool, arguments=b"{}")  # type: ignore[arg-type]
    return (await own.call(call, CallContext(caller=Caller(name=name)))).text


def _set(idle: asyncio.Event, event: Event) -> None:
    idle.set()


async def test_connections_are_bounded_and_ended_when_idle(tmp_path: Path) -> None:
    async with MarkedHttp(api_keys=KEYS) as server, Gateway(Settings(home=tmp_path)) as gateway:
        vault = Vault(tmp_path)
        for name in ("ada", "bob", "eve"):
            await vault.put(key_of(server, name))
        own = PerCallerUpstream(
            spec_of(server),
            Hooks(vault=vault),
            make=make_upstream,
            tools=CallerTools(gateway.store),
            signed_in=gateway.upstreams.credentials.callers,
            limits=PoolLimits(idle_s=1),
            max_connections=2,
        )
        for name in ("ada", "bob", "eve", "ada"):
            assert await _call(own, name) == f"{name} 0"
            assert len(own._connections) <= 2
        held = [supervisor for supervisor, _ in own._connections.values()]
        with held[0].usage, held[1].usage, pytest.raises(ServerUnavailable, match="no more connections"):
            await _call(own, "bob")
        for supervisor in held:
            idle = asyncio.Event()
            supervisor._events.subscribe(partial(_set, idle), only="upstream.idle")
            async with asyncio.timeout(10):
                assert supervisor.rests or await idle.wait()
        assert await _call(own, "eve") == "eve 0"
        await own.aclose()


async def test_the_person_at_this_machine_is_a_caller_too(tmp_path: Path) -> None:
    async with opened(tmp_path, signed_in=()) as (server, gateway):
        await Vault(tmp_path).put(key_of(server, "eve", caller=LOCAL.name))
        await gateway.build()
        assert (await gateway.call_tool("box.whoami", {})).text == "eve 0"


async def test_a_sign_in_by_another_process_is_taken_up(tmp_path: Path) -> None:
    async with MarkedHttp(api_keys=KEYS) as server:
        shared = replace(spec_of(server), name="common", credentials="shared")
        async with Gateway(Settings(servers=(shared, spec_of(server)), home=tmp_path)) as gateway:
            await gateway.build()
            assert {state.status for state in await gateway.servers()} == {"needs sign-in"}
            read: asyncio.Queue[str] = asyncio.Queue()
            gateway.events.subscribe(lambda event: read.put_nowait(event.data["server"]), only="upstream.listed")
            other = Vault(tmp_path)
            await other.put(replace(key_of(server, "ada"), server="common", caller=""))
            await other.put(key_of(server, "bob"))
            waiting = {"common", "box"}
            async with asyncio.timeout(30):
                while waiting:
                    waiting.discard(await read.get())
            await gateway.reread("box")
            assert (await gateway.call_tool("common.whoami", {})).text == "ada 0"
            assert await whoami(gateway, "bob") == "bob 0"


async def test_18_a_sign_in_or_out_by_another_process_is_told_to_that_caller(tmp_path: Path) -> None:
    async with opened(tmp_path, {"ada": ("pay_invoice",)}, signed_in=("ada",)) as (server, gateway):
        bob, told = Caller(name="bob"), asyncio.Queue[str]()
        await whoami(gateway, "ada")
        surface = DirectSurface(gateway)
        stop = surface.watch(lambda caller: told.put_nowait(caller.name if caller is not None else "all"))
        for step in (Vault(tmp_path).put(key_of(server, "bob")), Vault(tmp_path).delete("box", "bob")):
            await step  # bob has no tool that ada has not: the catalogue stays as it is
            async with asyncio.timeout(30):
                while await told.get() != "bob":
                    pass
            names = {json.loads(bytes(raw))["name"] for raw in await surface.tools(bob)}
            assert ("box_sign_in" in names) == (await Vault(tmp_path).get("box", "bob") is None)
        stop()


@pytest.mark.parametrize("use", ["call", "list", "search", "expand", "tools"])
async def test_the_first_use_after_a_sign_in_waits_for_the_list(tmp_path: Path, use: str) -> None:
    async with opened(tmp_path, {"eve": ("pay_invoice",)}, signed_in=()) as (server, gateway):
        ada, eve = Caller(name="ada"), Caller(name="eve")
        await Vault(tmp_path).put(key_of(server, "eve"))
        gateway.upstreams.sign_in_changed("box", "eve")  # what the page does when the credential is stored
        assert await _first_use(gateway, use, eve) == "box.pay_invoice"
        # Whoever is not signed in hears of that, and of no tool of others.
        with pytest.raises(SignInRequired) as refused:
            await gateway.call_tool("box.pay_invoice", {}, caller=ada)
        assert not refused.value.hints


@pytest.mark.parametrize("use", ["call", "list", "search", "expand", "tools"])
async def test_the_first_use_after_a_login_elsewhere_waits_too(tmp_path: Path, use: str) -> None:
    async with opened(tmp_path, {"eve": ("pay_invoice",)}) as (server, gateway):
        await Vault(tmp_path).put(key_of(server, "eve"))  # by another process, which tells nobody
        assert await _first_use(gateway, use, Caller(name="eve")) == "box.pay_invoice"


async def _first_use(gateway: Gateway, use: str, caller: Caller) -> str:
    """The first tool that one way to use the catalogue shows of the caller's own."""
    if use == "call":
        assert (await gateway.call_tool("box.pay_invoice", {"n": 3}, caller=caller)).text == f"{caller.name} 3"
        return "box.pay_invoice"
    found: Sequence[Any]
    if use == "list":
        found = (await gateway.list(query="pay an invoice", caller=caller))["tools"]
    elif use == "search":
        found = (await gateway.search_tool_by_category("pay an invoice", caller=caller))["results"]
    elif use == "expand":
        found = [await gateway.expand_tool("box.pay_invoice", caller=caller)]
    else:
        return min(tool.tool_id for tool in await gateway.tools_below((), caller=caller))
    return str(found[0]["tool_id"])


async def test_a_server_that_does_not_list_in_time_is_named_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "_WAIT_S", 0.2)
    async with opened(tmp_path, signed_in=()) as (server, gateway):
        server.hang = "tools/list"
        await Vault(tmp_path).put(key_of(server, "eve"))
        gateway.upstreams.sign_in_changed("box", "eve")
        with pytest.raises(ServerUnavailable, match="has not listed your tools yet"):
            await whoami(gateway, "eve")


async def test_a_sign_in_that_has_ended_is_told_as_such_and_to_whom(tmp_path: Path) -> None:
    async with opened(tmp_path, {"ada": ("pay_invoice",)}) as (server, gateway):
        await Vault(tmp_path).put(
            replace(key_of(server, "ada"), access_token="", header="")
        )  # as the session leaves it
        gateway.upstreams.sign_in_changed("box", "ada")
        for tool_id in ("box.whoami", "box.pay_invoice"):  # one that others have, and one that was its own
            with pytest.raises(SignInRequired, match="box needs sign-in: the sign-in has ended"):
                await gateway.call_tool(tool_id, {}, caller=Caller(name="ada"))
        with pytest.raises(SignInRequired, match="box needs sign-in: carol is not signed in to it"):
            await whoami(gateway, "carol")
        keys = tuple(CallerKey(name=name, key=f"{name}-0123456789012345") for name in ("ada", "bob"))
        states = {}
        app = make_app(gateway, Identities(Settings(callers=keys)).guard)
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as client:
            for key in keys:
                answer = await client.get("/v1/servers", headers={"authorization": f"Bearer {key.key}"})
                states[key.name] = answer.json()["servers"][0]["status"]
        assert states == {"ada": "needs sign-in", "bob": "ready"}


async def test_where_callers_sign_in_themselves_the_next_step_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with MarkedHttp(api_keys=KEYS) as server:
        config = tmp_path / "toolfold.toml"
        config.write_text(f'[servers.box]\nurl = "{server.url}"\ncredentials = "caller"\n')

        async def run(*arguments: str) -> Any:
            options = ("--config", str(config), "--home", str(tmp_path / "home"), "--json", *arguments)
            await asyncio.to_thread(main, list(options))
            return json.loads(capsys.readouterr().out)

        await run("build")
        assert (await run("servers"))[0]["next_action"] == "toolfold login box --as CALLER"
        for options in (("doctor",), ("doctor", "--connect")):
            findings = (await run(*options))["findings"]
            [found] = [one for one in findings if one["subject"].startswith("server box") and one["fix"]]
            assert (found["verdict"], "toolfold login box --as CALLER" in found["fix"]) == ("mind", True)
