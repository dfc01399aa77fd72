"""Traces: sessions, and in each what was searched, chosen, called and stored, with tokens, time and errors."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from toolfold.audit.record import Step
from toolfold.faces.console.visit import Work, _Page, _paged, _Visit

_SESSIONS = 50
_STEPS = 200
# How many steps are read for one page, where a filter leaves most of them out.
_READ = 2_000
_BYTES_A_TOKEN = 4
ONLY = ("all", "calls", "failed")


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


async def _session(visit: _Visit) -> _Page:
    caller = visit.query("caller") if visit.admin else visit.caller.name
    session, only, after = visit.query("session"), visit.chosen("only", ONLY), visit.number("after", 0)
    q = visit.query("q")
    rows, last = await _steps(visit, (caller, session), after, only, q)
    query = {"caller": caller, "session": session}
    values = {
        "title": f"Session {session or 'without a name'}",
        "caller": caller,
        "session": session,
        "only": only,
        "q": q,
        "choices": {name: urlencode({**query, "only": name, "q": q}) for name in ONLY},
        "first": after == 0,
        "start": urlencode({**query, "only": only, "q": q}),
        "next": urlencode({**query, "only": only, "q": q, "after": last}) if last else "",
        "steps": [_line(step, number) for number, step in rows],
        "slowest": max((step.seconds for _, step in rows), default=0.0),
        "ranks": ("search", "choose", "expand", "call"),
    }
    return _Page("session.html", values, 200 if rows or after else 404)


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


def _line(step: Step, number: int) -> dict[str, Any]:
    """A step with what it cost: exactly, where its tokens were counted."""
    size = step.result_bytes if step.step == "call" else step.shown_bytes
    exact = step.shown_tokens is not None
    tokens = step.shown_tokens if exact else round((size or 0) / _BYTES_A_TOKEN)
    script = step.tool_id.startswith("toolbox.run_")
    return {
        "step": step,
        "number": number,
        "kind": "script" if step.step == "call" and script else step.step,
        "tokens": tokens,
        "exact": exact,
        "failed": bool(step.code or step.is_error),
    }


GETS = {"/traces": _sessions, "/traces/session": _session}
POSTS: dict[str, Work] = {}
