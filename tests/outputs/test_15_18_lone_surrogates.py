"""Half of a character in a result loses that character, never the result of a call that was made."""

import json
from pathlib import Path

import pytest
from output_scene import Scene, large_spec, read, run, settings, texts

from toolfold import Gateway
from toolfold.testing.memory_upstream import MemoryUpstream

HALF = r"\ud800"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (r'{"content":[{"type":"text","text":"a\ud800b"}]}', "a\ufffdb"),
        (r'{"content":[{"type":"text","text":"a\udc00b \\ud800 \ud83d\ude00"}]}', "a\ufffdb \\ud800 \U0001f600"),
        (r'{"content":[{"type":"text","text":"x"}],"structuredContent":{"k\ud800":"\udbff"}}', "x"),
    ],
)
def test_15_18_a_small_result_goes_on_with_the_character_replaced(tmp_path: Path, raw: str, expected: str) -> None:
    (tmp_path / "result.json").write_text(raw, encoding="ascii")

    async def main() -> None:
        given = settings(tmp_path).__class__(home=tmp_path / "home", servers=(large_spec(),))
        async with Gateway(given) as gateway:
            await gateway.build()
            outcome = await gateway.call_tool("large.give", {"file": str(tmp_path / "result.json")})
            assert texts(outcome) == [expected]

    run(main())


@pytest.mark.parametrize("size", [20_000, 5_000_000])
def test_15_18_a_large_result_is_stored_whatever_its_names_hold(tmp_path: Path, size: int) -> None:
    body = "a" * size + HALF
    raw = f'{{"content":[{{"type":"text","text":"{body}"}}],"x{HALF}":{{"k{HALF}":1}}}}'
    (tmp_path / "result.json").write_text(raw, encoding="ascii")

    async def main() -> None:
        given = settings(tmp_path)
        given = given.__class__(home=given.home, outputs=given.outputs, servers=(large_spec(),))
        async with Gateway(given) as gateway:
            await gateway.build()
            outcome = await gateway.call_tool("large.give", {"file": str(tmp_path / "result.json")})
            assert outcome.stored is not None
            kept = (await gateway.outputs.file(outcome.stored.handle)).read_text(encoding="utf-8")
            assert kept == "a" * size + "\ufffd"
            assert "x\ufffd" in read(outcome)

    run(main())


def test_15_18_a_function_that_returns_half_a_character_has_its_result(tmp_path: Path) -> None:
    def half() -> str:
        """Returns half a character."""
        return "a\ud800b"

    async def main() -> None:
        async with Gateway(settings(tmp_path), upstreams=[MemoryUpstream("f", [half])]) as gateway:
            await gateway.build()
            outcome = await gateway.call_tool("f.half", {})
            assert not outcome.is_error
            assert "b" in json.dumps(read(outcome))

    run(main())


def test_15_18_a_text_that_a_program_stores_keeps_all_but_the_half(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as scene:
            stored = await scene.gateway.outputs.store_text("a\ud800b", tool_id="run_script")
            assert (await scene.gateway.outputs.file(stored.handle)).read_bytes() == b"a?b"

    run(main())


def test_15_18_a_result_that_came_by_a_file_and_fits_is_read_as_any_other(tmp_path: Path) -> None:
    """It is larger than what is held in memory while it comes, and smaller than what is stored."""
    body = "a" * 5_000_000 + HALF
    (tmp_path / "result.json").write_text(f'{{"content":[{{"type":"text","text":"{body}"}}]}}', encoding="ascii")

    async def main() -> None:
        large = 8_000_000
        given = settings(tmp_path, tool_response_max_bytes=large, tool_response_max_tokens=large)
        given = given.__class__(home=given.home, outputs=given.outputs, limits=given.limits, servers=(large_spec(),))
        async with Gateway(given) as gateway:
            await gateway.build()
            outcome = await gateway.call_tool("large.give", {"file": str(tmp_path / "result.json")})
            assert texts(outcome) == ["a" * 5_000_000 + "\ufffd"]

    run(main())
