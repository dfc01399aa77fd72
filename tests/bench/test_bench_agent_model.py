"""`toolfold bench agent` with a real, tiny language model on loopback: it proves the wire, not the wit."""

import asyncio
import shutil
from pathlib import Path

import pytest

from toolfold.bench.agent import TASKS, Harness
from toolfold.bench.agent_loop import Bounds
from toolfold.config.sections import Model as ModelSettings
from toolfold.models.factory import create_model

pytestmark = [
    pytest.mark.model,
    pytest.mark.timeout(200),
    pytest.mark.skipif(shutil.which("git") is None, reason="the git program is not installed"),
]
BOUNDS = Bounds(turns=2, seconds=80, answer_tokens=24)


def test_a_real_model_plays_tasks_over_the_wire(tmp_path: Path, real_model: str) -> None:
    settings = ModelSettings(name="smollm2", base_url=f"{real_model}/v1", context_tokens=2048, calls_tools=False)
    tasks = [one for one in TASKS if one.name in {"sqlite-count", "git-newest"}]
    harness = Harness(tmp_path, {})
    ran = asyncio.run(harness.run_all(tasks, model=create_model(settings), settings=("surface",), bounds=BOUNDS))
    assert [one.task for one in ran] == ["sqlite-count", "git-newest"]
    for found in (one.played for one in ran):
        # So small a model does what it likes; what counts is that it was asked and answered, and what it took.
        assert found.ending in {"answered", "out_of_turns"} or "context" in found.ending, found.ending
        assert found.input_tokens > 1000
        assert found.billed_input_tokens > 1000
        assert 0 < found.billed_output_tokens <= BOUNDS.turns * 24
