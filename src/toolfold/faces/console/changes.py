"""What a person changes from the console, written to the files that the command line writes.

Each change is refused to whoever is no administrator, recorded in the audit log, and followed by every gateway that
reads the file. Above: the pages. Below: the configuration.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from glob import escape
from typing import Any

from toolfold.catalogue.ontology import Overrides
from toolfold.config.toml_file import TomlFile
from toolfold.errors import ConfigError, InvalidArguments, ToolfoldError
from toolfold.faces.console.visit import _Visit
from toolfold.faces.http_api.admin import _Admin


async def _recorded(visit: _Visit, what: str, work: Callable[[], Awaitable[Any]]) -> Any:
    """Runs a change for an administrator, and records it or why it was refused."""
    log = visit.gateway.audit_log
    try:
        visit.require_admin()
        answer = await work()
    except ToolfoldError as error:
        log.record_change(visit.caller, what, error)
        raise
    log.record_change(visit.caller, what)
    return answer


async def _hide_tool(visit: _Visit, tool_id: str, *, hide: bool) -> None:
    """Writes `hide` into the tool's table of `toolfold.toml`, and takes it out again."""

    async def work() -> None:
        admin = _Admin(visit.gateway)
        file = admin.file()
        await asyncio.to_thread(_switch_hide, admin.toml(file), escape(tool_id), admin, hide)

    await _recorded(visit, f"console: {'hide' if hide else 'show'} {tool_id[:200]}", work)


def _switch_hide(file: TomlFile, name: str, admin: _Admin, hide: bool) -> None:
    table = file.tables("tools").get(name, {})
    new = {key: value for key, value in table.items() if key != "hide"} | ({"hide": True} if hide else {})
    if new != table:
        file.put("tools", name, new or None, admin.check)


async def _reconnect(visit: _Visit, name: str) -> str:
    """Connects to a server anew and reads it; returns what went wrong, if anything did."""

    async def work() -> str:
        known = next((one.name for one in await visit.servers() if one.name == name), None)
        if known is None:
            raise ConfigError(
                f"no server is called {name!r}", next_action="go back: the page shows those that are there"
            )
        (await visit.gateway.pool()).reopen(known, "somebody asked for a new connection")
        await visit.gateway.reread(known)
        [state] = [one for one in await visit.servers() if one.name == known]
        return state.error

    return str(await _recorded(visit, f"console: refresh {name[:200]}", work))


async def _teach(visit: _Visit, need: str, tool_id: str) -> bool:
    """Keeps for search which tool was right for a need; says whether search learns here at all."""

    async def work() -> bool:
        tool = await visit.view.tool(tool_id)
        return await visit.gateway.search.learn(need, tool.tool_id)

    return bool(await _recorded(visit, f"console: the tool for {need[:200]!r} is {tool_id[:200]}", work))


async def _decide(visit: _Visit, key: str, *, yes: bool) -> str:
    """Answers a call that waits for a person; returns which it was."""
    approvals = visit.gateway.access.approvals
    held = next((one for one in approvals.waiting if one.key == key), None)
    what = "a call" if held is None else f"the call of {held.tool_id[:200]} by {held.caller.name}"

    async def work() -> str:
        if approvals.decide(key, yes=yes) is None:
            raise InvalidArguments(
                "this call waits no more: somebody has answered, or it was given up",
                next_action="go back: the page shows those that wait",
            )
        return what

    return str(await _recorded(visit, f"console: {'allow' if yes else 'refuse'} {what}", work))


async def _accept(visit: _Visit, tool_id: str) -> None:
    """Accepts a changed tool as it is now."""

    async def work() -> None:
        await visit.gateway.trust.accept([tool_id])

    await _recorded(visit, f"console: accept {tool_id[:200]}", work)


async def _move(visit: _Visit, kind: str, subject: dict[str, Any], to: Sequence[str] | str) -> str:
    """Adds a rule to `ontology.toml` and sorts the catalogue anew; returns the rule as it is written there."""

    async def work() -> str:
        file = visit.gateway.settings.ontology_file
        if file is None:
            raise ConfigError(
                "no file for an order of your own is configured",
                next_action="make an empty ontology.toml, name it as `file` in [ontology] of toolfold.toml, and start "
                "the gateway anew",
            )
        text = await asyncio.to_thread(Overrides.append, file, kind, {**subject, "to": to})
        await visit.gateway.build(tell=False)
        return text.strip()

    what = f"console: {kind} {[*subject.values()]} to {to}"
    return str(await _recorded(visit, what[:400], work))


async def _sign_out(visit: _Visit, server: str, owner: str) -> str:
    """Ends a sign-in here and at its issuer; returns what lives on. One's own needs no administrator."""
    upstreams = visit.gateway.upstreams

    async def work() -> str:
        _, left = await upstreams.credentials.sign_out(server, owner)
        upstreams.sign_in_changed(server, owner)
        return left

    if owner and owner == visit.caller.name:
        return await work()
    return str(await _recorded(visit, f"console: sign out of {server}", work))
