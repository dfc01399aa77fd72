"""The evaluator and the session, called in the test's own process.

No process is forked, no signal handler is set and no trace function is changed: those calls are replaced and recorded.
"""

import builtins
import io
import os
import socket
import sys
import threading
import types
from _thread import get_ident
from collections.abc import Iterator
from typing import Any

import pytest

from toolfold.live.worker import evaluator, session_process
from toolfold.live.worker.frames import FrameReader, encode_frame
from toolfold.live.worker.limits import CODE_MAX, EXPRESSION_MAX
from toolfold.live.worker.originals import SIGINT


class Tracing:
    """Stands for the interpreter's trace and profile functions."""

    def __init__(self) -> None:
        self.trace: Any = None
        self.profile: Any = None

    def set_trace(self, function: Any) -> None:
        self.trace = function

    def set_profile(self, function: Any) -> None:
        self.profile = function


@pytest.fixture
def tracing(monkeypatch: pytest.MonkeyPatch) -> Tracing:
    """Puts back, at the end, all of the interpreter that an evaluation changes."""
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    for name in ("_", "_exc", "open_output"):
        monkeypatch.setitem(vars(builtins), name, None)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    state = Tracing()
    monkeypatch.setattr(evaluator, "_gettrace", lambda: state.trace)
    monkeypatch.setattr(evaluator, "_getprofile", lambda: state.profile)
    monkeypatch.setattr(evaluator, "_settrace", state.set_trace)
    monkeypatch.setattr(evaluator, "_setprofile", state.set_profile)
    return state


@pytest.fixture
def running(tracing: Tracing) -> evaluator.Evaluator:
    return evaluator.Evaluator({"tracing": tracing})


# evaluator


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
    tracing: Tracing, monkeypatch: pytest.MonkeyPatch, code: str, value: str | None, out: str
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
    tracing: Tracing, monkeypatch: pytest.MonkeyPatch, code: str, error_type: str, exit_code: int | None
) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    answer = evaluator.Evaluator({}).execute(f"print('before')\n{code}")
    assert answer["ok"] is False
    assert answer["error"]["exc_type"] == error_type
    assert answer["error"].get("exit_code") == exit_code
    assert answer["error"]["stdout"] == ("" if error_type == "SyntaxError" else "before\n")
    assert type(vars(builtins)["_exc"]).__name__ == error_type
    assert sys.last_value is vars(builtins)["_exc"]


def test_at_a_terminal_output_goes_there_at_once(tracing: Tracing, monkeypatch: pytest.MonkeyPatch) -> None:
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
    tracing: Tracing, monkeypatch: pytest.MonkeyPatch
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
    tracing: Tracing, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = io.StringIO()
    monkeypatch.setattr(sys, "stderr", real)
    monkeypatch.setattr("traceback.format_exception", lambda *_: 1 / 0)
    evaluator.Evaluator({}).interact("raise ValueError('short')")
    assert real.getvalue() == "ValueError: short\n"


def test_the_sessions_trace_function_is_off_between_its_evaluations(
    running: evaluator.Evaluator, tracing: Tracing
) -> None:
    running.execute("tracing.trace, tracing.profile = 'my trace', 'my profile'")
    assert (tracing.trace, tracing.profile) == (None, None)
    assert running.evaluate("(tracing.trace, tracing.profile)")["result"]["value_repr"] == "('my trace', 'my profile')"
    assert (tracing.trace, tracing.profile) == (None, None)


# session_process


class Signals:
    """Stands for the signal handlers of the process."""

    SIG_IGN = "ignored"
    default_int_handler = "default"

    def __init__(self) -> None:
        self.handlers: dict[int, Any] = {}
        self.history: list[Any] = []

    def signal(self, number: int, handler: Any) -> None:
        self.handlers[number] = handler
        self.history.append(handler)

    def getsignal(self, number: int) -> Any:
        return self.handlers[number]


class Host:
    """The supervisor's end of a session's socket."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.signals = Signals()
        self.exits: list[int] = []
        monkeypatch.setattr(session_process, "signal_functions", self.signals)
        monkeypatch.setattr(session_process, "exit_process", self.exits.append)
        self.link, self.session_link = socket.socketpair()
        self.side, self.session_side = socket.socketpair()
        self.link.settimeout(5)
        self.side.settimeout(5)
        options = {"commit_max_bytes": 0}
        self.session = session_process._Session(self.session_link, self.session_side, options, -1)

    def send(self, *frames: dict[str, Any]) -> None:
        self.link.sendall(b"".join(encode_frame(frame) for frame in frames))

    def served(self, *requests: dict[str, Any]) -> list[dict[str, Any]]:
        """What the session sends until the host hangs up."""
        self.send(*requests)
        self.link.shutdown(socket.SHUT_WR)
        self.session.serve()
        self.session_link.shutdown(socket.SHUT_WR)
        reader, frames = FrameReader(), []
        while data := self.link.recv(65536):
            frames += reader.feed(data)
        return frames

    def close(self) -> None:
        for end in (self.link, self.session_link, self.side, self.session_side):
            end.close()


@pytest.fixture
def host(tracing: Tracing, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    made = Host(monkeypatch)
    yield made
    made.close()


def test_a_session_answers_one_request_after_the_other_until_the_host_hangs_up(host: Host) -> None:
    frames = host.served(
        {"op": "execute", "expr": "number = 41", "id": 1},
        {"question": 9, "data": "the answer to a question that was interrupted"},
        {"op": "eval_expr", "expr": "number + 1", "id": 2},
        {"op": "list_globals", "id": 3},
        {"op": "complete", "text": "numb", "id": 4},
        {"op": "inspect", "expr": " number ", "id": 5},
        {"op": "inspect", "expr": "ValueErro" * 10_000, "id": 6},
    )
    answers = {frame["id"]: frame["answer"] for frame in frames if "answer" in frame}
    assert list(answers) == [1, 2, 3, 4, 5, 6]
    assert answers[2]["result"]["value_repr"] == "42"
    assert answers[3]["result"] == {"globals": [{"name": "number", "type_name": "int"}]}
    assert answers[4]["result"] == {"words": ["number"]}
    assert answers[5]["result"]["repr"]["text"] == "41"
    assert answers[6]["error"]["code"] == "invalid_arguments"
    assert [frame for frame in frames if "answer" not in frame] == [{"in_place": True}] * 2


def test_interrupts_reach_the_code_and_are_ignored_between_evaluations(host: Host) -> None:
    host.served({"op": "execute", "expr": "1"}, {"op": "interact", "expr": "2"})
    assert host.signals.history == ["ignored", "default", "ignored", "default", "ignored"]
    assert set(host.signals.handlers) == {SIGINT}


@pytest.mark.parametrize(("operation", "limit"), [("eval_expr", EXPRESSION_MAX), ("execute", CODE_MAX)])
def test_code_longer_than_allowed_is_refused(host: Host, operation: str, limit: int) -> None:
    answer = host.session._evaluate(operation, " " * (limit + 1))
    assert answer is not None
    assert answer["error"]["code"] == "invalid_arguments"
    assert f"{limit} are allowed" in answer["error"]["message"]


def test_an_evaluator_that_fails_itself_is_still_answered(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> Any:
        raise MemoryError("no room")

    monkeypatch.setattr(host.session._evaluator, "evaluate", broken)
    answer = host.session._run("eval_expr", "1")
    assert answer["error"]["message"] == "MemoryError: no room"
    assert host.session._asker == 0


class StandIn:
    """A snapshot that was never forked."""

    pid = 77
    discarded = False

    def discard(self) -> None:
        self.discarded = True


def test_a_snapshot_stands_by_during_an_evaluation_and_is_discarded(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = StandIn()
    monkeypatch.setattr(session_process, "can_snapshot", lambda _: True)
    monkeypatch.setattr(session_process, "Snapshot", lambda: snapshot)
    frames = host.served({"op": "eval_expr", "expr": "6 * 7", "id": 1})
    assert frames[0] == {"snapshot": 77}
    assert frames[1]["answer"]["result"]["value_repr"] == "42"
    assert snapshot.discarded


def test_a_session_that_cannot_fork_a_snapshot_evaluates_in_place(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Any:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(session_process, "can_snapshot", lambda _: True)
    monkeypatch.setattr(session_process, "Snapshot", refuse)
    frames = host.served({"op": "eval_expr", "expr": "1", "id": 1})
    assert frames[0] == {"in_place": True}
    assert frames[1]["answer"]["ok"] is True


def test_a_snapshot_that_becomes_the_session_drops_what_the_dead_one_was_sent(host: Host) -> None:
    host.send({"op": "execute", "expr": "lost"})
    host.session._waiting.append({"op": "execute", "expr": "lost too"})
    snapshot: Any = types.SimpleNamespace(pid=0)
    assert host.session._evaluate_with(snapshot, "execute", "the end") is None
    assert FrameReader().feed(host.side.recv(65536)) == [{"took_over": os.getpid()}]
    host.send({"op": "the next"})
    assert host.session._next() == {"op": "the next"}


def test_the_evaluating_thread_asks_the_host_and_takes_only_its_own_answer(host: Host) -> None:
    host.session._asker = get_ident()
    host.send({"question": 0, "data": "old"}, {"question": 1, "data": "mine"})
    assert host.session._ask({"ask": "read_output"}) == {"question": 1, "data": "mine"}
    assert FrameReader().feed(host.link.recv(65536)) == [{"ask": "read_output", "question": 1}]
    host.link.shutdown(socket.SHUT_WR)
    assert host.session._ask({"ask": "read_output"}) == {"error": "the session is ending"}
    assert host.session._asker == get_ident()


def test_another_thread_may_not_ask_the_host(host: Host) -> None:
    host.session._asker = get_ident()
    answers: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: answers.append(host.session._ask({"ask": "open_output"})))
    thread.start()
    thread.join()
    assert "not by another thread" in answers[0]["error"]


@pytest.mark.parametrize(("expression", "extra"), [("a.b", {}), ("if", {}), ("missing", {}), ("x", {5: 1, "x": 1})])
def test_what_a_lookup_cannot_tell_is_inspected_in_a_child(
    host: Host, monkeypatch: pytest.MonkeyPatch, expression: str, extra: dict[Any, Any]
) -> None:
    host.session._evaluator.names.update(extra)
    asked: list[str] = []

    def in_child(expr: str, deadline: float) -> dict[str, Any]:
        asked.append(expr)
        return {"deadline": deadline}

    monkeypatch.setattr(host.session, "_inspect_in_child", in_child)
    assert host.session._answer({"op": "inspect", "expr": expression, "deadline_s": 3}) == {"deadline": 3.0}
    assert asked == [expression]


def test_a_builtin_name_is_looked_up_behind_the_sessions_own(host: Host) -> None:
    assert host.session._lookup("len") is len
    host.session._evaluator.names["len"] = 5
    assert host.session._lookup("len") == 5


def test_a_session_that_cannot_fork_says_why_it_cannot_inspect(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Any:
        raise OSError("no more processes")

    monkeypatch.setattr(session_process, "InspectionChild", refuse)
    error = host.session._inspect("a.b", 1.0)["error"]
    assert error["code"] == "internal"
    assert error["message"] == "the session cannot fork: OSError: no more processes"


class Child:
    """An inspecting child that was never forked: what it sends is collected at once."""

    pid = 0

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def prepare(self, null: int) -> None:
        assert null == -1

    def send(self, frame: dict[str, Any]) -> None:
        self.sent.append(frame)

    def collect(self, deadline_s: float) -> tuple[list[dict[str, Any]], int, bool]:
        return self.sent, 0, False


@pytest.mark.parametrize(
    ("expression", "found"),
    [("[1, 2][0:]", ("repr", "[1, 2]")), ("1 / 0", ("error", "ZeroDivisionError: division by zero"))],
)
def test_a_child_sends_every_section_and_leaves(
    host: Host, monkeypatch: pytest.MonkeyPatch, expression: str, found: tuple[str, str]
) -> None:
    monkeypatch.setattr(session_process, "InspectionChild", Child)
    answer = host.session._inspect(expression, 1.0)
    texts = (answer["error"]["message"] if found[0] == "error" else answer["result"]["repr"]["text"],)
    assert texts == (found[1],)
    assert host.exits == [0]


def test_the_process_of_a_session_leaves_with_its_outcome(
    host: Host, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    host.link.close()
    session_process.run_session(host.session_link, host.session_side, {}, -1)
    assert host.exits == [0]
    host.session_link.close()
    session_process.run_session(host.session_link, host.session_side, {}, -1)
    assert host.exits == [0, 1]
    assert "live session: {'code': 'python_exception'" in capfd.readouterr().err
