"""Home: what folding saves, what is called and how it goes, which tools nobody uses, how the servers are."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from toolfold.audit.activity import HOUR_S, _Activity, _Figures
from toolfold.audit.savings import _count_definitions, _percent
from toolfold.errors import NotBuilt, ToolfoldError
from toolfold.faces.console.browser import _Undo
from toolfold.faces.console.changes import _hide_tool, _reconnect
from toolfold.faces.console.visit import _Page, _paged, _Redirect, _Visit
from toolfold.faces.mcp_server.profiles import client_tokens

log = logging.getLogger("toolfold.console")

# What is looked at, how long it is, and how many hours a point of the plots has.
_RANGES = {"24h": (24, 1, "24 hours"), "7d": (24 * 7, 6, "7 days"), "30d": (24 * 30, 24, "30 days")}
_TOP = 10
_UNUSED = 50
# A catalogue of ten thousand tools takes seconds to count, once: the page does not wait for it.
_PATIENCE_S = 0.3
_BYTES_A_TOKEN = 4.0


async def _home(visit: _Visit) -> _Page:
    hours, width, _ = _RANGES[which := visit.chosen("range", ("7d", "24h", "30d"))]
    activity = await visit.gateway.audit_log.activity()
    now = time.time()
    points = _points(activity, visit.whose, now, hours, width)
    costs = await _costs(visit)
    total = _Figures()
    for _, figures in points:
        total.join(figures)
    unused, hidden = await _unused(visit, activity)
    values = {
        "title": "Home",
        "which": which,
        "ranges": {key: name for key, (_, _, name) in _RANGES.items()},
        "total": total,
        "spent": _spent(total, costs),
        "costs": costs,
        "plots": _plots(points, costs),
        "rows": [(at, figures, _spent(figures, costs)) for at, figures in points if figures.steps],
        "top": activity.tools(visit.whose)[:_TOP],
        "unused": unused[:_TOP],
        "unused_total": len(unused),
        "hidden": hidden,
        "servers": await visit.servers(),
        "own": visit.gateway.upstreams.per_caller,
        "ever": activity.last(visit.whose) > 0,
        "complete": activity.complete and costs is not None,
    }
    return _Page("home.html", values)


def _points(activity: _Activity, whose: str | None, now: float, hours: int, width: int) -> list[tuple[float, _Figures]]:
    """One for each so many hours up to now, with those in which nothing happened."""
    last = int(now // HOUR_S) // width
    first = last - hours // width + 1
    joined = {point: _Figures() for point in range(first, last + 1)}
    for hour, figures in activity.hours(whose, first * width * HOUR_S).items():
        if hour // width in joined:
            joined[hour // width].join(figures)
    return [(point * width * HOUR_S, figures) for point, figures in joined.items()]


async def _costs(visit: _Visit) -> tuple[int, int, int, int] | None:
    """The number of tools, the tokens and bytes of their definitions, and the tokens that a client reads instead;
    `None` while that is being counted."""
    generations = await visit.view.catalogue.generations()
    if not generations:
        return 0, 0, 0, 0
    key = ("costs", visit.caller.kind, generations[-1].number)
    if key not in visit.memory:
        for old in [old for old in visit.memory if old[:2] == key[:2]]:
            del visit.memory[old]
        visit.memory[key] = asyncio.create_task(_count(visit))
    done, _ = await asyncio.wait([visit.memory[key]], timeout=_PATIENCE_S)
    for task in done:
        counted: tuple[int, int, int, int] | None = task.result()
        return counted
    return None


async def _count(visit: _Visit) -> tuple[int, int, int, int]:
    try:
        counted = await _count_definitions(visit.view.catalogue, visit.gateway.store)
        return *counted, await client_tokens(visit.gateway, "auto", visit.caller)
    except ToolfoldError as error:  # without token tables nothing is counted
        log.warning("definitions cannot be counted: %s", error.message)
        return 0, 0, 0, 0


def _spent(figures: _Figures, costs: tuple[int, int, int, int] | None) -> dict[str, Any]:
    """The tokens that these steps would have cost, and those that they did."""
    _, definitions, size, surface = costs or (0, 0, 0, 0)
    ratio = size / definitions if definitions else _BYTES_A_TOKEN
    full_definitions, shown_surface = figures.sessions * definitions, figures.sessions * surface
    full_results, shown_results = figures.whole_bytes / ratio, figures.folded_bytes / ratio
    full = round(full_definitions + full_results)
    shown = round(shown_surface + figures.page_tokens + figures.page_bytes / ratio + shown_results)
    return {
        "full": full,
        "shown": shown,
        "saved": full - shown,
        "percent": _percent(full, shown),
        "definitions": full_definitions,
        "results": round(full_results),
    }


def _plots(
    points: Sequence[tuple[float, _Figures]], costs: tuple[int, int, int, int] | None
) -> Sequence[Mapping[str, Any]]:
    times = [at for at, _ in points]
    spent = [_spent(figures, costs) for _, figures in points]
    return (
        _plot(
            "Tokens",
            times,
            ("without toolfold", [one["full"] for one in spent]),
            ("shown", [one["shown"] for one in spent]),
        ),
        _plot(
            "Calls", times, ("calls", [one.calls for _, one in points]), ("failed", [one.errors for _, one in points])
        ),
        _plot(
            "Time of a call, ms",
            times,
            ("95 of 100 within", [one.slower_than(0.95) for _, one in points]),
            ("half within", [one.slower_than(0.5) for _, one in points]),
        ),
    )


def _plot(title: str, times: Sequence[float], *lines: tuple[str, Sequence[float | None]]) -> Mapping[str, Any]:
    data = {"labels": [name for name, _ in lines], "data": [times, *(values for _, values in lines)]}
    return {"title": title, "data": data}


async def _unused(visit: _Visit, activity: _Activity) -> tuple[list[str], list[str]]:
    """The ids of tools that were never called, and of those that the owner hides."""
    used = {tool.tool_id.casefold() for tool in activity.tools(visit.whose)}
    try:
        async with visit.view.catalogue.snapshot() as snapshot:
            ids = await snapshot.tool_ids()
            records = await snapshot.servers()
    except NotBuilt:
        return [], []
    hidden = [tool_id for record in records for tool_id in record.hidden] if visit.admin else []
    return [tool_id for tool_id in ids if tool_id.casefold() not in used], hidden


async def _all_unused(visit: _Visit) -> _Page:
    wanted = visit.query("q").casefold()
    unused, hidden = await _unused(visit, await visit.gateway.audit_log.activity())
    found = [tool_id for tool_id in unused if wanted in tool_id.casefold()]
    values = _paged(found, visit.number("page"), _UNUSED)
    return _Page("unused.html", {"title": "Unused tools", "q": visit.query("q"), "hidden": hidden, **values})


async def _hide(visit: _Visit) -> _Redirect:
    tool_id, hide = visit.form.get("tool", "")[:300], visit.form.get("hide") == "yes"
    await _hide_tool(visit, tool_id, hide=hide)
    fields = {"tool": tool_id, "hide": "no" if hide else "yes", "back": _back(visit)}
    text = f"{tool_id} is hidden from every caller" if hide else f"{tool_id} is shown again"
    return _Redirect(_back(visit), f"{text}. Gateways follow within a second.", _Undo("/hide", fields))


def _back(visit: _Visit) -> str:
    return "/unused" if visit.form.get("back") == "/unused" else "/"


async def _refresh(visit: _Visit) -> _Redirect:
    name = visit.form.get("server", "")[:200]
    error = await _reconnect(visit, name)
    return _Redirect("/", f"{name} still does not answer: {error}" if error else f"{name} was read anew")


async def _sign_in(visit: _Visit) -> _Page:
    """The address at which a caller signs in to a server with an account of its own."""
    server, upstreams = visit.form.get("server", "")[:200], visit.gateway.upstreams
    if server not in upstreams.per_caller or visit.view.hides(server):
        raise NotBuilt("no server here has accounts of your own under that name", next_action="go back to the servers")
    sign_in = await upstreams.credentials.sign_ins.begin(server, visit.caller.name)
    return _Page("sign_in.html", {"title": f"Sign in to {server}", "server": server, "address": sign_in.url})


GETS = {"/": _home, "/unused": _all_unused}
POSTS = {"/hide": _hide, "/reconnect": _refresh, "/sign-in": _sign_in}
