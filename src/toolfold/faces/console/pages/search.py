"""Search: how tools are ranked for a need and why, what a model would receive, and two needs beside each other."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from toolfold.disclosure.render import render_tool_page
from toolfold.errors import InvalidArguments, ToolfoldError
from toolfold.faces.console.changes import _teach
from toolfold.faces.console.visit import _Page, _Redirect, _Visit
from toolfold.faces.surface.instructions import count_tokens
from toolfold.faces.surface.results import error_dict
from toolfold.search.service import _shares
from toolfold.types import Hit

_SHOWN = 10
_MAX_NEED = 500


class _Ranking(Struct, frozen=True):
    """What came of one need."""

    need: str
    hits: Sequence[tuple[Hit, str, dict[str, float]]] = ()
    threshold: float = 0.0
    received: str = ""
    tokens: int = 0
    problem: str = ""
    named: frozenset[str] = frozenset()
    """The tools that a model reads of, be it as the nearest where none fits."""


async def _search(visit: _Visit) -> _Page:
    needs = [need for need in (visit.query("q", most=_MAX_NEED), visit.query("beside", most=_MAX_NEED)) if need.strip()]
    values = {
        "title": "Search",
        "q": visit.query("q", most=_MAX_NEED),
        "beside": visit.query("beside", most=_MAX_NEED),
        "rankings": [await _ranking(visit, need) for need in needs],
        "learned": await visit.gateway.search.count_choices() if needs and visit.admin else None,
    }
    return _Page("search.html", values)


async def _ranking(visit: _Visit, need: str) -> _Ranking:
    """The hits of a need. Nothing of it is recorded: it is no request of an agent."""
    search, view = visit.gateway.search, visit.view
    try:
        hits = await search.hits(view, need, (), limit=_SHOWN)
        async with view.catalogue.snapshot() as snapshot:
            tools = {tool.tool_id: tool.summary for tool in await snapshot.tools(ids=[hit.tool_id for hit in hits])}
        threshold = await search.threshold(need)
        received = await _received(visit, need)
    except ToolfoldError as error:
        return _Ranking(need, problem=f"{error.message}. {error.next_action or ''}")
    text = msgspec.json.format(msgspec.json.encode(received, enc_hook=str), indent=2).decode("utf-8", "replace")
    tokens = count_tokens(msgspec.json.encode(received, enc_hook=str).decode("utf-8", "replace"))
    shown = [(hit, tools.get(hit.tool_id, ""), _shares(hit.why)) for hit in hits]
    return _Ranking(need, shown, threshold, text, tokens, named=_named(received))


def _named(received: Mapping[str, Any]) -> frozenset[str]:
    entries = received["error"].get("hints", ()) if "error" in received else received["results"]
    return frozenset(one["tool_id"] for one in entries if isinstance(one, dict) and "tool_id" in one)


async def _received(visit: _Visit, need: str) -> Any:
    """What a model reads after this search, be it that nothing fits."""
    try:
        return render_tool_page(await visit.gateway.search.search_tools(visit.view, need, (), limit=5, cursor=None))
    except ToolfoldError as error:
        return {"error": error_dict(error)}


async def _learn(visit: _Visit) -> _Redirect:
    need, tool_id = visit.form.get("need", "").strip()[:_MAX_NEED], visit.form.get("tool", "").strip()[:300]
    if not need:
        raise InvalidArguments("no need was said", next_action="type what is needed, then name the right tool")
    learned = await _teach(visit, need, tool_id)
    text = f"Kept here: for {need!r} the right tool is {tool_id}. Search learns from it at once."
    text = text if learned else "Search does not learn here: `audit.learn` is off."
    return _Redirect(
        f"/search?{urlencode({'q': need})}", text if learned else "Search does not learn here: `audit.learn` is off."
    )


GETS = {"/search": _search}
POSTS = {"/search/learn": _learn}
