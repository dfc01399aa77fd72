"""`toolfold extract FILE REQUEST`, as a person runs it, and the bench of large outputs at a small size."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fork_server
from benchmarks import outputs as bench


def run(tmp_path: Path, *arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "toolfold", "--home", str(tmp_path / "home"), *arguments]
    return fork_server.run(command, input=given, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)


@pytest.mark.requirement("O-13")
def test_extract_answers_from_a_local_file(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("name,town\nAda,Graz\nIvo,Porto\nLena,Leeds\n")
    done = run(tmp_path, "extract", "people.csv", "where", "does", "Ivo", "live")
    assert done.returncode == 0
    assert done.stdout.startswith("ABSTRACT FROM TOOL OUTPUT people.csv WITH HANDLE ")
    assert "Ivo,Porto" in done.stdout
    assert not (tmp_path / "home").exists()


def test_extract_reads_what_is_piped_in_and_prints_json(tmp_path: Path) -> None:
    done = run(tmp_path, "extract", "-", "a.b[1]", "--json", given='{"a": {"b": [10, 20]}}')
    found = json.loads(done.stdout)
    assert (found["strategy"], found["failed"], found["model"]) == ("read-grep", False, None)
    assert found["text"].endswith("20")


def test_a_file_that_is_not_there_is_explained(tmp_path: Path) -> None:
    done = run(tmp_path, "extract", "absent.txt", "anything")
    assert done.returncode == 4
    assert "cannot be read" in done.stderr


@pytest.mark.load
def test_the_bench_compares_with_truncation_and_plain_search(tmp_path: Path) -> None:
    shares, times = bench.generated(tmp_path, {1: 4})
    assert shares["all"]["questions"] == 24
    assert shares["all"]["extract"] >= 0.9
    assert shares["all"]["top_and_bottom"] <= 0.3
    assert set(times["log"]) == {"first_s", "next_median_s", "next_p95_s", "same_again_s"}
