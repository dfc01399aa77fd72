"""One server passed through: what it declares, what is subscribed to, and what a restart brings back."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from pool_kit import TOOL, pool_of, run

from toolfold.errors import RemoteError
from toolfold.events import Events
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import Era, ServerInfo
from toolfold.upstream.base import PassthroughRequest
from toolfold.upstream.leaves import watched_lists
from toolfold.upstream.passthrough import Passthrough
from toolfold.wire.types import PROMPTS_CHANGED


class McpServer:
    """The MCP side of an upstream, which notes what it is asked."""

    def __init__(self, era: Era, capabilities: bytes = b"{}") -> None:
        self.info = ServerInfo(name="notes", era=era)
        self.capabilities = Raw(capabilities)
        self.log: list[tuple[str, Any]] = []
        self.watched = asyncio.Event()

    async def request(self, request: PassthroughRequest, **_: Any) -> Raw:
        self.log.append((request.method, msgspec.json.decode(request.params) if request.params else None))
        return Raw(b'{"answer":1}')

    async def notify(self, method: str, params: Raw) -> None:
        self.log.append((method, msgspec.json.decode(params)))

    def subscribe(self, notifications: bytes, changed: tuple[str, ...]) -> Callable[[], None]:
        wanted = msgspec.json.decode(notifications)
        self.log.append(("subscribe", (wanted, changed)))
        if "resourceSubscriptions" in wanted:
            self.watched.set()
        return lambda: self.log.append(("end", wanted))


class OnePool:
    """A pool of one server whose MCP side can be exchanged, as a restart does."""

    def __init__(self, server: McpServer) -> None:
        self.passthrough = server
        self.listeners: list[Callable[[str, str, Raw], None]] = []

    async def ensure(self, name: str) -> "OnePool":
        return self

    def listen(self, listener: Callable[[str, str, Raw], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def keep_alive(self, name: str) -> None:
        self.kept_alive = name

    def use(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()


class Scene:
    def __init__(self, server: McpServer) -> None:
        self.pool = OnePool(server)
        self.events = Events()
        self.heard: list[tuple[str, bytes]] = []
        self.passthrough = Passthrough("notes", self._get_pool, self.events, self._hear)

    async def _get_pool(self) -> Any:
        return self.pool

    def _hear(self, method: str, params: Raw) -> None:
        self.heard.append((method, bytes(params)))


def passed(server: McpServer, steps: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        scene = Scene(server)
        await scene.passthrough.open()
        await steps(scene)
        await scene.passthrough.aclose()

    run(main)


def test_a_server_without_mcp_has_its_tools_and_nothing_else() -> None:
    async def main() -> None:
        async with pool_of(MemoryUpstream("shop", [TOOL])) as pool:

            async def get() -> Any:
                return pool

            shop = Passthrough("shop", get, Events(), lambda method, params: None)
            await shop.open()
            assert await shop.about() == (ServerInfo(name="shop"), {"tools": {"listChanged": True}})
            (tool,) = msgspec.json.decode(await shop.request("tools/list"))["tools"]
            assert tool["name"] == "look"
            with pytest.raises(RemoteError, match="shop has tools and no prompts/list") as caught:
                await shop.request("prompts/list")
            assert caught.value.rpc_code == -32601
            await shop.notify("notifications/roots/list_changed", Raw(b"{}"))
            await shop.watch("file:///a")
            await shop.unwatch("file:///a")
            assert not shop.is_modern
            await shop.aclose()

    run(main)


def test_what_a_server_declares_is_passed_on() -> None:
    async def steps(scene: Scene) -> None:
        info, capabilities = await scene.passthrough.about()
        assert info.name == "notes"
        assert capabilities == {"tools": {}, "prompts": {"listChanged": True}, "tasks": {}}
        assert await scene.passthrough.request("prompts/get", Raw(b'{"name":"p"}')) == Raw(b'{"answer":1}')

    server = McpServer("modern", b'{"tools":{},"tasks":{},"prompts":{"listChanged":true}}')
    passed(server, steps)
    assert server.log == [("prompts/get", {"name": "p"})]  # whoever opened it has subscribed to its lists


@pytest.mark.parametrize("declared", [b"[1]", b"not json", b'{"prompts":true,"resources":{"listChanged":false}}'])
def test_capabilities_that_declare_no_lists_are_not_subscribed_to(declared: bytes) -> None:
    assert watched_lists(Raw(declared)) == {}
    assert watched_lists(Raw(b'{"prompts":{"listChanged":true}}')) == {"prompts": PROMPTS_CHANGED}


@pytest.mark.parametrize(("era", "reaches"), [("legacy", True), ("modern", False)])
def test_a_client_s_notification_reaches_only_a_server_with_a_session(era: Era, reaches: bool) -> None:
    async def steps(scene: Scene) -> None:
        await scene.passthrough.notify("notifications/x", Raw(b"{}"))
        assert scene.passthrough.is_modern is not reaches

    server = McpServer(era)
    passed(server, steps)
    assert server.log == ([("notifications/x", {})] if reaches else [])


def test_a_legacy_server_is_asked_once_for_a_resource_that_two_watch() -> None:
    async def steps(scene: Scene) -> None:
        for _ in range(2):
            await scene.passthrough.watch("a")
        await scene.passthrough.unwatch("a")
        assert server.log == [("resources/subscribe", {"uri": "a"})]
        await scene.passthrough.unwatch("a")

    server = McpServer("legacy")
    passed(server, steps)
    assert server.log[1:] == [("resources/unsubscribe", {"uri": "a"})]


def test_a_modern_server_gets_the_new_subscription_before_the_old_one_ends() -> None:
    async def steps(scene: Scene) -> None:
        await scene.passthrough.watch("b")
        await scene.passthrough.watch("a")
        await scene.passthrough.unwatch("b")

    server = McpServer("modern")
    passed(server, steps)
    both, b, a = ({"resourceSubscriptions": uris} for uris in (["a", "b"], ["b"], ["a"]))
    assert server.log == [
        ("subscribe", (b, ())),
        ("subscribe", (both, ())),
        ("end", b),
        ("subscribe", (a, ())),
        ("end", both),
        ("end", a),  # when it is closed
    ]


def test_the_last_resource_unwatched_ends_the_subscription() -> None:
    async def steps(scene: Scene) -> None:
        await scene.passthrough.watch("a")
        await scene.passthrough.unwatch("a")
        assert server.log[-1] == ("end", {"resourceSubscriptions": ["a"]})

    server = McpServer("modern")
    passed(server, steps)
    assert len(server.log) == 2


def test_a_restarted_server_is_subscribed_to_again_and_another_s_restart_changes_nothing() -> None:
    fresh = McpServer("modern", b'{"resources":{"listChanged":true}}')

    async def steps(scene: Scene) -> None:
        await scene.passthrough.watch("a")
        scene.pool.passthrough = fresh
        scene.events.emit("upstream.restarted", server="other")
        await asyncio.sleep(0)
        assert fresh.log == []
        scene.events.emit("upstream.restarted", server="notes")
        async with asyncio.timeout(10):
            await fresh.watched.wait()

    old = McpServer("modern")
    passed(old, steps)
    wanted = {"resourceSubscriptions": ["a"]}
    assert fresh.log == [
        ("subscribe", (wanted, ())),
        ("end", wanted),
    ]
    assert old.log == [("subscribe", (wanted, ()))]


def test_only_the_server_s_own_notifications_are_heard_and_none_after_it_is_closed() -> None:
    scenes: list[Scene] = []

    async def steps(scene: Scene) -> None:
        scenes.append(scene)
        (listener,) = scene.pool.listeners
        listener("other", "notifications/x", Raw(b"{}"))
        listener("notes", "notifications/y", Raw(b"{}"))
        assert scene.heard == [("notifications/y", b"{}")]

    passed(McpServer("legacy"), steps)
    assert scenes[0].pool.listeners == []
    assert not scenes[0].events.has_listeners("upstream.restarted")
