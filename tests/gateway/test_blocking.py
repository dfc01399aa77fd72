"""The blocking form: the gateway's own methods, from any thread, and nothing left behind."""

import asyncio
import inspect
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from toolfold import BlockingGateway, Gateway, Settings
from toolfold.demo.data import make_demo_data
from toolfold.errors import NotBuilt, StoreError, ToolNotFound
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import ServerSpec


def find_order(order_id: int) -> dict[str, str]:
    """Finds an order of the shop by its number."""
    return {"order": str(order_id)}


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


@pytest.mark.requirement("G-02")
def test_every_method_of_the_gateway_is_there_with_its_own_signature() -> None:
    methods = {
        name: method
        for name, method in inspect.getmembers(Gateway)
        if inspect.iscoroutinefunction(method) and not name.startswith("_") and name != "aclose"
    }
    assert {"list", "search_nodes", "search_tool_by_category", "expand_tool", "call_tool"} <= set(methods)
    gateway: Any = BlockingGateway(Settings())
    for name, method in methods.items():
        made = getattr(gateway, name)
        assert not inspect.iscoroutinefunction(made)
        assert list(inspect.signature(made).parameters) == list(inspect.signature(method).parameters)[1:]
        assert made.__doc__ == method.__doc__
    made_with = inspect.signature(BlockingGateway).parameters
    assert set(inspect.signature(Gateway).parameters) == set(made_with) - {"gateway"}


def test_it_takes_what_the_gateway_takes_and_nothing_else(tmp_path: Path) -> None:
    server = MemoryUpstream("shop", [{"name": "buy", "inputSchema": {"type": "object"}}])
    with BlockingGateway(Settings(home=tmp_path), upstreams=[server], keep_outputs=True) as gateway:
        assert gateway.build().report.tools == 1
    with pytest.raises(TypeError, match="no_such_option"):
        BlockingGateway(Settings(home=tmp_path), no_such_option=1)


@pytest.mark.requirement("G-02")
def test_a_program_without_async_builds_finds_expands_and_calls_over_a_real_server(tmp_path: Path) -> None:
    data = make_demo_data(tmp_path / "data")
    spec = ServerSpec(
        name="git",
        transport="stdio",
        command=sys.executable,
        args=("-P", "-m", "toolfold.demo.git", str(data.repository)),
    )
    with BlockingGateway(Settings(home=tmp_path / "home", servers=(spec,))) as gateway:
        assert gateway.build().report.tools > 5
        found = gateway.search_tool_by_category("who changed this line")
        assert found["results"][0]["tool_id"] == "git.blame"
        assert "limit" in msgspec.json.decode(gateway.expand_tool("git.log")["args_schema"])["properties"]
        outcome = gateway.call_tool("git.log", {"limit": 1})
        assert not outcome.is_error
        with pytest.raises(ToolNotFound):
            gateway.expand_tool("git.nothing")
    assert "toolfold" not in threads()


@pytest.mark.requirement("G-02")
def test_many_threads_ask_at_once_and_each_gets_its_own_answer(tmp_path: Path) -> None:
    with Gateway(Settings(home=tmp_path), upstreams=[MemoryUpstream("shop", [find_order])]).blocking() as gateway:
        gateway.build()

        def ask(number: int) -> bool:
            result = msgspec.json.decode(gateway.call_tool("shop.find_order", {"order_id": number}).result)
            return bool(str(number) in result["content"][0]["text"])

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(ask, range(200)))


def test_what_is_no_coroutine_is_read_in_the_loops_own_thread(tmp_path: Path) -> None:
    with BlockingGateway(Settings(home=tmp_path)) as opened:
        gateway: Any = opened
        assert gateway.settings.home == tmp_path
        assert opened.run(gateway.outputs.has_any()) is False, "it starts a task when it is first asked for"
        assert not hasattr(gateway, "no_such_thing")


def test_it_closes_twice_and_then_says_that_it_is_closed(tmp_path: Path) -> None:
    gateway = BlockingGateway(Settings(home=tmp_path))
    with pytest.raises(StoreError, match="not open"):
        gateway.list()
    with gateway:
        with pytest.raises(NotBuilt):
            gateway.list()
        with pytest.raises(StoreError, match="open already"):
            gateway.__enter__()
    gateway.close()
    with pytest.raises(StoreError, match="not open"):
        gateway.list()


def test_what_fails_while_it_opens_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError), BlockingGateway(Settings(home=tmp_path / "file" / "home")):
        pass
    assert "toolfold" not in threads()


def test_a_call_from_the_loops_own_thread_is_refused_instead_of_hanging(tmp_path: Path) -> None:
    with BlockingGateway(Settings(home=tmp_path)) as gateway:

        async def inside() -> None:
            gateway.list()

        with pytest.raises(StoreError, match="wait for itself"):
            gateway.run(inside())


def test_an_interrupted_wait_cancels_the_work(tmp_path: Path) -> None:
    cancelled = threading.Event()
    waiting = threading.main_thread().ident
    assert waiting is not None
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it

    async def forever() -> None:
        try:
            signal.pthread_kill(waiting, signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with BlockingGateway(Settings(home=tmp_path)) as gateway:
        with pytest.raises(KeyboardInterrupt):
            gateway.run(forever())
        signal.signal(signal.SIGINT, before)
        assert cancelled.wait(30)
        with pytest.raises(NotBuilt):
            gateway.list()
