"""The evaluator, called in the test's own process: it needs no fork and no channel."""

import builtins
import io
import sys
import traceback
from collections.abc import Iterator

import pytest

from toolfold.live.worker import evaluator


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Puts back, at the end, all of the interpreter that an evaluation changes."""
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    for name in ("_", "_exc"):
        monkeypatch.setitem(vars(builtins), name, None)
    trace, profile = sys.gettrace(), sys.getprofile()
    yield
    sys.settrace(trace)
    sys.setprofile(profile)


@pytest.fixture
def running(interpreter: None) -> evaluator.Evaluator:
    return evaluator.Evaluator({})


@pytest.mark.parametrize(
    ("code", "value", "out"),
    [
        ("1 + 1", "2", ""),
        ("None", None, ""),
        ("", None, ""),
        ("x = 5", None, ""),
        ("x = 5\nx + 1", "6", ""),
        ("print('hi')", None, "hi\n"),
        ("async def f():\n    return 3\nawait f()", "3", ""),
        ("import asyncio\nawait asyncio.sleep(0)\nx = 4", None, ""),
        ("import asyncio\nx = await asyncio.sleep(0, 7)\nx", "7", ""),
    ],
)
def test_statements_answer_with_their_last_value_as_at_a_prompt(
    interpreter: None, monkeypatch: pytest.MonkeyPatch, code: str, value: str | None, out: str
) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert evaluator.Evaluator({}).execute(code) == {
        "ok": True,
        "result": {"value_repr": value, "stdout": out, "stderr": ""},
    }


def test_the_last_value_is_stored_under_an_underscore(running: evaluator.Evaluator) -> None:
    running.execute("[1, 2]")
    assert vars(builtins)["_"] == [1, 2]
    running.execute("None")
    assert vars(builtins)["_"] == [1, 2]


def test_an_expression_is_evaluated_and_may_await(running: evaluator.Evaluator) -> None:
    running.names["x"] = 20
    assert running.evaluate("  x + 1 ")["result"]["value_repr"] == "21"
    running.execute("import asyncio")
    assert running.evaluate("await asyncio.sleep(0, 'done')")["result"]["value_repr"] == "'done'"
    assert running.value_of(" x * 2 ") == 40
    with pytest.raises(SyntaxError):
        running.value_of("x = 1")


def test_a_future_import_stays_for_the_session(running: evaluator.Evaluator) -> None:
    running.execute("from __future__ import annotations")
    assert running.execute("def f(a: undefined_name): ...\nf.__annotations__")["result"]["value_repr"] == (
        "{'a': 'undefined_name'}"
    )


@pytest.mark.parametrize(
    ("code", "error_type", "exit_code"),
    [
        ("1 / 0", "ZeroDivisionError", None),
        ("raise KeyboardInterrupt", "KeyboardInterrupt", None),
        ("def", "SyntaxError", None),
        ("raise SystemExit(3)", "SystemExit", 3),
        ("raise SystemExit", "SystemExit", 0),
        ("raise SystemExit('bye')", "SystemExit", 1),
    ],
)
def test_whatever_code_raises_becomes_the_error_of_the_answer(
    interpreter: None, monkeypatch: pytest.MonkeyPatch, code: str, error_type: str, exit_code: int | None
) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    answer = evaluator.Evaluator({}).execute(f"print('before')\n{code}")
    assert answer["ok"] is False
    assert answer["error"]["exc_type"] == error_type
    assert answer["error"].get("exit_code") == exit_code
    assert answer["error"]["stdout"] == ("" if error_type == "SyntaxError" else "before\n")
    assert type(vars(builtins)["_exc"]).__name__ == error_type
    assert sys.last_value is vars(builtins)["_exc"]


def test_at_a_terminal_output_goes_there_at_once(interpreter: None, monkeypatch: pytest.MonkeyPatch) -> None:
    real = io.StringIO()
    monkeypatch.setattr(sys, "stdout", real)
    running = evaluator.Evaluator({})
    assert running.interact("print('seen')\n40 + 2") == {
        "ok": True,
        "result": {"value_repr": "42", "stdout": "", "stderr": ""},
    }
    assert running.interact("x = 1")["result"]["value_repr"] is None
    assert real.getvalue() == "seen\n42\n"


def test_at_a_terminal_an_error_is_printed_unless_it_is_an_exit(
    interpreter: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = io.StringIO()
    monkeypatch.setattr(sys, "stderr", real)
    running = evaluator.Evaluator({})
    assert running.interact("raise SystemExit(2)")["error"]["exit_code"] == 2
    assert real.getvalue() == ""
    assert running.interact("1 / 0")["error"]["exc_type"] == "ZeroDivisionError"
    printed = real.getvalue()
    assert 'File "<live-2>", line 1' in printed
    assert "evaluator.py" not in printed


def test_an_error_that_cannot_be_formatted_is_printed_in_short(
    interpreter: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = io.StringIO()
    monkeypatch.setattr(sys, "stderr", real)
    monkeypatch.setattr(traceback, "format_exception", traceback.format_exception)  # put back at the end
    evaluator.Evaluator({}).interact("import traceback\ntraceback.format_exception = None\nraise ValueError('short')")
    assert real.getvalue() == "ValueError: short\n"


def test_the_sessions_trace_and_profile_functions_are_off_between_its_evaluations(running: evaluator.Evaluator) -> None:
    running.execute("import sys\ndef nothing(*_): pass\nsys.settrace(nothing)\nsys.setprofile(nothing)")
    assert (sys.gettrace(), sys.getprofile()) == (None, None)
    found = running.evaluate("(sys.gettrace() is nothing, sys.getprofile() is nothing)")
    assert found["result"]["value_repr"] == "(True, True)"
    assert (sys.gettrace(), sys.getprofile()) == (None, None)
