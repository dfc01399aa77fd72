"""Access: callers and policies, what one caller sees, and who has signed in to which server."""

from typing import Any

from msgspec.structs import replace

from toolfold.calls.confirm import _risk_text
from toolfold.errors import InvalidArguments, NotAuthorized, NotBuilt, ToolfoldError
from toolfold.faces.console.changes import _decide, _sign_out
from toolfold.faces.console.visit import _Page, _paged, _Redirect, _Visit
from toolfold.types import Caller

_TOOLS = 50


async def _access(visit: _Visit) -> _Page:
    seen = _seen(visit)
    signed_in = await visit.gateway.upstreams.credentials.summaries([visit.caller.name, *_others(visit)])
    values = {
        "title": "Access",
        **_configured(visit),
        "waiting": [(one, _risk_text(one.risks)) for one in visit.waiting],
        "wanted": seen.name if visit.query("as") and visit.admin else "",
        "seen": visit.gateway.access.resolve(seen),
        "sign_ins": [one for one in signed_in if visit.whose in (None, one.caller)],
        **await _visible(visit, seen),
    }
    return _Page("access.html", values)


def _others(visit: _Visit) -> list[str]:
    """Whose sign-ins are looked for besides one's own."""
    return ["", *(one.name for one in visit.gateway.settings.callers)] if visit.admin else []


def _configured(visit: _Visit) -> dict[str, Any]:
    """Callers and policies as they are configured, without keys; nothing to who is no administrator."""
    if not visit.admin:
        return {"callers": [], "policies": (), "issuer": ""}
    settings = visit.gateway.settings
    callers = [(one, bool(one.key)) for one in settings.callers]
    return {"callers": callers, "policies": settings.policies, "issuer": settings.auth.issuer}


def _seen(visit: _Visit) -> Caller:
    """Through whose eyes the tools are looked at."""
    wanted = visit.query("as") if visit.admin else ""
    if not wanted:
        return visit.caller
    entry = next((one for one in visit.gateway.settings.callers if one.name == wanted), None)
    if entry is None:
        raise InvalidArguments(f"no caller is called {wanted!r}", next_action="choose one of the list")
    return Caller(name=entry.name, policy=entry.policy, groups=tuple(entry.groups))


async def _visible(visit: _Visit, caller: Caller) -> dict[str, object]:
    """The tools that a caller sees, by page, and how many of each server."""
    try:
        view = visit.gateway.view(replace(caller, session=visit.caller.session))
        async with view.catalogue.snapshot() as snapshot:
            servers = {record.name: record.tools for record in await snapshot.servers() if record.tools}
            shown = _paged(await snapshot.tool_ids(), visit.number("page"), _TOOLS)
    except NotBuilt:
        return {"servers": {}, "problem": "", **_paged((), 1, _TOOLS)}
    except ToolfoldError as error:
        return {"servers": {}, "problem": error.message, **_paged((), 1, _TOOLS)}
    return {"servers": servers, "problem": "", **shown}


async def _revoke(visit: _Visit) -> _Redirect:
    """Ends a sign-in: one's own, or any for administrators."""
    server, owner = visit.form.get("server", "")[:200], visit.form.get("caller", "")[:200]
    if not visit.admin and (owner != visit.caller.name or server not in visit.gateway.upstreams.per_caller):
        raise NotAuthorized("that sign-in is not yours", next_action="ask whoever runs the gateway")
    left = await _sign_out(visit, server, owner)
    return _Redirect("/access", f"The sign-in to {server} is over.{f' {left}' if left else ''}")


async def _answer(visit: _Visit) -> _Redirect:
    """Says yes or no to a call that waits for a person."""
    yes = visit.form.get("yes") == "yes"
    what = await _decide(visit, visit.form.get("call", "")[:100], yes=yes)
    return _Redirect("/access", f"{'Allowed' if yes else 'Refused'}: {what}.")


GETS = {"/access": _access}
POSTS = {"/access/sign-out": _revoke, "/access/answer": _answer}
