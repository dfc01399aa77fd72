"""`toolfold agent` as a person runs it: real processes and servers, and an endpoint that plays the model."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from model_endpoint import model_endpoint

import fork_server

SEARCH: dict[str, Any] = {"type": "search", "query": "read a text file"}
READ: dict[str, Any] = {"type": "tool", "tool_id": "files.read", "args": {"path": "note.txt"}}
FINISH: dict[str, Any] = {"type": "finish", "report": "the note says hello", "data": {"words": 1}}


def project(folder: Path, endpoint: str) -> list[str]:
    """A project with one real server and a model, and the options that choose it."""
    data = folder / "data"
    data.mkdir(exist_ok=True)
    (data / "note.txt").write_text("hello")
    python, root = json.dumps(sys.executable), json.dumps(str(data))
    config = folder / "toolfold.toml"
    config.write_text(
        f'[servers.files]\ncommand = {python}\nargs = ["-m", "toolfold.demo.files", {root}]\n'
        f'[model]\nname = "played"\nbase_url = "{endpoint}"\n'
    )
    options = ["--config", str(config), "--home", str(folder / "home")]
    fork_server.run([sys.executable, "-m", "toolfold", "build", *options], check=True, capture_output=True, timeout=60)
    return options


def toolfold(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "toolfold", *arguments]
    return fork_server.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.requirement("A-05")
def test_a_task_is_done_with_progress_and_its_record_is_replayed_without_a_model(tmp_path: Path) -> None:
    with model_endpoint([SEARCH, READ, FINISH]) as endpoint:
        options = project(tmp_path, endpoint)
        done = toolfold("agent", "what does the note say?", *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the note says hello\n"
    assert "tool files.read" in done.stderr
    assert "finished: 3 turns, 1 calls, 45 tokens" in done.stderr
    listed = json.loads(toolfold("agent", "--runs", "--json", *options).stdout)
    assert [(one["ending"], one["turns"], one["task"]) for one in listed] == [
        ("finished", 3, "what does the note say?")
    ]
    again = toolfold("agent", "--replay", listed[0]["run"], *options)
    assert (again.returncode, again.stdout.partition(":")[0]) == (0, "the same, event for event")
    (tmp_path / "data" / "note.txt").write_text("good bye")
    other = toolfold("agent", "--replay", listed[0]["run"], "--live-tools", *options)
    assert other.returncode == 6
    assert "result differs in turn 2" in other.stdout


@pytest.mark.requirement("A-05")
def test_a_run_that_was_killed_goes_on_where_it_broke_off(tmp_path: Path) -> None:
    reached = threading.Event()
    with model_endpoint([SEARCH, READ, {"type": "hang"}, FINISH], reached) as endpoint:
        options = project(tmp_path, endpoint)
        command = [sys.executable, "-m", "toolfold", "agent", "what does the note say?", *options]
        with fork_server.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert reached.wait(60)
            process.send_signal(signal.SIGKILL)
        listed = json.loads(toolfold("agent", "--runs", "--json", *options).stdout)
        assert listed[0]["ending"] is None
        done = toolfold("agent", "--resume", listed[0]["run"], "--json", *options)
    report = json.loads(done.stdout)
    assert (done.returncode, report["text"], report["data"]) == (0, "the note says hello", {"words": 1})
    assert report["calls"] == 1


def test_without_a_model_it_says_how_to_name_one(tmp_path: Path) -> None:
    options = project(tmp_path, "http://127.0.0.1:9/v1")
    (tmp_path / "toolfold.toml").write_text((tmp_path / "toolfold.toml").read_text().split("[model]")[0])
    done = toolfold("agent", "anything", *options)
    assert done.returncode == 2
    assert "no model is configured" in done.stderr
    assert "--model" in done.stderr


def test_15_13_exit_codes_tell_a_report_from_giving_up_and_from_calling_nothing(tmp_path: Path) -> None:
    fail = {"type": "fail", "reason": "nobody knows"}
    with model_endpoint([READ, FINISH, READ, fail, FINISH]) as endpoint:
        options = project(tmp_path, endpoint)
        done = [toolfold("agent", "what does the note say?", *options) for _ in range(3)]
    assert [one.returncode for one in done] == [0, 7, 8]
    assert [one.stdout.strip() for one in done] == ["the note says hello", "nobody knows", "the note says hello"]
    assert "no tool was called" in done[2].stderr


def test_15_04_a_run_goes_on_with_the_model_that_it_was_begun_with(tmp_path: Path) -> None:
    reached = threading.Event()
    asked: list[str] = []
    with model_endpoint([READ, {"type": "hang"}, FINISH], reached, asked) as endpoint:
        options = project(tmp_path, endpoint)
        command = [sys.executable, "-m", "toolfold", "agent", "what does the note say?", "--model", "other", *options]
        with fork_server.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert reached.wait(60)
            process.send_signal(signal.SIGKILL)
        (run,) = json.loads(toolfold("agent", "--runs", "--json", *options).stdout)
        assert toolfold("agent", "--resume", run["run"], *options).returncode == 0
    assert asked == ["other", "other", "other"]
