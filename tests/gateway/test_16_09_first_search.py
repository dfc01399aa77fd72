"""The first search waits for nothing that could be done before: tools are indexed in the build, `serve` loads ahead."""

import argparse
import asyncio
import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from toolfold import Gateway, Settings
from toolfold.errors import ConfigError, StoreError
from toolfold.events import Event
from toolfold.faces.cli import serve
from toolfold.search import service
from toolfold.search.array_file import Floats
from toolfold.search.document import Document
from toolfold.search.encoder import Encoder
from toolfold.search.index import SearchIndex
from toolfold.testing.memory_upstream import MemoryUpstream

pytestmark = pytest.mark.usefixtures("engine")  # on both engines


def shop(count: int = 3) -> MemoryUpstream:
    tools = [{"name": f"tool_{at}", "description": f"Does thing {at}.", "inputSchema": {}} for at in range(count)]
    return MemoryUpstream("shop", tools)


async def test_16_09_a_build_takes_the_tools_into_the_index(tmp_path: Path) -> None:
    synced: list[Event] = []
    async with Gateway(Settings(home=tmp_path), upstreams=[shop()]) as gateway:
        gateway.events.subscribe(lambda event: synced.append(event) if event.name == "search.synced" else None)
        await gateway.build()
        assert [event.data["embedded"] for event in synced] == [3]
        assert await gateway.search.sync() == 0
        await gateway.build()
        assert len(synced) == 1


async def test_16_09_a_build_tells_its_progress_and_can_leave_it_to_the_next_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_SYNC_BATCH", 5)
    seen: list[tuple[int, int]] = []
    async with Gateway(Settings(home=tmp_path), upstreams=[shop(12)]) as gateway:
        await gateway.build(index=False, on_indexed=lambda *done: seen.append(done))
        assert not seen
        assert "search" not in vars(gateway)
        await gateway.build(on_indexed=lambda *done: seen.append(done))
        assert seen == [(0, 12), (5, 12), (10, 12)]


async def test_16_09_all_gateways_of_a_process_share_the_encoder(tmp_path: Path) -> None:
    encoders = []
    for home in ("a", "b"):
        async with Gateway(Settings(home=tmp_path / home), upstreams=[shop()]) as gateway:
            await gateway.build()
            encoders.append((await gateway.search._open())._encoder)
    assert encoders[0] is encoders[1]


def arguments(profile: str) -> argparse.Namespace:
    return argparse.Namespace(profile=profile, server=None, http=None, subset=None)


async def test_16_09_serving_loads_the_encoder_and_takes_tools_in_before_anybody_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "_tune_process", lambda: None)  # it would change this very process
    warmed, synced = asyncio.Event(), asyncio.Event()
    real_warm = service.SearchService.warm

    async def warm(self: service.SearchService) -> None:
        await real_warm(self)
        warmed.set()

    monkeypatch.setattr(service.SearchService, "warm", warm)
    async with Gateway(Settings(home=tmp_path), upstreams=[shop()]) as gateway:
        gateway.events.subscribe(lambda event: synced.set() if event.name == "search.synced" else None)
        async with serve._open_server(gateway, arguments("discovery")):
            await asyncio.wait_for(warmed.wait(), 30)
            await asyncio.wait_for(synced.wait(), 30)
            assert (await gateway.search._open())._encoder._session is not None
            assert await gateway.search.sync() == 0


async def test_16_09_a_profile_without_search_loads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "_tune_process", lambda: None)
    async with (
        Gateway(Settings(home=tmp_path), upstreams=[shop()]) as gateway,
        serve._open_server(gateway, arguments("direct")),
    ):
        await gateway.initial_build.wait()
        await gateway.list()
        assert gateway.search._index is None


async def test_16_09_what_cannot_be_prepared_is_logged_and_serving_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def warm(self: service.SearchService) -> None:
        raise ConfigError("the weights are gone", next_action="install toolfold again")

    monkeypatch.setattr(service.SearchService, "warm", warm)
    async with Gateway(Settings(home=tmp_path), upstreams=[shop()]) as gateway:
        with caplog.at_level(logging.WARNING):
            await serve._prepare_search(gateway, gateway.begin())
    assert "the weights are gone" in caplog.text


class Slow(Encoder):
    """Says when it has begun, and goes on when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.embedded = 0

    def tools(self, texts: Sequence[str]) -> Floats:
        self.begun.set()
        assert self.go_on.wait(30)
        self.embedded += len(texts)
        return super().tools(texts)


def test_16_09_an_index_that_is_stopped_takes_in_no_more() -> None:
    slow = Slow()
    index = SearchIndex.open(None, encoder=slow)
    raised: list[StoreError] = []

    def take_in() -> None:
        try:
            index.sync([Document(tool_id=f"s.t{at}", name=f"t{at}") for at in range(200)])
        except StoreError as error:
            raised.append(error)

    thread = threading.Thread(target=take_in)
    thread.start()
    assert slow.begun.wait(30)
    index.stop()
    slow.go_on.set()
    thread.join(30)
    assert raised
    assert 0 < slow.embedded < 200
    assert len(index) == 0


async def test_16_09_a_gateway_that_closes_breaks_off_what_its_index_does(tmp_path: Path) -> None:
    async with Gateway(Settings(home=tmp_path), upstreams=[shop()]) as gateway:
        await gateway.build()
        store = (await gateway.search._open())._store
        assert not store.stopped.is_set()
    assert store.stopped.is_set()
