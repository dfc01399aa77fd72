"""The files of the project themselves: pins without addresses, no lock files, nothing of one machine."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout, so there is no list of tracked files")
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return [ROOT / name for name in done.stdout.split("\0") if name]


def test_the_pins_are_names_and_versions_and_no_addresses() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    assert [line for line in pins if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*==[0-9][A-Za-z0-9.+!]*", line)] == []


def test_no_lock_file_is_tracked() -> None:
    locks = {"uv.lock", "poetry.lock", "package-lock.json", "pnpm-lock.yaml", "yarn.lock"}
    assert not [file for file in tracked() if file.name in locks]


def test_no_file_names_a_folder_of_the_machine_it_was_written_on() -> None:
    pattern = re.compile(rb"/(?:work|root)/[a-z]+/|find-links|index-url")
    wrong = []
    for file in tracked():
        if file.is_file() and file.suffix not in {".onnx", ".bin"} and file != Path(__file__):
            match = pattern.search(file.read_bytes())
            if match:
                wrong.append(f"{file.relative_to(ROOT)}: {match.group(0)!r}")
    assert not wrong


def test_every_test_runs_in_ci_once_with_coverage_or_once_without() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").replace("\\\n", " ")
    command = re.compile(r"^[^#\n]*\.venv/bin/(?:pytest|python scripts/run_coverage\.py) (.+)$", flags=re.MULTILINE)
    covered, plain, with_programs = [shlex.split(found) for found in command.findall(script)]
    # `-m` with an expression and with its opposite: together all, and none twice.
    assert covered == ["-m", "not load", "--ignore", "tests/newcomer"]
    assert plain == ["-m", "load", "--ignore", "tests/newcomer"]
    assert "tests/newcomer" in with_programs
