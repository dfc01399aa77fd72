"""Over every face, a cursor followed to its end shows every tool that was there throughout, or ends in `BAD_CURSOR`.

One gateway is served for all examples: over MCP to a real client, over `/v1`, and to the command line by its store.
"""

import contextlib
import io
import json
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from filed_stdio import filed_spec
from four_faces import command_line
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client
from mcp_client_helpers import MODES, local, on_port, text_of

from toolfold import Gateway, Settings
from toolfold.config import Policy
from toolfold.faces.cli import run as run_command
from toolfold.faces.http_api import make_app
from toolfold.faces.mcp_server.profiles import open_app
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.wire.serving.http_guard import HttpGuard

VERBS = ("find", "list", "cancel", "refund", "ship", "print", "count", "archive", "move", "pack", "weigh", "sort")
HIDDEN = "refund_order"
# What the server offers, page after page; after the last one it stays as it is.
Offers = st.lists(st.sets(st.sampled_from(VERBS), min_size=3), min_size=2, max_size=4)
ORDERS = "do something with an order"
# How each operation is asked for all of its pages, and where the tools stand in them.
QUESTIONS: dict[str, tuple[str, dict[str, Any], str]] = {
    "list": ("list", {"path": ["Orders"]}, "tools"),
    "list with a query": ("list", {"query": ORDERS}, "tools"),
    "search": ("search_tool_by_category", {"query": ORDERS}, "results"),
}

# Asks one operation; the answer, or the error.
Ask = Callable[[str, dict[str, Any]], dict[str, Any]]


def orders(verbs: set[str]) -> list[dict[str, Any]]:
    return [
        {"name": f"{verb}_order", "description": f"{verb} an order of the shop.", "inputSchema": {"type": "object"}}
        for verb in sorted(verbs)
    ]


class Shop:
    """A served gateway whose one server changes when a test says so."""

    def __init__(self, portal: BlockingPortal, home: Path) -> None:
        self.portal = portal
        self.home = home
        self.upstream = MemoryUpstream("shop", orders(set(VERBS)))
        ontology = home / "ontology.toml"
        ontology.write_text('[[move]]\ntools = ["shop.*"]\nto = ["Orders"]\n', encoding="utf-8")
        self.gateway = Gateway(Settings(home=home, ontology_file=ontology), upstreams=[self.upstream])

    def offer(self, verbs: set[str]) -> None:
        self.upstream.set_tools(orders(verbs))
        self.portal.call(self.gateway.reread, "shop")

    @contextlib.contextmanager
    def mcp(self, profile: str) -> Iterator[Client]:
        with self.portal.wrap_async_context_manager(self._client(profile)) as client:
            yield client

    @contextlib.asynccontextmanager
    async def _client(self, profile: str) -> AsyncIterator[Client]:
        async with (
            open_app(self.gateway, profile) as app,
            on_port(app) as url,
            Client(url, mode=MODES["modern"], cache=None) as client,
        ):
            yield client

    def ask_mcp(self, client: Client, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(text_of(self.portal.call(client.call_tool, name, arguments)))
        return answer

    def ask_http(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self.portal.call(self._post, name, arguments)

    async def _post(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        transport = httpx2.ASGITransport(make_app(self.gateway, HttpGuard(identify=local)))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer: dict[str, Any] = (await client.post(f"/v1/{name}", json=arguments)).json()
            return answer

    def ask_command(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        config = self.home / "toolfold.toml"
        config.touch()
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            run_command(["--config", str(config), "--home", str(self.home), *command_line(name, arguments), "--json"])
        answer: dict[str, Any] = json.loads(printed.getvalue())
        return answer


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with start_blocking_portal() as portal:
        shop = Shop(portal, tmp_path_factory.mktemp("shop"))
        with portal.wrap_async_context_manager(shop.gateway):
            portal.call(shop.gateway.build)
            yield shop


@pytest.fixture(scope="module", params=["mcp", "http", "command line"])
def ask(request: pytest.FixtureRequest, shop: Shop) -> Iterator[Ask]:
    if request.param == "mcp":
        with shop.mcp("discovery") as client:
            yield lambda name, arguments: shop.ask_mcp(client, name, arguments)
    else:
        yield shop.ask_http if request.param == "http" else shop.ask_command


def follow(shop: Shop, ask: Ask, question: str, offers: list[set[str]], limit: int) -> None:
    operation, asked, key = QUESTIONS[question]
    shop.offer(offers[0])
    there = {tool["tool_id"] for tool in ask(operation, {**asked, "limit": 50})[key]}
    assert there
    later = iter(offers[1:])
    seen: set[str] = set()
    cursor = None
    while True:
        page = ask(operation, {**asked, "limit": limit, **({"cursor": cursor} if cursor else {})})
        if "error" in page:
            assert page["error"]["code"] == "BAD_CURSOR"
            assert "without a cursor" in page["error"]["next_action"]
            return
        seen |= {tool["tool_id"] for tool in page[key]}
        cursor = page["next_cursor"]
        if not cursor:
            assert there <= seen
            return
        if (verbs := next(later, None)) is not None:
            shop.offer(verbs)
            there &= {f"shop.{verb}_order" for verb in verbs}


@pytest.mark.parametrize("question", QUESTIONS)
def test_15_02_pages_of_every_face_lose_no_tool(shop: Shop, ask: Ask, question: str) -> None:
    @settings(max_examples=5)
    @given(offers=Offers, limit=st.integers(1, 4))
    def check(offers: list[set[str]], limit: int) -> None:
        follow(shop, ask, question, offers, limit)

    check()


def follow_tools(portal: BlockingPortal, client: Client, change: Iterator[None]) -> set[str]:
    """The names on all pages of `tools/list`; before each but the first the tools may change."""
    seen: set[str] = set()
    cursor = None
    while True:
        page = portal.call(partial(client.list_tools, cursor=cursor))
        seen |= {tool.name for tool in page.tools}
        cursor = page.next_cursor
        if cursor is None:
            return seen
        next(change, None)


@pytest.mark.parametrize("profile", ["direct", "auto"])
def test_15_02_the_tools_of_a_profile_are_all_listed(shop: Shop, profile: str) -> None:
    with shop.mcp(profile) as client:

        @settings(max_examples=5)
        @given(offers=Offers)
        def check(offers: list[set[str]]) -> None:
            for verbs in offers:
                shop.offer(verbs)
                seen = follow_tools(shop.portal, client, iter(()))
                assert {f"shop_{verb}_order" for verb in verbs} <= seen

        check()


@pytest.mark.parametrize("restricted", [False, True])
def test_15_02_pages_of_a_server_passed_through_lose_no_tool(tmp_path: Path, restricted: bool) -> None:
    """Two servers that list two tools at a time, each passed through by an app of its own."""
    files = {name: tmp_path / f"{name}.json" for name in ("shop", "store")}
    for file in files.values():
        file.write_text(json.dumps(orders(set(VERBS))), encoding="utf-8")
    policies = (Policy(name="default", deny=(f"*.{HIDDEN}",)),) if restricted else ()
    specs = tuple(filed_spec(name, file, "2") for name, file in files.items())
    gateway = Gateway(Settings(servers=specs, home=tmp_path / "home", policies=policies))

    @contextlib.asynccontextmanager
    async def client_of(server: str) -> AsyncIterator[Client]:
        async with (
            open_app(gateway, "transparent", server) as app,
            on_port(app) as url,
            Client(url, mode=MODES["modern"], cache=None) as client,
        ):
            yield client

    with contextlib.ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())
        stack.enter_context(portal.wrap_async_context_manager(gateway))
        portal.call(gateway.build)
        clients = {name: stack.enter_context(portal.wrap_async_context_manager(client_of(name))) for name in files}

        @settings(max_examples=5)
        @given(server=st.sampled_from(sorted(files)), offers=Offers)
        def check(server: str, offers: list[set[str]]) -> None:
            there = {f"{verb}_order" for verb in offers[0]}

            def change() -> Iterator[None]:
                for verbs in offers[1:]:
                    files[server].write_text(json.dumps(orders(verbs)), encoding="utf-8")
                    there.intersection_update(f"{verb}_order" for verb in verbs)
                    yield

            files[server].write_text(json.dumps(orders(offers[0])), encoding="utf-8")
            seen = follow_tools(portal, clients[server], change())
            assert there - {HIDDEN} <= seen
            assert (HIDDEN in seen) <= (not restricted)

        check()


def test_15_02_a_cursor_of_another_face_is_as_good(shop: Shop) -> None:
    """A page of one face, the next of another: what a cursor holds is the catalogue's, not the face's."""
    operation, asked, key = QUESTIONS["list"]
    shop.offer(set(VERBS))
    first = shop.ask_http(operation, {**asked, "limit": 7})
    second = shop.ask_command(operation, {**asked, "limit": 7, "cursor": first["next_cursor"]})
    assert len({tool["tool_id"] for tool in [*first[key], *second[key]]}) == len(VERBS)
    assert second["next_cursor"] is None


def test_15_02_what_is_no_cursor_is_refused_by_every_face(shop: Shop, ask: Ask) -> None:
    for operation, asked, _ in QUESTIONS.values():
        assert ask(operation, {**asked, "cursor": "AAAA"})["error"]["code"] == "BAD_CURSOR"
