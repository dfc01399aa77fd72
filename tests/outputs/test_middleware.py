"""Large results through the gateway: stored whole, with one exact message in their place; small ones untouched."""

import asyncio
import base64
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from output_scene import Scene, read, run, text_result, texts

from toolfold import tokens
from toolfold.config import MetadataRule
from toolfold.errors import InvalidArguments, UnknownHandle
from toolfold.types import LOCAL, Caller

ANNA = Caller(name="anna", session="one")
LINES = "".join(f"line {number}: été “quoted” 😀\n" for number in range(2000))
PNG = base64.b64encode(bytes(range(256)) * 100).decode()

MESSAGE = re.compile(
    r"Tool output is too large \((\d+) bytes, (\d+) lines, (\d+) tokens\)\.\n"
    r'Call tool_output\(handle = "([0-9a-f-]{36})", extract = "what to extract"\)\.\n'
    r"Provide precise and detailed instructions in `extract` about what you are looking for\."
)


@pytest.mark.requirement("O-01")
def test_a_result_up_to_the_limit_goes_on_untouched_and_makes_no_file(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scene(tmp_path, tool_response_max_bytes=1000) as scene:
            for result in (text_result("x" * 1000), text_result('"' * 1000), text_result("\U0001f600" * 250)):
                outcome = await scene.give(result)
                assert read(outcome) == result
                assert outcome.stored is None
            assert not scene.files()
            assert await scene.gateway.outputs() == []

    run(main())


@pytest.mark.requirement("O-01")
@pytest.mark.requirement("O-03")
def test_one_byte_more_is_stored_and_the_model_reads_the_exact_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        caplog.set_level(logging.INFO, "toolfold.outputs")
        async with Scene(tmp_path, tool_response_max_bytes=1000) as scene:
            outcome = await scene.give(text_result("x" * 1001))
            found = MESSAGE.fullmatch(texts(outcome)[0])
            assert found
            assert [block["type"] for block in read(outcome)["content"]] == ["text", "text"]
            assert found.groups() == ("1001", "1", str(tokens.count("x" * 1001)), outcome.stored.handle)  # type: ignore[union-attr]  # matched above
            assert scene.kept(outcome) == b"x" * 1001
            assert found[4] in caplog.text
            stored = [event for event in scene.told if event.name == "output.stored"]
            assert [event.data["message"] for event in stored] == [found[0]]

    run(main())


@pytest.mark.requirement("O-03")
@pytest.mark.parametrize(
    "text", [LINES, LINES.rstrip("\n"), "日本語。" * 5000, json.dumps([{"a": LINES}] * 3), "\n" * 20_000]
)
def test_the_counts_in_the_message_are_true(tmp_path: Path, text: str) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as scene:
            outcome = await scene.give(text_result(text))
            found = MESSAGE.fullmatch(texts(outcome)[0])
            assert found
            lines = text.count("\n") + (not text.endswith("\n"))
            assert found.groups()[:3] == (str(len(text.encode())), str(lines), str(tokens.count(text)))
            assert scene.kept(outcome) == text.encode()

    run(main())


@pytest.mark.requirement("O-01")
def test_a_result_over_the_token_budget_is_stored_though_its_bytes_fit(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scene(tmp_path, tool_response_max_bytes=10_000, tool_response_max_tokens=100) as scene:
            dense = "".join(chr(0x4E00 + number * 7) for number in range(200))
            assert tokens.count(dense) > 100
            assert (await scene.give(text_result(dense))).stored is not None
            sparse = "word " * 90
            assert tokens.count(sparse) <= 100
            assert (await scene.give(text_result(sparse))).stored is None

    run(main())


@pytest.mark.requirement("O-01")
def test_a_tool_may_have_limits_of_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        rules = (MetadataRule("s.*", max_bytes=50), MetadataRule("s.give", max_bytes=5000, max_tokens=5000))
        async with Scene(tmp_path, rules=rules) as scene:
            assert (await scene.give(text_result("x" * 5000))).stored is None
            assert (await scene.give(text_result("x" * 5001))).stored is not None
            scene.upstream.answer("other", text_result("x" * 51))
            assert (await scene.gateway.call_tool("s.other", {})).stored is not None

    run(main())


@pytest.mark.requirement("O-01")
def test_a_result_for_a_program_is_given_whole(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as scene:
            outcome = await scene.give(text_result(LINES), whole=True)
            assert read(outcome) == text_result(LINES)
            assert not scene.files()

    run(main())


def test_an_error_that_is_too_large_is_stored_and_stays_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as scene:
            outcome = await scene.give(text_result(LINES, isError=True, _meta={"a": 1}))
            assert outcome.is_error
            assert read(outcome)["isError"] is True
            assert read(outcome)["_meta"] == {"a": 1}
            assert scene.kept(outcome) == LINES.encode()

    run(main())


@pytest.mark.requirement("O-02")
def test_of_text_and_structured_content_that_say_the_same_the_text_is_kept_once(tmp_path: Path) -> None:
    async def main() -> None:
        value = {"orders": [{"id": number, "name": "été"} for number in range(2000)]}
        text = json.dumps(value, indent=2, ensure_ascii=False)
        async with Scene(tmp_path) as scene:
            outcome = await scene.give(text_result(text, structuredContent=value))
            assert len(texts(outcome)) == 2
            assert "structuredContent" not in read(outcome)
            assert scene.kept(outcome) == text.encode()
            assert [stored.media_type for stored in await scene.gateway.outputs()] == ["application/json"]

    run(main())


@pytest.mark.requirement("O-02")
def test_structured_content_that_says_more_is_kept_as_json_and_the_small_text_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        value = {"orders": [{"id": number, "name": "été"} for number in range(2000)]}
        async with Scene(tmp_path) as scene:
            outcome = await scene.give(text_result("2000 orders", structuredContent=value))
            assert MESSAGE.fullmatch(texts(outcome)[0])
            assert texts(outcome)[2:] == ["2000 orders"]
            assert json.loads(scene.kept(outcome)) == value
            assert outcome.stored is not None
            assert outcome.stored.media_type == "application/json"
            only = await scene.give({"content": [], "structuredContent": value})
            assert json.loads(scene.kept(only)) == value

    run(main())


def test_text_and_structured_content_that_are_both_too_large_get_a_handle_each(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as scene:
            outcome = await scene.give(text_result(LINES, structuredContent={"x": ["y"] * 9000}))
            messages = [text for text in texts(outcome) if MESSAGE.fullmatch(text)]
            stored = await scene.gateway.outputs()
            assert len(messages) == len(stored) == 2
            kept = [scene.gateway.outputs.store.find(one.handle, LOCAL)[1].read_bytes() for one in stored]
            assert sorted(map(len, kept)) == sorted([len(LINES.encode()), len(b'{"x":[' + b'"y",' * 9000 + b"}")])

    run(main())


@pytest.mark.requirement("O-02")
def test_pictures_go_on_as_they_came_beside_the_message(tmp_path: Path) -> None:
    async def main() -> None:
        picture = {"type": "image", "data": PNG, "mimeType": "image/png", "annotations": {"priority": 1}}
        link = {"type": "resource_link", "uri": "file:///a", "name": "a"}
        async with Scene(tmp_path) as scene:
            alone = await scene.give({"content": [picture]})
            assert read(alone) == {"content": [picture]}
            both = await scene.give({"content": [picture, {"type": "text", "text": LINES}, link]})
            assert read(both)["content"][2:] == [picture, link]
            assert MESSAGE.fullmatch(texts(both)[0])

    run(main())


@pytest.mark.requirement("O-02")
@pytest.mark.parametrize(
    ("block", "media_type"),
    [
        ({"type": "image", "data": PNG, "mimeType": "image/png"}, "image/png"),
        ({"type": "audio", "data": PNG, "mimeType": "audio/wav"}, "audio/wav"),
        (
            {"type": "resource", "resource": {"uri": "a:b", "mimeType": "application/pdf", "blob": PNG}},
            "application/pdf",
        ),
    ],
)
def test_binary_content_that_is_too_large_is_kept_as_bytes_with_its_type(
    tmp_path: Path, block: dict[str, Any], media_type: str
) -> None:
    async def main() -> None:
        async with Scene(tmp_path, tool_media_max_bytes=1000) as scene:
            outcome = await scene.give({"content": [{"type": "text", "text": "see below"}, block]})
            assert scene.kept(outcome) == base64.b64decode(PNG)
            assert outcome.stored is not None
            assert outcome.stored.media_type == media_type
            assert MESSAGE.fullmatch(texts(outcome)[0])
            assert media_type in texts(outcome)[1]
            assert texts(outcome)[2:] == ["see below"]

    run(main())


@pytest.mark.parametrize(
    "result",
    [
        {"content": "x" * 20_000},
        {"content": [1, "x" * 20_000]},
        {"content": [{"type": "odd", "x": "y" * 20_000}]},
        {"content": [], "further": "x" * 20_000},
        {"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "x" * 20_000}}]},
        {"content": [{"type": "image", "data": "no base64!" * 2000, "mimeType": "image/png"}]},
    ],
)
def test_whatever_form_a_result_has_nothing_of_it_is_lost(tmp_path: Path, result: dict[str, Any]) -> None:
    async def main() -> None:
        async with Scene(tmp_path, tool_media_max_bytes=1000) as scene:
            outcome = await scene.give(result)
            assert len(bytes(outcome.result)) < 1500
            longest = max(re.findall(r"[xy]{2,}|(?:no base64!)+", json.dumps(result)), key=len)
            assert longest.encode() in scene.kept(outcome)

    run(main())


@pytest.mark.requirement("O-10")
def test_a_session_that_gets_its_first_output_or_loses_its_last_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        changes: list[tuple[str, bool]] = []
        async with Scene(tmp_path) as scene:
            stop = scene.gateway.outputs.on_changed(lambda caller, holds: changes.append((caller.name, holds)))
            assert not await scene.gateway.outputs.has_any(ANNA)
            await scene.give(text_result("small"), ANNA)
            assert changes == []
            await scene.give(text_result(LINES), ANNA)
            await scene.give(text_result(LINES), ANNA)
            await scene.give(text_result(LINES))
            assert changes == [("anna", True), ("local", True)]
            assert len(await scene.gateway.outputs(ANNA)) == 2
            await scene.gateway.outputs.end(ANNA)
            assert changes[2:] == [("anna", False)]
            assert not await scene.gateway.outputs.has_any(ANNA)
            stop()
            await scene.give(text_result(LINES), ANNA)
            assert len(changes) == 3
        assert {"output.stored", "output.removed"} <= set(scene.names())

    run(main())


@pytest.mark.requirement("O-10")
@pytest.mark.requirement("O-11")
def test_several_questions_to_one_handle_are_answered_at_once_and_accounted_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as scene:
            outcome = await scene.give(text_result(LINES), ANNA)
            assert outcome.stored is not None
            handle = outcome.stored.handle
            asked = [scene.gateway.tool_output(handle, f"lines {n}-{n}", caller=ANNA) for n in (1, 700, 2000)]
            answers = await asyncio.gather(*asked)
            for number, answer in zip((1, 700, 2000), answers, strict=True):
                assert answer.startswith(f"ABSTRACT FROM TOOL OUTPUT s.give WITH HANDLE {handle}, STRATEGY:")
                assert f"line {number - 1}: été" in answer
            with pytest.raises(UnknownHandle):
                await scene.gateway.tool_output(handle, "lines 1-1")
            stored = next(event for event in scene.told if event.name == "output.stored")
            assert {"handle", "tool_id", "caller", "bytes", "lines", "tokens"} <= stored.data.keys()
            assert sum(event.data.get("handle") == handle for event in scene.told) >= 4

    run(main())


@pytest.mark.requirement("O-02")
@pytest.mark.parametrize("ending", ["success", "failure", "abort"])
def test_everything_is_removed_when_the_session_ends_however_it_ends(tmp_path: Path, ending: str) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as scene:
            await scene.give(text_result(LINES))
            await scene.give(text_result(LINES), ANNA)
            assert len(list(scene.base.iterdir())) == 2
            if ending == "failure":
                raise RuntimeError("it went wrong")
            if ending == "abort":
                raise asyncio.CancelledError

    with_errors = {"success": (), "failure": (RuntimeError,), "abort": (asyncio.CancelledError,)}
    try:
        run(main())
    except with_errors[ending]:
        pass
    else:
        assert ending == "success"
    assert list((tmp_path / "base").iterdir()) == []


def test_a_call_that_is_cancelled_while_its_result_is_stored_leaves_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as scene:
            drafted = asyncio.Event()
            loop = asyncio.get_running_loop()
            make = scene.gateway.outputs.store.draft

            def draft(caller: Caller) -> Any:
                loop.call_soon_threadsafe(drafted.set)
                return make(caller)

            scene.gateway.outputs.store.draft = draft  # type: ignore[method-assign]  # only to learn when it begins
            call = asyncio.create_task(scene.give(text_result(LINES * 100)))
            await drafted.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            async with asyncio.timeout(20):
                while [file for file in scene.files() if file.name != ".toolfold"]:  # noqa: ASYNC110 - a thread ends
                    await asyncio.sleep(0.01)
            assert await scene.gateway.outputs() == []

    run(main())


@pytest.mark.requirement("O-11")
def test_a_text_that_no_tool_returned_is_stored_the_same_way(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as scene:
            stored = await scene.gateway.outputs.store_text(LINES, tool_id="run_script", caller=ANNA)
            counts = (len(LINES.encode()), LINES.count("\n"), tokens.count(LINES))
            assert (stored.bytes, stored.lines, stored.tokens) == counts
            assert await scene.gateway.outputs(ANNA) == [stored]
            assert "output.stored" in scene.names()
            answer = await scene.gateway.tool_output(stored.handle, "lines 3-3", caller=ANNA)
            assert answer.startswith("ABSTRACT FROM TOOL OUTPUT run_script WITH HANDLE ")
            with pytest.raises(InvalidArguments):
                await scene.gateway.tool_output(stored.handle, "lines 3-3", mode="guess", caller=ANNA)

    run(main())


@pytest.mark.requirement("O-02")
def test_outputs_that_outlive_their_time_go_by_themselves_in_sessions_that_nobody_ends(tmp_path: Path) -> None:
    async def main() -> None:
        changes: list[tuple[str, bool]] = []
        async with Scene(tmp_path, lifetime_s=0.05) as scene:
            gone = asyncio.Event()

            def changed(caller: Caller, holds: bool) -> None:
                changes.append((caller.name, holds))
                if not holds:
                    gone.set()

            scene.gateway.outputs.on_changed(changed)
            await scene.give(text_result(LINES), ANNA)
            await gone.wait()
            await scene.gateway.outputs.purge()
            assert changes == [("anna", True), ("anna", False)]
            assert scene.files() == []

    run(main())
