"""A call whose result cannot be kept has been made, and no error may read as if it had not: it might be made twice."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from output_scene import Scene, run

from toolfold.errors import OutputError, QuotaExceeded
from toolfold.faces.http_api.app import _status_of

PAY = """
from pathlib import Path

def pay() -> str:
    "Pays."
    with Path({done!r}).open("a") as file:
        file.write("paid\\n")
    return "x y " * 160_000
"""


def paid(folder: Path, directory: Path) -> tuple[subprocess.CompletedProcess[str], str]:
    """What the command says of a call, and what the tool did."""
    done, source, home = folder / "done", folder / "pay.py", folder / "home"
    source.write_text(PAY.format(done=str(done)))
    config = folder / "toolfold.toml"
    config.write_text(f'[servers.p]\nfunctions = "{source}"\n')
    env = {**os.environ, "TOOLFOLD_OUTPUTS__DIRECTORY": str(directory), "TOOLFOLD_HOME": str(home)}
    command = [sys.executable, "-m", "toolfold", "--config", str(config), "--json", "call", "p.pay"]
    answer = subprocess.run(command, capture_output=True, text=True, env=env, check=False, timeout=120, cwd=folder)
    return answer, done.read_text() if done.exists() else ""


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    small = tmp_path / "small"
    small.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(small)]
    if os.geteuid() != 0 or subprocess.run(mounting, check=False, timeout=30).returncode != 0:
        pytest.skip("file systems cannot be mounted here")
    yield small
    subprocess.run(["umount", str(small)], check=True, timeout=30)


@pytest.mark.requirement("O-02")
def test_a_full_disk_does_not_hide_that_the_tool_has_run(tmp_path: Path, full: Path) -> None:
    answer, did = paid(tmp_path, full)
    assert did == "paid\n"
    error = json.loads(answer.stdout or answer.stderr)["error"]
    assert (error["code"], error["done"], answer.returncode) == ("OUTPUT_FULL", True, 5)
    assert "has done its work" in error["message"]
    assert "do not simply repeat" in error["next_action"]
    assert "ask the tool" not in error["next_action"]


@pytest.mark.requirement("O-02")
def test_a_folder_that_cannot_be_made_is_told_as_a_call_that_was_made(tmp_path: Path) -> None:
    # Small results need no folder: that it cannot be made stops no call.
    (tmp_path / "file").write_text("")
    answer, did = paid(tmp_path, tmp_path / "file" / "nope")
    error = json.loads(answer.stdout or answer.stderr)["error"]
    assert (did, answer.returncode, error["done"]) == ("paid\n", 5, True)
    assert "has done its work" in error["message"]


def test_a_folder_that_goes_meanwhile_is_told_as_a_call_that_was_made(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scene(tmp_path) as scene:
            await scene.give("small")
            scene.base.write_text("in the way")
            with pytest.raises(OutputError, match="has done its work") as caught:
                await scene.give("x " * 400_000)
            assert caught.value.exit_code == 5
            assert caught.value.as_dict()["done"] is True
            assert _status_of(caught.value) == 507

    run(main())


def test_a_quota_that_ran_out_after_the_work_asks_nobody_to_try_again() -> None:
    early = QuotaExceeded("you have used up your calls", quota="calls_per_minute", retry_after_s=9, next_action="wait")
    late = QuotaExceeded(
        "you have used up your bytes", quota="stored", retry_after_s=9, next_action="wait"
    ).after_work()
    assert (early.exit_code, _status_of(early), early.done) == (4, 429, False)
    assert (late.exit_code, _status_of(late), late.done) == (5, 507, True)
    assert late.after_work().message.count("has done") == 1
