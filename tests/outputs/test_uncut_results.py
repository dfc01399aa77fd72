"""Nothing but the extraction cuts a tool result: the source is searched for it, and every way through is tried."""

import ast
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from output_scene import Scene, large_spec, run, settings, text_result

from toolfold import Gateway
from toolfold.types import LOCAL, Outcome

SOURCE = Path(__file__).resolve().parents[2] / "src" / "toolfold"

ON_THE_WAY = (
    *("wire/pipes.py", "wire/sse.py", "wire/spill.py", "wire/connection.py", "wire/http.py"),
    *("upstream/pool.py", "calls/dispatch.py", "calls/pipeline.py"),
    *("outputs/split.py", "outputs/large_results.py", "outputs/store.py"),
    *("outputs/json_scan.py", "gateway.py", "outputs/service.py"),
)
"""Every module that a result passes through between its server and a face."""

WORDS = ("truncat", "shorten", "ellipsis", "clip", "abbreviat")

ALLOWED = {
    "wire/stdio.py: shorten",  # a server's last words on stderr, for an error message
}


def cuts(module: str) -> set[str]:
    """Names that speak of cutting, and strings that end with an ellipsis or stand for something left out."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((SOURCE / module).read_text(encoding="utf-8"))):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        found |= {f"{module}: {name}" for word in WORDS if word in name.lower()}
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 40:
            text = node.value.strip()
            if text.endswith(("…", "...")) or "truncated" in text:
                found.add(f"{module}: {text}")
    return found


@pytest.mark.requirement("O-12")
def test_no_module_on_the_way_of_a_result_knows_how_to_cut_one() -> None:
    found = set().union(*(cuts(module) for module in ON_THE_WAY))
    assert found <= ALLOWED


@pytest.mark.requirement("O-12")
def test_only_the_extraction_and_who_calls_it_know_of_truncation() -> None:
    """Outside `outputs`, nobody imports what cuts a document."""
    for file in SOURCE.rglob("*.py"):
        module = str(file.relative_to(SOURCE))
        if module.startswith(("outputs/", "bench/")):
            continue
        assert "outputs.truncate" not in file.read_text(encoding="utf-8"), module


def everything(outcome: Outcome, gateway: Gateway) -> str:
    """What the model reads, and what is stored, as one text."""
    kept = []
    if outcome.stored is not None:
        kept = [gateway.outputs.store.find(outcome.stored.handle, LOCAL)[1].read_text(encoding="utf-8")]
    return "".join([*kept, json.dumps(json.loads(bytes(outcome.result)), ensure_ascii=False)])


@pytest.mark.requirement("O-12")
@pytest.mark.parametrize("size", [0, 1, 12_287, 12_288, 12_289, 100_000, 4_194_304, 4_300_000])
def test_the_last_character_of_a_result_of_any_size_can_be_had(tmp_path: Path, size: int) -> None:
    async def main() -> None:
        given = msgspec.structs.replace(settings(tmp_path), servers=(large_spec(),))
        async with Gateway(given) as gateway:
            await gateway.build()
            text = "FIRST" + "x" * size + "LAST"
            (tmp_path / "result.json").write_text(json.dumps(text_result(text)))
            outcome = await gateway.call_tool("large.give", {"file": str(tmp_path / "result.json")})
            assert text in everything(outcome, gateway)
            assert (outcome.stored is None) == (len(text) <= 12_288)

    run(main())


@pytest.mark.requirement("O-12")
@pytest.mark.parametrize("is_error", [False, True])
def test_results_of_every_kind_and_errors_come_through_whole(tmp_path: Path, is_error: bool) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as scene:
            for size in (10, 20_000):
                results: list[dict[str, Any]] = [
                    text_result("a" * size + "LAST", isError=is_error),
                    {"content": [{"type": "text", "text": "b" * size}, {"type": "text", "text": "LAST"}]},
                    {"content": [], "structuredContent": {"a": ["c" * size, "LAST"]}, "isError": is_error},
                    {"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "d" * size + "LAST"}}]},
                ]
                for result in results:
                    assert "LAST" in everything(await scene.give(result), scene.gateway)

    run(main())
