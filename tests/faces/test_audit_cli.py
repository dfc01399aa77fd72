"""`toolfold audit`, `trust`, `stats`, confirmations and the doctor, as a person runs them."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fork_server
from toolfold.demo.data import make_demo_data

Run = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with one real server and a policy that wants writing confirmed, built once and used a little."""
    folder = tmp_path_factory.mktemp("project")
    data = make_demo_data(folder / "data")
    arguments = json.dumps(["-P", "-m", "toolfold.demo.files", str(data.files)])
    (folder / "toolfold.toml").write_text(
        f"[servers.files]\ncommand = {json.dumps(sys.executable)}\nargs = {arguments}\n"
        '[policy.default]\nconfirm = ["files.list*"]\n',
        encoding="utf-8",
    )
    for words in (
        ["build"],
        ["search", "read", "the", "content", "of", "a", "file"],
        ["expand", "files.read"],
        ["call", "files.read", '{"path": "README.md"}'],
    ):
        done = toolfold(folder, *words, "--json")
        assert done.returncode == 0, done.stderr + done.stdout
    return folder


def environment(folder: Path) -> dict[str, str]:
    home = folder / "person"
    home.mkdir(exist_ok=True)
    return {
        "PATH": os.environ["PATH"],
        "TOOLFOLD_TRUST_PROJECT": "1",
        "HOME": str(home),
        "TOOLFOLD_HOME": str(folder / "state"),
    }


def toolfold(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> Run:
    return fork_server.run(
        [sys.executable, "-m", "toolfold", *arguments],
        cwd=folder,
        env={**environment(folder), **(env or {})},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=60,
        check=False,
    )


def as_json(done: Run) -> Any:
    return json.loads(done.stdout)


@pytest.mark.requirement("D-09")
def test_audit_prints_the_trail_of_steps_that_were_processes_of_their_own(place: Path) -> None:
    steps = as_json(toolfold(place, "audit", "--json"))["steps"]
    chosen = [step for step in steps if step.get("tool_id") == "files.read" and not step.get("code")][:3]
    assert [step["step"] for step in chosen] == ["choose", "expand", "call"]
    assert len({step["selection"] for step in chosen}) == 1
    assert chosen[0]["search"] == next(step["id"] for step in steps if step["step"] == "search")
    assert chosen[2]["arguments"] == {"path": "string of 9"}
    shown = toolfold(place, "audit").stdout
    assert "local" in shown
    assert "'read the content of a file' → files.read" in shown
    assert "number 1 of" in shown
    assert "README.md" not in shown
    assert toolfold(place, "audit", "--session", "nobody").stderr.startswith("nothing was recorded in session nobody")


@pytest.mark.requirement("D-09")
def test_audit_exports_json_lines(place: Path, tmp_path: Path) -> None:
    file = tmp_path / "trail.jsonl"
    assert toolfold(place, "audit", "--export", str(file)).returncode == 0
    steps = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [step["step"] for step in steps][:4] == ["search", "choose", "expand", "call"]
    refused = toolfold(place, "audit", "--export", str(tmp_path / "no" / "such.jsonl"))
    assert refused.returncode == 2
    assert "cannot be written" in refused.stderr


def test_stats_compares_all_definitions_with_what_was_shown(place: Path) -> None:
    found = as_json(toolfold(place, "stats", "--json"))
    (session,) = found["sessions"]
    assert found["tools"] == 6
    assert found["full_tokens"] > 300
    assert session["caller"] == "local"
    assert session["calls"] >= 1
    assert session["shown_tokens"] > 0
    again = as_json(toolfold(place, "stats", "--json"))
    assert again["full_tokens"] == found["full_tokens"]
    shown = toolfold(place, "stats").stdout
    assert f"{found['full_tokens']:,} tokens" in shown


def test_what_a_script_reads_is_not_read_by_a_model_but_what_it_prints_is(place: Path, tmp_path: Path) -> None:
    env = {"TOOLFOLD_HOME": str(tmp_path / "state")}
    (place / "data" / "files" / "long.txt").write_text("many words of a long text\n" * 2_000)
    script = 'read = use_tools("files.read")\nfor _ in range(4):\n    text = str(await read(path="long.txt"))\n'
    (tmp_path / "script.py").write_text(script + "print(text[:9])\n")
    assert toolfold(place, "build", env=env).returncode == 0
    assert toolfold(place, "run", str(tmp_path / "script.py"), env=env).returncode == 0
    found = as_json(toolfold(place, "stats", "--json", env=env))
    (session,) = found["sessions"]
    assert session["calls"] == 5  # the script's own is one
    assert found["client_tokens"] < session["shown_tokens"] < found["client_tokens"] + 1_000
    assert session["full_tokens"] > found["full_tokens"] + 20_000  # without a script a model would read all of it
    steps = as_json(toolfold(place, "audit", "--json", env=env))["steps"]
    assert [step["tool_id"] for step in steps if step.get("to_program")] == ["files.read"] * 4


def test_trust_lists_what_is_odd_and_accepts_it(place: Path) -> None:
    assert as_json(toolfold(place, "trust", "--json"))["standings"] == []
    assert "0 to accept, 0 flagged" in toolfold(place, "trust", "--list").stderr
    assert as_json(toolfold(place, "trust", "files.read", "--json")) == {"accepted": []}
    assert "as it was accepted" in toolfold(place, "trust", "--list", "files.read").stdout
    missing = toolfold(place, "trust", "files.rea", "--json")
    assert missing.returncode == 4
    both = toolfold(place, "trust", "files.read", "--all")
    assert both.returncode == 2


def test_tools_that_nobody_accepted_are_held_back_and_the_doctor_says_so(place: Path, tmp_path: Path) -> None:
    env = {"TOOLFOLD_TRUST__ACCEPT_NEW": "false", "TOOLFOLD_HOME": str(tmp_path / "state")}
    assert toolfold(place, "build", env=env).returncode == 0
    listed = as_json(toolfold(place, "trust", "--json", env=env))
    assert {(one["state"], one["held"]) for one in listed["standings"]} == {("new", True)}
    shown = toolfold(place, "trust", "--list", "files.read", env=env).stdout
    assert '+  "name": "read"' in shown
    held = toolfold(place, "expand", "files.read", env=env)
    assert held.returncode == 4
    assert "toolfold trust files.read" in held.stderr
    assert "6 tools changed or are new and not accepted" in toolfold(place, "doctor", env=env).stdout
    assert toolfold(place, "trust", "files.read", env=env).stdout == "accepted files.read\n"
    assert toolfold(place, "expand", "files.read", env=env).returncode == 0
    assert len(as_json(toolfold(place, "trust", "--all", "--json", env=env))["accepted"]) == 5


@pytest.mark.requirement("G-05")
def test_a_call_that_needs_a_yes_is_refused_without_a_person_and_made_with_one(place: Path) -> None:
    name = "files.list"
    refused = toolfold(place, "call", name, "{}", "--json")
    assert refused.returncode == 4
    assert as_json(refused)["error"]["code"] == "CONFIRMATION_NEEDED"
    assert toolfold(place, "call", name, "{}", "--yes").returncode == 0
    assert at_terminal(place, "n", "call", name, "{}") == (4, True)
    assert at_terminal(place, "y", "call", name, "{}") == (0, True)


@pytest.mark.requirement("G-05")
def test_a_call_of_a_script_is_confirmed_at_the_terminal_while_it_runs(place: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    calls = 'look(path="."), look(path=".")'
    script.write_text(f'import asyncio\nlook = use_tools("files.list")\nprint(len(await asyncio.gather({calls})))\n')
    refused = toolfold(place, "run", str(script))
    assert "toolfold run --yes" in refused.stderr
    assert toolfold(place, "run", str(script), "--yes").stdout == "2\n"
    assert at_terminal(place, "n", "run", str(script)) == (1, True)
    assert at_terminal(place, "y\ny", "run", str(script)) == (0, True)


def at_terminal(place: Path, answer: str, *arguments: str) -> tuple[int, bool]:
    """Runs it with a terminal, types the answer; the exit code, and whether it asked."""
    ours, theirs = pty.openpty()
    with fork_server.Popen(
        [sys.executable, "-m", "toolfold", *arguments],
        cwd=place,
        env=environment(place),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
    ) as child:
        os.close(theirs)
        seen = b""
        try:
            while b"[y/N]" not in seen:
                seen += os.read(ours, 1024)
            os.write(ours, answer.encode() + b"\n")
            assert child.stdout is not None
            child.stdout.read()
            code = child.wait(60)
        finally:
            child.kill()
            os.close(ours)
    return code, b"[y/N]" in seen


def test_logs_can_be_json_lines(place: Path) -> None:
    done = toolfold(
        place, "call", "files.read", '{"path": "README.md"}', "-vv", env={"TOOLFOLD_TELEMETRY__LOGS": "json"}
    )
    assert done.returncode == 0
    assert all(json.loads(line)["level"] for line in done.stderr.splitlines())


def test_19_the_log_is_written_as_lines_with_numbers_and_goes_on_after_one(tmp_path: Path) -> None:
    from served_config import Served, wait_for_call

    served = Served(tmp_path)
    served.write(served.table("shop", "buy"))
    with served.over_http() as url:
        for _ in range(3):
            wait_for_call(url, "shop.buy")

    def export(*more: str) -> list[dict[str, object]]:
        command = [sys.executable, "-m", "toolfold", "--config", str(served.config), "--home", str(tmp_path)]
        done = fork_server.run(
            [*command, "audit", "--export", "jsonl", *more], capture_output=True, text=True, timeout=60, check=True
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    lines = export()
    assert [line["number"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[-1]["tool_id"] == "shop.buy"
    assert lines[-1]["caller"] == "local"
    assert export("--after", str(lines[-2]["number"])) == lines[-1:]
    assert export("--after", str(lines[-1]["number"])) == []
    assert export("--tool", "nothing.*") == []
