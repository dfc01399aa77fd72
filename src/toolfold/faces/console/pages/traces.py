"""Traces: sessions, and in each what was searched, chosen, called and stored, with tokens, time and errors."""

import json
import re
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec

from toolfold.audit.record import Step
from toolfold.calls.confirm import _risk_text
from toolfold.calls.example_arguments import example_for
from toolfold.errors import InvalidArguments, NotAuthorized, ToolfoldError
from toolfold.faces.console.visit import _Page, _paged, _Visit
from toolfold.types import CallContext, Tool, ToolCall

_SESSIONS = 50
_STEPS = 200
# How many steps are read for one page, where a filter leaves most of them out.
_READ = 2_000
_BYTES_A_TOKEN = 4
# The calls that run a script.
_SCRIPT = "toolbox.run_"
ONLY = ("all", "calls", "failed")
_EXPORTED = 5_000
_MAX_ARGUMENTS = 32_000
_DANGERS = frozenset({"destructive", "unstated"})
_MAX_ANSWER = 64 * 1024


async def _sessions(visit: _Visit) -> _Page:
    activity = await visit.gateway.audit_log.activity()
    wanted, only = visit.query("q").casefold(), visit.chosen("only", ("all", "failed"))
    found = [
        one
        for one in activity.sessions(visit.whose)
        if (only == "all" or one.figures.errors)
        and (not wanted or any(wanted in text.casefold() for text in (one.caller, one.session, one.query, *one.tools)))
    ]
    values = {
        "q": visit.query("q"),
        "only": only,
        "ever": activity.last(visit.whose) > 0,
        "complete": activity.complete,
    }
    more, shown = urlencode({"q": values["q"], "only": only}), _paged(found, visit.number("page"), _SESSIONS)
    return _Page("traces.html", {"title": "Traces", "more": more, **values, **shown})


def _owner(visit: _Visit) -> str:
    """Whose session is asked for: one's own, or anybody's to administrators."""
    asked = visit.query("caller")
    if not visit.admin and asked not in ("", visit.caller.name):
        raise NotAuthorized(
            "this session is another caller's, or kept no more", next_action="choose one of the list of traces"
        )
    return asked if visit.admin else visit.caller.name


async def _session(visit: _Visit) -> _Page:
    caller = _owner(visit)
    session, only, after = visit.query("session"), visit.chosen("only", ONLY), visit.number("after", 0)
    q = visit.query("q")
    rows, last = await _steps(visit, (caller, session), after, only, q)
    query = {"caller": caller, "session": session}
    values = {
        "title": _title(session),
        "caller": caller,
        "session": session,
        "only": only,
        "q": q,
        "choices": {name: urlencode({**query, "only": name, "q": q}) for name in ONLY},
        "first": after == 0,
        "start": urlencode({**query, "only": only, "q": q}),
        "next": urlencode({**query, "only": only, "q": q, "after": last}) if last else "",
        "whole": urlencode(query),
        "steps": _lines(rows),
    }
    return _Page("session.html", values, 200 if rows or after or last else 404)


def _title(session: str) -> str:
    return f"Session {session}" if session else "Without a session"


async def _export(visit: _Visit) -> _Page:
    """The whole session as one file that needs nothing else."""
    caller = _owner(visit)
    session, after = visit.query("session"), 0
    rows: list[tuple[int, Step]] = []
    while len(rows) < _EXPORTED:
        more, after = await _steps(visit, (caller, session), after, "all", "")
        rows += more
        if not after:
            break
    if not rows:
        return await _session(visit)
    values = {
        "title": _title(session),
        "caller": caller,
        "session": session,
        "steps": _lines(rows),
        "cut": bool(after),
        "now": time.time(),
    }
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", session)[:80]
    return _Page("export.html", values, file="-".join(filter(None, ("session", plain))) + ".html")


async def _repeat(visit: _Visit) -> _Page:
    """A recorded call, with its arguments to be edited."""
    caller = _owner(visit)
    session, number = visit.query("session"), visit.number("step", 0)
    found = await visit.gateway.audit_log.page(caller, session, after=number - 1, first=1)
    step = next((step for at, step in found if at == number and step.step == "call"), None)
    if step is None:
        raise InvalidArguments("this call is recorded no more", next_action="go back to the session")
    tool = await visit.gateway.tool(step.tool_id, visit.caller)
    arguments, example, note = _proposed(visit, step, tool)
    back = urlencode({"caller": caller, "session": session})
    return _asked(visit, tool, _written(arguments), note=note, back=back, example=example)


def _proposed(visit: _Visit, step: Step, tool: Tool) -> tuple[Any, str, str]:
    """The arguments to begin with, an example to be read beside them, and what to know of them."""
    values = visit.gateway.settings.audit.values
    if step.arguments is not None and values != "shapes":
        cut = "The log cuts long values and masks what looks like a secret: see whether all of them are right."
        return step.arguments, "", cut if values == "masked" else ""
    made = example_for(msgspec.json.decode(tool.definition.input_schema))
    kept = "The log keeps no values (`audit.values`)"
    if "read-only" in tool.risks:
        return made, "", f"{kept}, so these are made up from the tool's schema: fill them in."
    # Nobody means what is made up.
    return {}, _written(made) if made else "", f"{kept}: write the arguments that you mean."


async def _repeated(visit: _Visit) -> _Page:
    """Calls the tool once more, as whoever looks at the page, and shows what it answered."""
    tool_id, text = visit.form.get("tool", "")[:500], visit.form.get("arguments", "")[:_MAX_ARGUMENTS]
    tool = await visit.gateway.tool(tool_id, visit.caller)
    try:
        arguments = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        return _asked(visit, tool, text, note=f"These are no arguments in JSON: {error}", status=400)
    began = time.perf_counter()
    try:
        # Whoever runs the gateway says yes by pressing the button; for others a policy's question stays open.
        outcome = await visit.gateway.call_tool(tool_id, arguments, caller=visit.caller, confirmed=visit.admin)
        answer, failed = outcome.text or "(nothing)", outcome.is_error
    except ToolfoldError as error:
        answer, failed = f"{error.code}: {error.message}\n{error.next_action}", True
    if len(answer) > _MAX_ANSWER:
        answer = f"{answer[:_MAX_ANSWER]}\n… {len(answer) - _MAX_ANSWER:,} characters more"
    said: dict[str, Any] = {
        "answered": True,
        "answer": answer,
        "failed": failed,
        "seconds": time.perf_counter() - began,
    }
    return _asked(visit, tool, text, **said)


def _asked(
    visit: _Visit, tool: Tool, text: str, *, note: str = "", back: str = "", status: int = 200, **said: Any
) -> _Page:
    values = {
        "title": f"Repeat {tool.tool_id}",
        "tool_id": tool.tool_id,
        "risks": _risk_text(tool.risks),
        "harmless": "read-only" in tool.risks,
        "dangerous": not _DANGERS.isdisjoint(tool.risks),
        "asks": visit.gateway.access.requires_confirmation(ToolCall(tool=tool), CallContext(caller=visit.caller)),
        "arguments": text,
        "note": note,
        "back": back,
    }
    return _Page("repeat.html", {**values, "answered": False, "example": "", **said}, status)


def _written(arguments: Any) -> str:
    return json.dumps(arguments, indent=2, ensure_ascii=False)


async def _steps(
    visit: _Visit, whose: tuple[str, str], after: int, only: str, q: str
) -> tuple[Sequence[tuple[int, Step]], int]:
    """Some steps that fit, and the number to go on after; 0 at the end."""
    found: list[tuple[int, Step]] = []
    read = 0
    while read < _READ:
        rows = await visit.gateway.audit_log.page(*whose, after=after, first=_STEPS)
        for number, step in rows:
            after, read = number, read + 1
            if _fits(step, only, q.casefold()):
                found.append((number, step))
            if len(found) == _STEPS:
                return found, after
        if len(rows) < _STEPS:
            return found, 0
    return found, after


def _fits(step: Step, only: str, q: str) -> bool:
    kind = only == "all" or (step.step == "call" if only == "calls" else bool(step.code or step.is_error))
    return kind and (not q or q in f"{step.tool_id} {step.query} {step.code} {step.message}".casefold())


def _lines(rows: Sequence[tuple[int, Step]]) -> list[dict[str, Any]]:
    """The steps in the order in which they began, with what they cost, and a bar for each: in a script where it stood
    within that, else its length beside the longest. A script is recorded when it ends, after its calls."""
    scripts = [step for _, step in rows if step.step == "call" and step.tool_id.startswith(_SCRIPT)]
    slowest = max((step.seconds for _, step in rows), default=0.0)
    lines = [_line(step, number, _script_of(step, scripts), slowest) for number, step in rows]
    return sorted(lines, key=lambda line: (line["step"].at, line["script"] is not None))


def _script_of(step: Step, scripts: Sequence[Step]) -> Step | None:
    """The script that made this call. What another client of the session calls meanwhile looks the same."""
    if step.step != "call" or step.tool_id.startswith(_SCRIPT):
        return None
    return next((one for one in scripts if one.at <= step.at and step.at + step.seconds <= one.at + one.seconds), None)


def _line(step: Step, number: int, script: Step | None, slowest: float) -> dict[str, Any]:
    """A step with what it cost: exactly, where its tokens were counted."""
    size = step.result_bytes if step.step == "call" else step.shown_bytes
    exact = step.shown_tokens is not None
    tokens = step.shown_tokens if exact else round((size or 0) / _BYTES_A_TOKEN)
    began, whole = (step.at, slowest) if script is None else (script.at, script.seconds)
    return {
        "step": step,
        "repeat": urlencode({"caller": step.caller, "session": step.session, "step": number}),
        "kind": "script" if step.step == "call" and step.tool_id.startswith(_SCRIPT) else step.step,
        "tokens": tokens,
        "exact": exact,
        "failed": bool(step.code or step.is_error),
        "script": script,
        "left": _share(step.at - began, whole),
        "width": _share(step.seconds, whole),
    }


def _share(seconds: float, whole: float) -> float:
    return round(100 * seconds / whole, 2) if whole > 0 else 0.0


GETS = {
    "/traces": _sessions,
    "/traces/session": _session,
    "/traces/export": _export,
    "/traces/repeat": _repeat,
}
POSTS = {"/traces/repeat": _repeated}
