"""A run as people and models read it: all that happened is in the JSON and in the text."""

import pytest

from toolfold.errors import ScriptError
from toolfold.scripts import report
from toolfold.scripts.declarations import use_tools
from toolfold.scripts.values import CallRecord, Need, ScriptProblem, ScriptResult

TRACEBACK = "one\ntwo\nthree\nfour\nfive\n"
FAILED = ScriptResult(
    run="run-1",
    outcome="failed",
    answer={"n": 1},
    stdout="printed\n",
    stderr="warned\n",
    output_dropped=1_500,
    code=3,
    error=ScriptProblem(
        type="ValueError", message="no", line=2, source="f()", traceback=TRACEBACK, next_action="try again"
    ),
    needs=(
        Need(query="get the log", line=1, tool_id="git.git_log", confidence=0.87654),
        Need(
            query="fly",
            server="air",
            line=2,
            problem="no tool fits 'fly'",
            hints=({"tool_id": "git.git_log", "summary": "Lists commits"},),
        ),
    ),
    calls=(
        CallRecord(tool_id="git.git_log", ok=True, seconds=0.25),
        CallRecord(tool_id="git.git_log", ok=False, seconds=0.5, code="TOOL_FAILED"),
    ),
    warnings=("odd",),
    seconds=1.0,
    unsafe=True,
)


def test_the_json_has_everything_and_sums_calls_up_by_tool() -> None:
    assert report.as_dict(FAILED) == {
        "run": "run-1",
        "ok": False,
        "outcome": "failed",
        "answer": {"n": 1},
        "code": 3,
        "error": {
            "type": "ValueError",
            "message": "no",
            "line": 2,
            "source": "f()",
            "traceback": TRACEBACK,
            "next_action": "try again",
        },
        "stdout": "printed\n",
        "stderr": "warned\n",
        "needs": [
            {"need": "get the log", "line": 1, "tool_id": "git.git_log", "confidence": 0.8765},
            {
                "need": "fly",
                "line": 2,
                "server": "air",
                "tool_id": None,
                "problem": "no tool fits 'fly'",
                "candidates": ["git.git_log"],
                "hints": [{"tool_id": "git.git_log", "summary": "Lists commits"}],
            },
        ],
        "calls": [{"tool_id": "git.git_log", "calls": 2, "failed": 1, "seconds": 0.75, "codes": {"TOOL_FAILED": 1}}],
        "seconds": 1.0,
        "sandbox": [],
        "output_dropped_bytes": 1_500,
        "warnings": ["odd"],
        "unsafe": True,
    }


def test_the_text_has_the_needs_the_output_the_summary_the_error_and_how_it_went() -> None:
    error = f"ValueError in line 2: f()\n  no\n  next: try again\n{TRACEBACK.rstrip()}"
    needs = ["['get the log' -> git.git_log (0.88)]", "['fly' -> nothing fits; nearest: git.git_log (Lists commits)]"]
    outcome = [
        "[the script failed (code 3); 2 calls, 1.00 s]",
        "[warning: odd]",
        "[1,500 bytes of output were dropped: print less]",
        "[unsafe: this script ran without a sandbox]",
    ]
    parts = ["\n".join(needs), "printed", 'summary: {"n":1}', error, "stderr:\nwarned", "\n".join(outcome)]
    assert report.as_text(FAILED) == "\n\n".join(parts)
    assert report.summary_lines(FAILED) == [error, *outcome]


def test_a_quiet_run_is_one_line() -> None:
    result = ScriptResult(run="run-2", outcome="exited", calls=(CallRecord(tool_id="a.b", ok=True, seconds=0.1),))
    assert result.ok
    assert report.as_text(result) == "[the script left with exit(); 1 call, 0.00 s]"


def test_use_tools_outside_a_script_says_where_it_works() -> None:
    with pytest.raises(ScriptError, match="only in scripts") as caught:
        use_tools("get the log")
    assert list(caught.value.hints) == ["'get the log' was asked for"]
    assert "toolfold run" in caught.value.next_action
