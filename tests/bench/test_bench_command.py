"""`toolfold bench`: which benches there are, what they are given, and what is said where they are missing."""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

from toolfold.__main__ import main
from toolfold.faces.cli import bench


@pytest.fixture(autouse=True)
def path_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command makes the checkout importable for its own process."""
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_every_bench_that_is_listed_can_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"start", "calls", "retrieval", "outputs"} <= set(listed)
    for name in listed:
        assert callable(import_module(f"benchmarks.{name}").run)
    assert main(["bench", "list"]) == 0
    assert listed["fuzz"] in " ".join(capsys.readouterr().out.split())


def test_without_a_checkout_the_error_says_where_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "another"\n')
    broken = tmp_path / "broken"
    (broken / "benchmarks").mkdir(parents=True)
    (broken / "benchmarks" / "__init__.py").touch()
    (broken / "pyproject.toml").write_text("[project")
    monkeypatch.setattr(bench, "_candidates", lambda: iter([tmp_path, broken, tmp_path / "absent"]))
    assert main(["bench", "list", "--json"]) != 0
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["message"] == "the benches are not part of the installed package"
    assert "clone the repository" in error["next_action"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["no-such"], "there is no bench 'no-such'"),
        (["build", "--data", "no-such-folder"], "no-such-folder is no folder"),
        (["search"], "bench search measures on recorded material"),
    ],
)
def test_what_cannot_be_measured_is_a_configuration_error(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments, "--json"]) != 0
    assert json.loads(capsys.readouterr().out)["error"]["message"] == says


def test_each_bench_reads_its_part_of_the_data(tmp_path: Path) -> None:
    for part in ("servers", "retrieval"):
        (tmp_path / part).mkdir()
    assert bench._data_options("build", None) == {"data": None}
    assert bench._data_options("search", tmp_path) == {"data": tmp_path / "servers"}
    assert bench._data_options("retrieval", tmp_path) == {"data": tmp_path / "retrieval"}
    assert bench._data_options("abstain", tmp_path) == {"data": tmp_path / "retrieval", "servers": tmp_path / "servers"}
    assert bench._data_options("retrieval", tmp_path / "servers") == {"data": tmp_path / "servers"}
