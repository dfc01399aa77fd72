"""`toolfold repl` in a real terminal: the transcript of the design, a prompt without a model, a crash, an interrupt."""

import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

PROGRAM = Path(__file__).with_name("live_scripted.py")
READY = r"\x1b\[\?2004h"
"""What the line editor sends each time it begins to read."""

Start = Callable[..., "pexpect.spawn[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a prompt in a terminal of its own, and ends it after the test."""
    running: list[pexpect.spawn[str]] = []

    def begin(*command: str, **environment: str) -> "pexpect.spawn[str]":
        env = {
            **os.environ,
            "TERM": "xterm",
            "NO_COLOR": "1",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "TOOLFOLD_HOME": str(tmp_path / "home"),
            **environment,
        }
        child = pexpect.spawn(
            sys.executable,
            list(command),
            env=env,
            encoding="utf-8",
            timeout=20,
            dimensions=(50, 160),
            cwd=str(tmp_path),
        )
        running.append(child)
        child.expect("Ctrl-D leaves")
        child.expect(READY)
        return child

    yield begin
    for child in running:
        child.close(force=True)


def ends(child: "pexpect.spawn[str]") -> int:
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus is not None
    return child.exitstatus


@pytest.mark.requirement("L-10", "L-11")
def test_the_assistant_explains_a_function_without_a_return(start: Start, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    child = start(str(PROGRAM), str(home))
    child.send("def next(x):\r")
    child.send("x + 1\r")
    child.send("\r")
    child.expect(READY)
    child.send("print(next(42))\r")
    child.expect("None")
    child.expect(READY)
    child.send("? why is next(42) None\r")
    child.expect(r"· inspect\(next\) → callable function\(x\)")
    child.expect("no return statement")
    child.expect(READY)
    child.sendeof()
    assert ends(child) == 0
    events = trace(home)
    used = [event for event in events if event["event"] == "live.tool"]
    assert [(event["tool"], event["arguments"]) for event in used] == [("inspect", {"expr": "next"})]
    assert used[0]["answer"]["result"]["callable"]["source_preview"] == "def next(x):\n    x + 1"
    assert [event["event"] for event in events] == ["live.input", "live.input", "live.ask", "live.tool", "live.answer"]
    asked = json.loads((home / "asked.json").read_text(encoding="utf-8"))
    assert "Prefer inspect for understanding" in asked[0]["messages"][0]["content"]
    assert ">>> print(next(42))" in asked[0]["messages"][1]["content"]


def trace(home: Path) -> list[dict[str, Any]]:
    (file,) = (home / "live" / "traces").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.mark.requirement("L-10")
def test_without_a_model_it_is_a_python_prompt_that_says_how_to_add_one(start: Start, tmp_path: Path) -> None:
    child = start("-m", "toolfold", "repl")
    child.send("unmistakable = 20 + 22\r")
    child.expect(READY)
    child.send("unmis\t")
    child.expect("takable")
    child.send("\r")
    child.expect("42")
    child.expect(READY)
    child.send("? what is it\r")
    child.expect("no model is configured")
    child.expect(r"toolfold repl --model NAME")
    child.expect(READY)
    child.send("1/0\r")
    child.expect("ZeroDivisionError: division by zero")
    child.expect(READY)
    child.send("exit(3)\r")
    assert ends(child) == 3
    history = tmp_path / "home" / "live" / "history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert "+unmistakable = 20 + 22" in history.read_text(encoding="utf-8")


def test_a_crash_at_the_prompt_is_told_and_the_prompt_goes_on(start: Start) -> None:
    child = start("-m", "toolfold", "repl")
    child.send("import os; os.kill(os.getpid(), 11)\r")
    child.expect(r"SIGSEGV.*a\s+new,\s+empty\s+session\s+has\s+begun")  # wherever the line is folded
    child.expect(READY)
    child.send("2 * 21\r")
    child.expect("42")
    child.expect(READY)
    child.sendeof()
    assert ends(child) == 0


def test_an_interrupt_ends_what_runs_and_not_the_prompt(start: Start) -> None:
    child = start("-m", "toolfold", "repl")
    child.send("kept = 1\r")
    child.expect(READY)
    child.send("print('now'); exec('while True: pass')\r")
    child.expect("2004lnow")
    child.sendintr()
    child.expect("KeyboardInterrupt")
    child.expect(READY)
    child.send("kept + 41\r")
    child.expect("42")
    child.expect(READY)
    child.sendeof()
    assert ends(child) == 0


def test_the_session_reads_from_the_terminal(start: Start) -> None:
    child = start("-m", "toolfold", "repl")
    child.send("name = input('who? ')\r")
    child.expect(r"who\? ")
    child.send("ann\r")
    child.expect(READY)
    child.send("name.upper()\r")
    child.expect("'ANN'")
    child.expect(READY)
    child.sendeof()
    assert ends(child) == 0
