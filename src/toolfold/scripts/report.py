"""A run as people and models read it: a short text, or plain JSON. Nothing is left out without saying so."""

from collections.abc import Mapping
from typing import Any

import msgspec

from toolfold.outputs.tool_output_definition import too_large_message
from toolfold.scripts.values import CallRecord, Need, ScriptResult
from toolfold.types import Stored

__all__ = ["as_dict", "as_text", "summary_lines"]

_NOTHING: Mapping[str, Stored] = {}
_OUTCOMES = {
    "finished": "the script finished",
    "failed": "the script failed",
    "exited": "the script left with exit()",
    "left": "the script's process ended without a word, as by os._exit",
    "interrupted": "the script raised KeyboardInterrupt",
    "input_refused": "the script wanted input, which nobody can give it",
    "timed_out": "the script was ended: it took too long",
    "out_of_memory": "the script was ended: it needed too much memory",
    "crashed": "the script's process crashed",
    "killed": "the script was ended from outside",
    "protocol_violation": "the script was ended: it wrote nonsense on the channel to its host",
}


def as_dict(result: ScriptResult, stored: Mapping[str, Stored] = _NOTHING) -> dict[str, Any]:
    """Plain JSON values. Calls are summed up by tool. `stored` is what was printed and is too large to show."""
    report: dict[str, Any] = {"run": result.run, "ok": result.ok, "outcome": result.outcome, "answer": result.answer}
    kept = {"answer": result.stored, **stored}
    report |= {f"{name}_stored": {"handle": one.handle, "bytes": one.bytes} for name, one in kept.items() if one}
    if result.code is not None:
        report["code"] = result.code
    if result.error is not None:
        report["error"] = msgspec.to_builtins(result.error)
    report |= {
        **{name: "" if name in stored else getattr(result, name) for name in ("stdout", "stderr")},
        "needs": [_need_dict(need) for need in result.needs],
        "calls": _calls_by_tool(result.calls),
        "seconds": result.seconds,
        "sandbox": list(result.layers),
    }
    rest = {"output_dropped_bytes": result.output_dropped, "warnings": [*result.warnings], "unsafe": result.unsafe}
    return report | {name: value for name, value in rest.items() if value}


def as_text(result: ScriptResult, stored: Mapping[str, Stored] = _NOTHING) -> str:
    """What a model reads: what the needs became, the printed output, the summary, then how it went."""
    stdout, stderr = (
        too_large_message(stored[name]) if name in stored else getattr(result, name) for name in ("stdout", "stderr")
    )
    parts = ["\n".join(f"[{need.shown}]" for need in result.needs)] if result.needs else []
    if stdout.strip():
        parts.append(stdout.rstrip())
    if result.answer is not None:
        parts.append("summary: " + msgspec.json.encode(result.answer).decode())
    if result.stored is not None:
        parts.append("summary: " + too_large_message(result.stored))
    parts += _error_text(result)
    if stderr.strip():
        parts.append("stderr:\n" + stderr.rstrip())
    parts.append("\n".join(_outcome_lines(result)))
    return "\n\n".join(parts)


def summary_lines(result: ScriptResult) -> list[str]:
    """What a person reads beside the output: where a large summary is, the error, then how it went."""
    stored = [f"[summary: {result.stored.bytes:,} bytes, stored as {result.stored.handle}]"] if result.stored else []
    return [*stored, *_error_text(result), *_outcome_lines(result)]


def _need_dict(need: Need) -> dict[str, Any]:
    report: dict[str, Any] = {"need": need.query, "line": need.line}
    if need.server is not None:
        report["server"] = need.server
    if need.tool_id:
        return {**report, "tool_id": need.tool_id, "confidence": round(need.confidence, 4)}
    near = {"candidates": list(need.candidates), "hints": list(need.hints)}
    return {**report, "tool_id": None, "problem": need.problem, **near}


def _calls_by_tool(calls: tuple[CallRecord, ...]) -> list[dict[str, Any]]:
    entries: dict[str, dict[str, Any]] = {}
    for call in calls:
        entry = entries.setdefault(call.tool_id, {"tool_id": call.tool_id, "calls": 0, "failed": 0, "seconds": 0.0})
        entry["calls"] += 1
        entry["failed"] += not call.ok
        entry["seconds"] = round(entry["seconds"] + call.seconds, 6)
        if call.code:
            codes = entry.setdefault("codes", {})
            codes[call.code] = codes.get(call.code, 0) + 1
    return list(entries.values())


def _error_text(result: ScriptResult) -> list[str]:
    """The error as one text; nothing where there is none."""
    error = result.error
    if error is None:
        return []
    where = f" in line {error.line}: {error.source}" if error.line else ""
    lines = [f"{error.type}{where}", f"  {error.message}"]
    if error.next_action:
        lines.append(f"  next: {error.next_action}")
    # A traceback of one frame says no more than the line above.
    if error.traceback.count("\n") > 3:
        lines.append(error.traceback.rstrip())
    return ["\n".join(lines)]


def _outcome_lines(result: ScriptResult) -> list[str]:
    code = f" (code {result.code})" if result.code else ""
    calls = len(result.calls)
    lines = [f"[{_OUTCOMES[result.outcome]}{code}; {calls} call{'' if calls == 1 else 's'}, {result.seconds:.2f} s]"]
    lines += [f"[warning: {warning}]" for warning in result.warnings]
    if result.output_dropped:
        lines.append(f"[{result.output_dropped:,} bytes of output were dropped: print less]")
    if result.unsafe:
        lines.append("[unsafe: this script ran without a sandbox]")
    return lines
