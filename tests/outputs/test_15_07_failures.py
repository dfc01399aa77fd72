"""What goes wrong with `tool_output` is told in the form of its answers, and each kind of missing handle as it is."""

import asyncio
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from output_scene import Scene, run, text_result
from test_store import put

from toolfold.errors import UnknownHandle
from toolfold.faces.surface.direct import DirectSurface
from toolfold.faces.surface.discovery import DiscoverySurface
from toolfold.outputs.store import OutputStore
from toolfold.types import LOCAL, CallContext, Caller

NEVER = "00000000-0000-4000-8000-000000000000"
ANNA, ANNA_LATER = Caller(name="anna", session="one"), Caller(name="anna", session="two")


async def asked(surface: Any, name: str, arguments: Any, caller: Caller = LOCAL) -> tuple[bool, str]:
    """Whether it failed, and what the model reads."""
    raw = await surface.call(name, Raw(json.dumps(arguments).encode()), CallContext(caller=caller))
    result = json.loads(bytes(raw))
    (block,) = result["content"]
    return result.get("isError", False), block["text"]


@pytest.mark.requirement("O-05")
@pytest.mark.parametrize("profile", [DiscoverySurface, DirectSurface])
def test_15_07_failures_of_tool_output_are_plain_text_with_the_header(tmp_path: Path, profile: Any) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as scene:
            surface = profile(scene.gateway)
            handle = (await scene.give(text_result("word\n" * 5000))).stored.handle  # type: ignore[union-attr]  # it is large
            for arguments, header, said in (
                ({"handle": NEVER, "extract": "x"}, f"unknown WITH HANDLE {NEVER}, STRATEGY:auto:", "no stored output"),
                ({"handle": handle}, f"unknown WITH HANDLE {handle}, STRATEGY:auto:", "extract: is required"),
                ({"handle": handle, "extract": "x", "mode": "no"}, f"WITH HANDLE {handle}, STRATEGY:auto:", "mode"),
                ({"handle": "x", "extract": ""}, "WITH HANDLE x, STRATEGY:auto:", "extract: "),
                ({"handle": "x", "extract": "y", "other": 1}, "WITH HANDLE x, STRATEGY:auto:", "unknown: other"),
                ({"extract": "x", "mode": "truncate"}, "WITH HANDLE (none), STRATEGY:truncate:", "handle"),
                ({"handle": "a\nb" * 99, "extract": "x"}, "WITH HANDLE a ba ba b", "no stored output"),
            ):
                failed, text = await asked(surface, "tool_output", arguments)
                first, blank, problem, *rest = text.split("\n")
                assert failed
                assert first.startswith("TOOL_OUTPUT FAILED FOR ")
                assert header in first
                assert blank == ""
                assert said in problem
                assert rest[-1].startswith("Next: ")

    run(main())


@pytest.mark.parametrize("pattern", ["/(?=x)y/", "/(unclosed/"])
def test_15_07_a_pattern_that_cannot_be_used_is_a_failure_that_says_why(tmp_path: Path, pattern: str) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as scene:
            surface = DiscoverySurface(scene.gateway)
            handle = (await scene.give(text_result("word\n" * 5000))).stored.handle  # type: ignore[union-attr]  # it is large
            failed, text = await asked(surface, "tool_output", {"handle": handle, "extract": pattern})
            assert failed
            assert text.startswith(f"TOOL_OUTPUT FAILED FOR s.give WITH HANDLE {handle}, STRATEGY:read-grep:\n\n")
            assert "regular expression" in text
            assert "word\nword" not in text

    run(main())


@pytest.mark.requirement("O-02")
def test_15_07_each_kind_of_missing_handle_is_told_as_it_is(tmp_path: Path) -> None:
    store = OutputStore(tmp_path)
    lost, ended, elsewhere, foreign = (
        put(store),
        put(store, ANNA),
        put(store, ANNA_LATER),
        put(store, Caller(name="bob", session="b")),
    )
    store.find(lost.handle, LOCAL)[1].unlink()
    store.end(ANNA)

    def said(handle: str, caller: Caller) -> str:
        with pytest.raises(UnknownHandle) as caught:
            store.find(handle, caller)
        assert caught.value.next_action
        return caught.value.message.replace(handle, "HANDLE")

    assert "is lost" in said(lost.handle, LOCAL)
    assert "was removed when its session ended" in said(ended.handle, ANNA)
    assert "was removed when its session ended" in said(ended.handle, ANNA_LATER)
    assert "belongs to another session of yours" in said(elsewhere.handle, ANNA)
    assert said(foreign.handle, LOCAL) == said(NEVER, LOCAL)
    assert said(NEVER, LOCAL).startswith("there is no stored output 'HANDLE' in this session")
    store.close()


def test_15_07_an_expired_handle_says_so_with_its_own_lifetime_also_once_it_is_cleared_away(tmp_path: Path) -> None:
    store = OutputStore(tmp_path, lifetime_s=0.05)
    one, other = put(store), put(store)
    store.find(one.handle, LOCAL)
    reader = OutputStore(tmp_path, lifetime_s=9999)
    reader._folders = store._folders
    while time.time() <= (other.expires_at or 0):
        os.sched_yield()
    with pytest.raises(UnknownHandle, match=r"expired: it was kept for 0\.05 s") as caught:
        reader.find(one.handle, LOCAL)
    assert caught.value.tool == "s.t"
    store.purge()
    with pytest.raises(UnknownHandle, match=r"expired: it was kept for 0\.05 s"):
        store.find(other.handle, LOCAL)
    store.close()


def unknown(store: OutputStore, handle: str, caller: Caller = LOCAL) -> str:
    with pytest.raises(UnknownHandle) as caught:
        store.find(handle, caller)
    assert caught.value.next_action
    return caught.value.message.replace(handle, "HANDLE")


def test_15_07_after_a_restart_a_handle_that_was_is_told_from_one_that_never_was(tmp_path: Path) -> None:
    file = tmp_path / "issued"
    first = OutputStore(tmp_path / "base", lifetime_s=0.05, issued=file)
    expired = put(first, ANNA)
    first.close()
    second = OutputStore(tmp_path / "base", issued=file)
    ended = put(second, ANNA)
    second.close()
    while time.time() <= (expired.expires_at or 0):
        os.sched_yield()
    third = OutputStore(tmp_path / "base", issued=file)
    for caller in (ANNA, ANNA_LATER):
        assert "expired: it was kept for 0.05 s" in unknown(third, expired.handle, caller)
        assert "was stored by another run of toolfold" in unknown(third, ended.handle, caller)
    # To others it is as one that never was.
    never = unknown(third, NEVER)
    assert "it never was, or is long gone" in never
    assert never == unknown(third, expired.handle) == unknown(third, ended.handle)
    assert file.stat().st_mode & 0o077 == 0
    third.close()


def test_15_07_what_is_kept_of_old_handles_is_bounded_and_says_nothing_of_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolfold.outputs.issued.MAX_FILE_BYTES", 4_000)
    file = tmp_path / "issued"
    store = OutputStore(tmp_path / "base", issued=file)
    stored = [put(store, ANNA) for _ in range(60)]
    store.close()
    assert sum(one.stat().st_size for one in tmp_path.glob("issued*")) < 9_000
    file.write_bytes(
        file.read_bytes() + b'{"handle": "' + stored[-1].handle.encode()[:20]
    )  # of a process that was killed
    later = OutputStore(tmp_path / "base", issued=file)
    assert "another run" in unknown(later, stored[-1].handle, ANNA)
    assert "never was, or is long gone" in unknown(later, stored[0].handle, ANNA)
    kept = b"".join(one.read_bytes() for one in tmp_path.glob("issued*"))
    assert b"hello" not in kept
    assert set(re.findall(rb'"arguments":"(.*?)"', kept)) == {b"{}"}
    later.close()


def test_15_07_an_output_is_stored_where_no_note_of_it_can_be_made(tmp_path: Path) -> None:
    store = OutputStore(tmp_path / "base", issued=tmp_path / "no-folder" / "issued")
    stored = put(store)
    assert store.find(stored.handle, LOCAL)[0] == stored
    assert "it never was, or is long gone" in unknown(store, NEVER)
    store.close()


def test_15_07_a_gateway_tells_an_expired_output_of_the_one_before_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scene(tmp_path, lifetime_s=0.2) as scene:
            outcome = await scene.give(text_result("word\n" * 5000))
            assert outcome.stored is not None
            handle = outcome.stored.handle
        await asyncio.sleep(0.2)
        async with Scene(tmp_path) as scene:
            with pytest.raises(UnknownHandle, match=r"expired: it was kept for 0\.2 s"):
                await scene.gateway.tool_output(handle, "word")

    run(main())
