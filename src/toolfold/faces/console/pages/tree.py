"""Tree: the catalogue as a model walks it, moved by a person's own rules; and what changed, with what was accepted."""

from difflib import unified_diff
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import Raw

from toolfold.errors import InvalidArguments, NotBuilt
from toolfold.faces.console.changes import _accept, _move
from toolfold.faces.console.visit import _Page, _paged, _Redirect, _Visit
from toolfold.gateway import Branch
from toolfold.text import as_path

_TOOLS = 50
_CHANGES = 50
# Categories that the page draws below the root and below the chosen one.
_DEPTH = 2
_MAX_LINES = 400
_PLACES = 2_000


async def _tree(visit: _Visit) -> _Page:
    path = as_path(visit.request.query_params.getlist("path")[:20])
    try:
        tree = await visit.gateway.tree((), depth=_DEPTH, caller=visit.caller)
        place = await _place(visit, path)
    except NotBuilt:
        return _Page("tree.html", {"title": "Tree", "branches": (), "path": path})
    standings = visit.gateway.trust.latest.standings if visit.admin else ()
    values = {
        "title": "Tree",
        "path": path,
        "branches": tree.branches,
        "links": _links(tree.branches),
        "tools": tree.tools,
        "waiting": sum(one.state != "accepted" for one in standings),
        "flagged": sum(bool(one.flags) for one in standings),
        "more": urlencode([("path", name) for name in path]),
        **place,
    }
    return _Page("tree.html", values, 200 if place["found"] else 404)


async def _place(visit: _Visit, path: tuple[str, ...]) -> dict[str, Any]:
    """The category at a path, or the root: its tools by page, what is below it, and where things can be moved to."""
    async with visit.view.catalogue.snapshot() as snapshot:
        node = await snapshot.node(path) if path else None
        ids = await snapshot.tool_ids() if not path else await snapshot.tool_ids_at(path)
        shown = _paged(ids, visit.number("page"), _TOOLS)
        tools = await snapshot.tools(ids=shown["entries"])
        below = await snapshot.children(path) if node else []
        places = [one.path for one in await snapshot.nodes() if one.rank <= 0]
    review = visit.gateway.trust.latest
    flags = {tool.tool_id: review.flags.get(tool.fingerprint, ()) for tool in tools}
    found = node is not None or not path
    more = {"node": node, "found": found, "below": below, "places": places[:_PLACES]}
    return {**shown, **more, "entries": tools, "flags": flags, "held": review.held}


def _links(branches: tuple[Branch, ...]) -> dict[tuple[str, ...], str]:
    """The query that leads to each category."""
    found: dict[tuple[str, ...], str] = {}
    for branch in branches:
        found[branch.node.path] = urlencode([("path", name) for name in branch.node.path])
        found |= _links(branch.children)
    return found


async def _move_here(visit: _Visit) -> _Redirect:
    """A tool or a category stands elsewhere from now on."""
    to = as_path(visit.form.get("to", "").replace("\u203a", "/")[:500])
    tool_id, path = visit.form.get("tool", "")[:300], as_path(visit.form.get("path", "").replace("\u203a", "/")[:500])
    if not to or not (tool_id or path):
        raise InvalidArguments(
            "it is not said what moves where", next_action="name a category, such as Coding / Reviews"
        )
    subject: dict[str, Any] = {"tools": [tool_id]} if tool_id else {"path": list(path)}
    rule = await _move(visit, "move", subject, list(to))
    what = tool_id or " / ".join(path)
    target = urlencode([("path", name) for name in to])
    return _Redirect(f"/tree?{target}", f"{what} stands in {' / '.join(to)} now. In ontology.toml: {rule}")


async def _rename(visit: _Visit) -> _Redirect:
    path, name = as_path(visit.form.get("path", "")[:500]), visit.form.get("name", "").strip()[:100]
    if not path or not name:
        raise InvalidArguments("a category needs a name", next_action="give it one")
    rule = await _move(visit, "rename", {"path": list(path)}, name)
    target = urlencode([("path", step) for step in (*path[:-1], name)])
    return _Redirect(f"/tree?{target}", f"{path[-1]} is called {name} now. In ontology.toml: {rule}")


async def _changes(visit: _Visit) -> _Page:
    """Tools that changed since they were accepted, or look odd, with what is different."""
    visit.require_admin()
    review = await visit.gateway.trust.review()
    standings = sorted(review.standings, key=lambda one: (one.state == "accepted", one.tool_id))
    shown = _paged(standings, visit.number("page"), _CHANGES)
    entries = []
    for standing in shown["entries"]:
        tool, accepted = await visit.gateway.trust.definitions(standing.tool_id)
        before = _lines(accepted.sent) if accepted is not None else []
        lines = list(unified_diff(before, _lines(tool.definition.sent), lineterm="", n=1))[2:]
        entries.append((standing, lines[:_MAX_LINES], len(lines)))
    recent = await visit.gateway.diff()
    values = {"title": "Changed tools", **shown, "entries": entries, "tools": review.tools, "recent": recent[:_CHANGES]}
    return _Page("changes.html", values)


def _lines(raw: Raw) -> list[str]:
    """A tool object as lines of JSON, with escapes for what does not print: that is how a text hides from people."""
    text = msgspec.json.format(bytes(raw), indent=2).decode("utf-8", "replace")
    return [
        "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in line) for line in text.split("\n")
    ]


async def _accepted(visit: _Visit) -> _Redirect:
    tool_id = visit.form.get("tool", "")[:300]
    await _accept(visit, tool_id)
    return _Redirect("/tree/changes", f"{tool_id} is accepted as it is now.")


GETS = {"/tree": _tree, "/tree/changes": _changes}
POSTS = {"/tree/move": _move_here, "/tree/rename": _rename, "/tree/accept": _accepted}
