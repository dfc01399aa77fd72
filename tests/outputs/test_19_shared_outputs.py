"""Stored outputs that every gateway of one store reads, and nobody but their caller."""

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import obstore
import pytest
from msgspec import Raw
from msgspec.structs import replace
from obstore.store import S3Store
from shared_kit import GatewayProcess, caller, files, gateway_at, store_at, text_of

from toolfold import Gateway
from toolfold.errors import OutputError, ToolfoldError, UnknownHandle
from toolfold.storage.base import Store
from toolfold.testing.store_conformance import sample_tool
from toolfold.types import CallContext, Caller, ToolCall

ANNA = Caller(name="anna", session="one")
CHUNKS = 2  # the part of an output at which its bytes begin


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the store is that all gateways share."""
    return str(tmp_path / "shared.sqlite" if request.param == "sqlite" else request.getfixturevalue("database"))


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of moto's server on loopback."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }.items():
            monkeypatch.setenv(name, value)
        name = f"outputs-{uuid.uuid4()}"  # moto's buckets outlive its server
        urlopen(Request(f"http://{host}:{port}/{name}", method="PUT"), timeout=30).close()
        yield f"s3://{name}/toolfold"
    finally:
        server.stop()


@pytest.fixture(params=["store", "bucket"])
def shared(request: pytest.FixtureRequest) -> str:
    """Where the bytes are kept."""
    return "store" if request.param == "store" else str(request.getfixturevalue("bucket"))


class Gateways(AsyncExitStack):
    """Several on one store, in this process."""

    def __init__(self, address: str, folder: Path, shared: str = "store", **outputs: Any) -> None:
        super().__init__()
        self._address, self._folder, self._outputs = address, folder, {"shared": shared, **outputs}

    async def open(self, name: str, *, store: Store | None = None, **outputs: Any) -> Gateway:
        own = gateway_at(self._address, self._folder / name, store=store, **{**self._outputs, **outputs})
        return await self.enter_async_context(own)


async def left(address: str) -> list[str]:
    """The names of everything that is kept in parts for the callers of these tests."""
    async with store_at(address) as store:
        names: list[str] = []
        for who in (ANNA, caller(1), caller(2)):
            names += await store.parts(shelf_of(who), 0)
        return [*names, *(name for _, name in await store.expired_parts(1000))]


def shelf_of(who: Caller) -> str:
    from toolfold.outputs.shared import _shelf

    return _shelf(who)


def objects(shared: str) -> list[str]:
    """The handles that are in a bucket; `shared` is its address."""
    store = S3Store.from_url(shared, client_options={"allow_http": True})
    return [one["path"].rpartition("/")[2] for one in obstore.list(store).collect()]


async def test_an_output_is_read_at_another_gateway_as_where_it_was_stored(
    address: str, shared: str, tmp_path: Path
) -> None:
    text = text_of(7, 3_500_000)  # several chunks
    async with Gateways(address, tmp_path, shared) as gateways:
        one, two = await gateways.open("one"), await gateways.open("two")
        assert not await two.outputs.has_any(ANNA)
        stored = await one.outputs.store_text(text, tool_id="box.dump", arguments='{"n": 7}', caller=ANNA)
        assert await two.outputs.has_any(ANNA), "the tool that reads outputs is offered there, too"
        assert await two.outputs(ANNA) == [stored]
        fetched: list[Any] = []
        two.events.subscribe(lambda event: fetched.append(event) if event.name == "output.fetched" else None)
        answers = await asyncio.gather(*(two.tool_output(stored.handle, "lines 1-1", caller=ANNA) for _ in range(50)))
        assert set(answers) == {await one.tool_output(stored.handle, "lines 1-1", caller=ANNA)}
        assert len(fetched) == 1, "it is fetched once, however many ask"
        assert (await two.outputs.read(stored.handle, ANNA)) == (stored, text.encode())
        assert files(tmp_path / "two") == files(tmp_path / "one") != []
    assert files(tmp_path / "two") == files(tmp_path / "one") == []


async def test_a_reference_leads_to_what_another_gateway_stored(address: str, shared: str, tmp_path: Path) -> None:
    async with Gateways(address, tmp_path, shared) as gateways:
        one, two = await gateways.open("one"), await gateways.open("two")
        stored = await one.outputs.store_text('{"n": [5, 6]}', tool_id="box.dump", caller=ANNA)
        arguments = b'{"a": {"path": "n[1]", "$output" : "%s"}}' % stored.handle.encode()
        call = ToolCall(tool=sample_tool(), arguments=Raw(arguments))
        for who, works in ((ANNA, True), (replace(ANNA, name="bob"), False), (replace(ANNA, session="two"), False)):
            found = two.outputs.references.check(call, CallContext(caller=who))
            assert found is not None
            if works:
                assert bytes((await found).arguments) == b'{"a":6}'
            else:
                with pytest.raises(UnknownHandle):
                    await found


@pytest.mark.load
async def test_a_hundred_callers_at_three_gateways_read_their_own_and_nobody_elses(
    address: str, shared: str, tmp_path: Path
) -> None:
    count = 100
    async with AsyncExitStack() as stack:
        processes = [
            await stack.enter_async_context(GatewayProcess(address, tmp_path / name, shared=shared))
            for name in ("one", "two", "three")
        ]

        async def work(number: int, questions: list[dict[str, Any]]) -> list[Any]:
            return [await processes[number].ask(**question) for question in questions]

        async def everywhere(questions: list[list[dict[str, Any]]]) -> list[list[Any]]:
            return list(await asyncio.gather(*(work(number, own) for number, own in enumerate(questions))))

        who = [[number for number in range(count) if number % 3 == gateway] for gateway in range(3)]
        made = await everywhere([[{"do": "store", "caller": number} for number in own] for own in who])
        handles = dict(sorted(zip(chain(*who), chain(*made), strict=True)))
        own = [{"do": "read", "caller": number, "handle": handle} for number, handle in handles.items()]
        texts = [text_of(number) for number in range(count)]
        assert await everywhere([own, own[::-1], own]) == [texts, texts[::-1], texts]
        lists = [{"do": "list", "caller": number} for number in range(count)]
        assert await everywhere([lists] * 3) == [[[handle] for handle in handles.values()]] * 3
        # Another's handle, and one's own in another session, are as unknown as one that never was, at each of them.
        foreign = [{**question, "caller": (question["caller"] + 1) % count} for question in own]
        elsewhere = [{**question, "session": "s2"} for question in own]
        never = [{**question, "handle": str(uuid.uuid4())} for question in foreign]
        asked = [*foreign, *elsewhere, *never]
        for answers in await everywhere([asked] * 3):
            for question, answer in zip(asked, answers, strict=True):
                error = answer["error"]
                assert error["code"] == "UNKNOWN_HANDLE", error
                if question.get("session") is None:
                    assert "it never was, or is long gone" in error["message"]
                    assert "tool" not in error
                    assert set(error.get("hints", ())) <= {handles[question["caller"]]}


async def test_an_ended_session_is_over_at_every_gateway(address: str, shared: str, tmp_path: Path) -> None:
    async with Gateways(address, tmp_path, shared) as gateways:
        one, two, three = [await gateways.open(name) for name in ("one", "two", "three")]
        stored = await one.outputs.store_text(text_of(1), tool_id="box.dump", caller=ANNA)
        kept = await one.outputs.store_text(text_of(2), tool_id="box.dump", caller=caller(2))
        await two.outputs.file(stored.handle, ANNA)
        await three.end_session(ANNA)  # it had nothing of the session itself
        assert await left(address) == [kept.handle]
        if shared != "store":
            assert objects(shared) == [kept.handle]
        for gateway in (one, two, three):
            assert await gateway.outputs(ANNA) == []
            with pytest.raises(UnknownHandle, match=r"removed when its session ended|it never was") as caught:
                await gateway.tool_output(stored.handle, "lines 1-1", caller=ANNA)
            assert caught.value.next_action
        assert files(tmp_path / "two") == []
        assert kept.handle in files(tmp_path / "one")


async def test_copies_of_an_ended_session_go_without_anybody_asking(address: str, shared: str, tmp_path: Path) -> None:
    async with Gateways(address, tmp_path, shared) as gateways:
        one, two = await gateways.open("one"), await gateways.open("two")
        stored = await one.outputs.store_text(text_of(1), tool_id="box.dump", caller=ANNA)
        await two.outputs.file(stored.handle, ANNA)
        told: list[tuple[str, bool]] = []
        two.outputs.on_changed(lambda who, holds: told.append((who.name, holds)))
        await two.outputs(ANNA)
        await one.end_session(ANNA)
        await two.outputs.purge()  # the cleaner's next round
        assert files(tmp_path / "two") == []
        assert told == [("anna", False)], "who listens there hears of it"


async def test_a_killed_gateway_leaves_whole_outputs_readable_and_nothing_for_ever(
    address: str, shared: str, tmp_path: Path
) -> None:
    async with Gateways(address, tmp_path, shared) as gateways:
        async with GatewayProcess(address, tmp_path / "killed", shared=shared) as killed:
            handle = await killed.ask(do="store", caller=1)
            await killed.kill()
        async with GatewayProcess(address, tmp_path / "half", shared=shared, lifetime_s=3.0) as killed:
            killed.send(do="store", caller=2, size=30_000_000)
            async with store_at(address) as store, asyncio.timeout(60):
                while not await store.parts(shelf_of(caller(2)), CHUNKS if shared == "store" else 0):
                    pass  # it is being written then
            await killed.kill()
        other = await gateways.open("other")
        assert await other.outputs(caller(2)) == [], "what is half there is not listed"
        assert (await other.outputs.file(handle, caller(1))).read_text() == text_of(1)
        async with asyncio.timeout(60):
            while await left(address) != [handle]:
                await other.outputs.purge()  # what the cleaner does from time to time
        if shared != "store":
            assert objects(shared) == [handle]


async def test_a_gateway_that_stops_takes_nothing_from_the_others(address: str, shared: str, tmp_path: Path) -> None:
    async with Gateways(address, tmp_path, shared) as gateways:
        two = await gateways.open("two")
        async with gateway_at(address, tmp_path / "one", shared=shared) as one:
            stored = await one.outputs.store_text(text_of(1), tool_id="box.dump", caller=ANNA)
        assert files(tmp_path / "one") == []
        assert (await two.outputs.file(stored.handle, ANNA)).read_text() == text_of(1)
        async with gateway_at(address, tmp_path / "one", shared=shared) as again:
            assert (await again.outputs.file(stored.handle, ANNA)).read_text() == text_of(1)


async def test_one_that_is_too_large_to_share_says_where_it_is_and_what_to_do(
    address: str, shared: str, tmp_path: Path
) -> None:
    async with Gateways(address, tmp_path, shared, shared_max_bytes=10_000) as gateways:
        one, two = await gateways.open("one"), await gateways.open("two")
        stored = await one.outputs.store_text(text_of(1), tool_id="box.dump", caller=ANNA)
        assert (await one.outputs.file(stored.handle, ANNA)).read_text() == text_of(1)
        assert await two.outputs(ANNA) == [stored], "lists are complete all the same"
        with pytest.raises(UnknownHandle, match="with the one gateway that stored it") as caught:
            await two.outputs.file(stored.handle, ANNA)
        assert "outputs.shared_max_bytes" in caught.value.next_action
        assert "call box.dump again" in caught.value.next_action
        with pytest.raises(UnknownHandle, match="it never was"):
            await two.outputs.file(stored.handle, replace(ANNA, name="bob"))
        await two.end_session(ANNA)
        with pytest.raises(UnknownHandle, match="removed when its session ended"):
            await one.outputs.file(stored.handle, ANNA)


async def test_what_was_tampered_with_is_not_taken_for_the_output(address: str, tmp_path: Path) -> None:
    async with Gateways(address, tmp_path) as gateways, store_at(address) as store:
        one, two = await gateways.open("one"), await gateways.open("two")
        for change in (b"x" * len(text_of(1)), text_of(1).encode() * 2, b"short"):
            stored = await one.outputs.store_text(text_of(1), tool_id="box.dump", caller=ANNA)
            await store.put_part(shelf_of(ANNA), stored.handle, CHUNKS, change, for_s=60)
            with pytest.raises(OutputError, match="damaged where gateways share it") as caught:
                await two.outputs.file(stored.handle, ANNA)
            assert "call box.dump again" in caught.value.next_action
            assert files(tmp_path / "two") == [], "nothing of it is left"
        # An entry that lies on another's shelf opens as nobody's.
        entry = (await store.parts(shelf_of(ANNA), 1, stored.handle))[stored.handle]
        bob = Caller(name="bob", session="one")
        for part in (0, 1):
            await store.put_part(shelf_of(bob), stored.handle, part, entry, for_s=60)
        assert await two.outputs(bob) == []
        with pytest.raises(UnknownHandle):
            await two.outputs.file(stored.handle, bob)


async def test_without_the_store_what_is_here_is_read_and_the_rest_says_what_to_do(
    address: str, tmp_path: Path
) -> None:
    async with Gateways(address, tmp_path) as gateways:
        stores = [store_at(address) for _ in range(2)]
        one, two = [await gateways.open(name, store=own) for name, own in zip(("one", "two"), stores, strict=True)]
        stored = await one.outputs.store_text(text_of(1), tool_id="box.dump", caller=ANNA)
        for store in stores:
            await store.aclose()
        assert (await one.outputs.file(stored.handle, ANNA)).read_text() == text_of(1)
        with pytest.raises(OutputError, match="is not at this gateway, and the store") as caught:
            await two.outputs.file(stored.handle, ANNA)
        assert caught.value.next_action
        assert await one.outputs.has_any(ANNA)
        assert not await two.outputs.has_any(ANNA)
        # A call whose result cannot be shared has succeeded all the same.
        unshared: list[str] = []
        one.events.subscribe(lambda event: unshared.append(event.name))
        later = await one.outputs.store_text(text_of(2), tool_id="box.dump", caller=ANNA)
        assert "output.unshared" in unshared
        assert (await one.outputs.file(later.handle, ANNA)).read_text() == text_of(2)
        await one.end_session(ANNA)
        assert files(tmp_path / "one") == []


async def test_a_bucket_that_fails_is_said_clearly(bucket: str, address: str, tmp_path: Path) -> None:
    async with Gateways(address, tmp_path, bucket) as gateways:
        one, two = await gateways.open("one"), await gateways.open("two", shared="s3://missing/toolfold")
        stored = await one.outputs.store_text(text_of(1), tool_id="box.dump", caller=ANNA)
        with pytest.raises(OutputError, match=r"s3://missing/toolfold does not work: NoSuchBucket") as caught:
            await two.outputs.file(stored.handle, ANNA)
        assert caught.value.next_action
        told: list[Any] = []
        two.events.subscribe(lambda event: told.append(event) if event.name == "output.unshared" else None)
        own = await two.outputs.store_text(text_of(2), tool_id="box.dump", caller=ANNA)
        assert (await two.outputs.file(own.handle, ANNA)).read_text() == text_of(2)
        assert len(told) == 1
        assert "s3://missing/toolfold" in told[0].data["error"]


async def test_a_cancelled_call_leaves_nothing_anywhere(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, reached = store_at(address), asyncio.Event()
    put = store.put_part

    async def put_part(shelf: str, name: str, part: int, value: bytes, *, for_s: float) -> bool:
        if part > CHUNKS:
            reached.set()
            await asyncio.Event().wait()  # the store is slow: the call is cancelled in the middle
        return await put(shelf, name, part, value, for_s=for_s)

    monkeypatch.setattr(store, "put_part", put_part)
    async with Gateways(address, tmp_path) as gateways:
        one = await gateways.open("one", store=store)
        begun = asyncio.create_task(one.outputs.store_text(text_of(3, 2_500_000), tool_id="box.dump", caller=ANNA))
        await asyncio.wait_for(reached.wait(), 60)
        begun.cancel()
        with pytest.raises(asyncio.CancelledError):
            await begun
        assert await one.outputs(ANNA) == []
        assert files(tmp_path / "one") == []
    assert await left(address) == []


async def test_nothing_is_shared_unless_it_is_asked_for(address: str, tmp_path: Path) -> None:
    async with Gateways(address, tmp_path, "auto") as gateways:
        one, two = await gateways.open("one"), await gateways.open("two")
        stored = await one.outputs.store_text(text_of(1), tool_id="box.dump", caller=ANNA)
        assert await left(address) == []
        assert await two.outputs(ANNA) == []
        with pytest.raises(ToolfoldError, match="it never was"):
            await two.outputs.file(stored.handle, ANNA)
