"""The store when things go wrong around it: no open files left, folders taken away, calls that end in the midst."""

import asyncio
import base64
import logging
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from output_scene import Scene, run, text_result

from toolfold.errors import OutputError, UnknownHandle
from toolfold.outputs import service
from toolfold.outputs.json_scan import BytesSource
from toolfold.outputs.split import Origin, ResultLimits, ResultSplitter
from toolfold.outputs.store import Draft, OutputStore
from toolfold.outputs.token_counter import Counts
from toolfold.types import LOCAL, Caller, Stored

ANNA = Caller(name="anna", session="one")
LIMITS = ResultLimits(max_bytes=100, max_tokens=100, media_bytes=10, held_bytes=1 << 20)


def put(store: OutputStore, caller: Caller = LOCAL, arguments: str = "{}") -> Stored:
    draft = store.draft(caller)
    draft.write(b"hello\n")
    return draft.finish(Counts(6, 1, 2), tool_id="s.t", arguments=arguments, media_type="text/plain")


@contextmanager
def no_open_files_left() -> Iterator[None]:
    """One file, for the folder that is listed, may still be opened; a record in it may not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = os.open("/", os.O_RDONLY)
    os.close(spare)
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def folder_of(store: OutputStore, stored: Stored, caller: Caller = LOCAL) -> Path:
    return store.find(stored.handle, caller)[1].parent


def test_an_output_whose_record_cannot_be_read_just_now_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = OutputStore(tmp_path)
    stored = put(store)
    from toolfold.outputs import store as module

    # Listing a folder takes an open file, too: it is listed before they run out.
    listed = module._list_files(folder_of(store, stored))
    with monkeypatch.context() as patched:
        patched.setattr(module, "_list_files", lambda _: listed)
        with no_open_files_left():
            module._remove_expired(listed[0].parent, 0.0)
            with pytest.raises(OutputError, match="cannot be read"):
                store.find(stored.handle, LOCAL)
    assert store.all(LOCAL) == [stored]
    store.close()


def test_arguments_of_any_size_leave_a_record_that_can_be_read(tmp_path: Path) -> None:
    store = OutputStore(tmp_path)
    stored = put(store, arguments='{"text": "' + "x" * (80 << 20) + '"}')
    assert len(stored.arguments) < 100
    assert store.find(stored.handle, LOCAL)[0] == stored
    assert store.all(LOCAL) == [stored]
    store.close()


def test_a_folder_that_somebody_took_away_holds_nothing_and_is_made_anew(tmp_path: Path) -> None:
    import shutil

    store = OutputStore(tmp_path)
    stored = put(store, ANNA)
    before = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    for _ in range(5):
        shutil.rmtree(folder_of(store, stored, ANNA))
        assert store.all(ANNA) == []
        with pytest.raises(UnknownHandle):
            store.find(stored.handle, ANNA)
        stored = put(store, ANNA)
        assert store.all(ANNA) == [stored]
    if before:
        assert len(list(Path("/proc/self/fd").iterdir())) == before
    shutil.rmtree(folder_of(store, stored, ANNA))
    store.purge()
    assert not store.may_hold(ANNA)
    store.close()


def test_clearing_goes_on_after_a_round_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        monkeypatch.setattr(service, "PURGE_INTERVAL_S", 0.001)
        caplog.set_level(logging.WARNING, "toolfold.outputs")
        third, rounds = asyncio.Event(), 0
        loop = asyncio.get_running_loop()

        def purge() -> None:
            nonlocal rounds
            rounds += 1
            if rounds == 3:
                loop.call_soon_threadsafe(third.set)
            raise (OSError(24, "Too many open files") if rounds == 1 else OutputError("closed"))

        async with Scene(tmp_path) as scene:
            monkeypatch.setattr(scene.gateway.outputs.store, "purge", purge)
            await third.wait()
        assert "Too many open files" in caplog.text

    run(main())


def result_of_two_parts() -> dict[str, Any]:
    picture = base64.b64encode(bytes(range(256)) * 50).decode()
    return text_result("word " * 500, structuredContent={"a": picture, "b": 1}) | {
        "content": [
            {"type": "text", "text": "word " * 500},
            {"type": "image", "data": picture, "mimeType": "image/png"},
        ]
    }


@pytest.mark.requirement("O-02")
def test_a_result_whose_last_part_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from output_scene import encoded

    finished: list[Stored] = []

    def finish(draft: Draft, *args: Any, **options: Any) -> Stored:
        if len(finished) == 2:
            raise OutputError("no more")
        finished.append(own(draft, *args, **options))
        return finished[-1]

    own = Draft.finish
    monkeypatch.setattr(Draft, "finish", finish)
    store = OutputStore(tmp_path)
    splitter = ResultSplitter(
        BytesSource(encoded(result_of_two_parts())), store, Origin(LOCAL, "s.t", "{}"), check_cancelled=lambda: None
    )
    with pytest.raises(OutputError, match="no more"):
        splitter.split(LIMITS, enveloped=False)
    assert len(finished) == 2
    assert store.all(LOCAL) == []
    assert [file.name for file in next(tmp_path.glob("ai-agent-*")).iterdir()] == [".toolfold"]
    store.close()


@pytest.mark.requirement("O-02")
@pytest.mark.parametrize("text", [True, False])
def test_what_is_cancelled_after_its_last_part_was_stored_leaves_nothing(tmp_path: Path, text: bool) -> None:
    from output_scene import encoded

    store = OutputStore(tmp_path)
    data = b"word " * 500 if text else encoded(result_of_two_parts())

    def check_cancelled() -> None:
        if len(store.all(LOCAL)) == (1 if text else 3):
            raise OutputError("cancelled")

    splitter = ResultSplitter(BytesSource(data), store, Origin(LOCAL, "s.t", "{}"), check_cancelled)
    with pytest.raises(OutputError, match="cancelled"):
        splitter.store_text(len(data)) if text else splitter.split(LIMITS, enveloped=False)
    assert store.all(LOCAL) == []
    store.close()


def test_a_text_that_is_cancelled_while_it_is_stored_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        begun, go_on, ended = asyncio.Event(), threading.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def write(draft: Draft, piece: bytes) -> None:
            loop.call_soon_threadsafe(begun.set)
            go_on.wait(60)
            own_write(draft, piece)

        def discard(draft: Draft) -> None:
            own_discard(draft)
            loop.call_soon_threadsafe(ended.set)

        own_write, own_discard = Draft.write, Draft.discard
        monkeypatch.setattr(Draft, "write", write)
        monkeypatch.setattr(Draft, "discard", discard)
        async with Scene(tmp_path) as scene:
            task = asyncio.create_task(scene.gateway.outputs.store_text("word " * 100_000, tool_id="script"))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go_on.set()
            await ended.wait()
            assert await scene.gateway.outputs() == []

    run(main())


def test_a_text_that_cannot_be_stored_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as scene:
            scene.base.write_text("a file where the folder should be")
            with pytest.raises(OutputError):
                await scene.gateway.outputs.store_text("word " * 1000, tool_id="script")
            assert "output.failed" in scene.names()

    run(main())


@pytest.mark.requirement("O-01")
def test_a_text_made_here_obeys_the_limits_of_its_name(tmp_path: Path) -> None:
    from toolfold.config import MetadataRule

    async def main() -> None:
        rules = (MetadataRule("run_script", max_bytes=50),)
        async with Scene(tmp_path, rules=rules, tool_response_max_bytes=1000) as scene:
            outputs = scene.gateway.outputs
            assert await outputs.fit_text("x" * 50, tool_id="run_script") == "x" * 50
            assert "Tool output is too large (51 bytes" in await outputs.fit_text("x" * 51, tool_id="run_script")
            assert await outputs.fit_text("x" * 1000, tool_id="expand_tool") == "x" * 1000
            assert "too large" in await outputs.fit_text("x" * 1001, tool_id="expand_tool")

    run(main())


def test_what_extraction_remembers_goes_with_the_session(tmp_path: Path) -> None:
    from toolfold.outputs.extraction import INDEXES

    async def main() -> None:
        async with Scene(tmp_path) as scene:
            outcome = await scene.give(text_result("the code is alpha\n" * 2000), ANNA)
            assert outcome.stored is not None
            await scene.gateway.tool_output(outcome.stored.handle, "what is the code", caller=ANNA)
            file = scene.gateway.outputs.store.find(outcome.stored.handle, ANNA)[1]
            with INDEXES.of(file) as known:
                pass
            facts = file.stat()
            data = file.read_bytes()
            await scene.gateway.outputs.end(ANNA)
            file.parent.mkdir(parents=True)
            file.write_bytes(data)
            os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
            with INDEXES.of(file) as found:
                assert found is not known

    run(main())
