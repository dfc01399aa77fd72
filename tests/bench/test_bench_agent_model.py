"""`toolfold bench agent` with a real, tiny language model on loopback: it proves the wire, not the wit."""

import shutil
from pathlib import Path

import pytest

from benchmarks.agent import TASKS, Harness
from benchmarks.agent.loop import Bounds
from toolfold.config.sections import Model as ModelSettings
from toolfold.models.factory import create_model

pytestmark = [
    pytest.mark.load,
    pytest.mark.model,
    pytest.mark.timeout(200),
    pytest.mark.skipif(shutil.which("git") is None, reason="the git program is not installed"),
]
BOUNDS = Bounds(turns=2, seconds=80, answer_tokens=24)


async def test_a_real_model_plays_tasks_over_the_wire(tmp_path: Path, real_model: str) -> None:
    settings = ModelSettings(name="smollm2", base_url=f"{real_model}/v1", context_tokens=2048, calls_tools=False)
    # One task: a second one asks the same of the wire, and each takes seconds of a slow model.
    tasks = [task for task in TASKS if task.name == "sqlite-count"]
    harness = Harness(tmp_path, {})
    (run,) = await harness.run_all(tasks, model=create_model(settings), settings=("surface",), bounds=BOUNDS)
    assert run.task == "sqlite-count"
    # So small a model does what it likes; what counts is that it was asked and answered, and what it took.
    assert run.played.ending in {"answered", "out_of_turns"} or "context" in run.played.ending, run.played.ending
    assert run.played.input_tokens > 1000
    assert run.played.billed_input_tokens > 1000
    assert 0 < run.played.billed_output_tokens <= BOUNDS.turns * 24
