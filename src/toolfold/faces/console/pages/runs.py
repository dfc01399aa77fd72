"""Scripts and runs: scripts that are kept, with what their needs led to; agents' runs, turn by turn."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolfold.errors import ConfigError, ToolfoldError
from toolfold.faces.console.visit import Work, _Page, _paged, _Visit
from toolfold.scripts.kept import SERVER, _KeptScript
from toolfold.scripts.lock import SUFFIX

_RUNS = 50
_MAX_SOURCE = 64 * 1024
_MAX_SHOWN = 4_000
_MAX_EVENTS = 2_000
_SCRIPT = "toolbox.run_script"


async def _runs(visit: _Visit) -> _Page:
    activity = await visit.gateway.audit_log.activity()
    sessions = [one for one in activity.sessions(visit.whose) if _SCRIPT in one.tools]
    # What agents did is recorded beside the configuration, whoever asked for it: for administrators.
    recorded = await asyncio.to_thread(visit.gateway.agent(model="").runs) if visit.admin else []
    shown = _paged(recorded, visit.number("page"), _RUNS)
    folder = visit.gateway.settings.scripts_folder
    kept = await asyncio.to_thread(_kept, folder) if visit.admin and folder is not None else []
    values = {"title": "Scripts and runs", "sessions": sessions[:_RUNS], "kept": kept, **shown}
    return _Page("runs.html", values)


def _kept(folder: Path) -> Sequence[dict[str, Any]]:
    return [_script(_KeptScript(file)) for file in sorted(folder.glob("*.py"))[:500]]


def _script(script: _KeptScript) -> dict[str, Any]:
    """A script with what its lock says of its needs, and why it cannot be run, if it cannot."""
    about: dict[str, Any] = {"name": script.name, "tool_id": f"{SERVER}.{script.name}", "needs": (), "problem": ""}
    try:
        about["needs"] = script.lock.needs if script.lock is not None else ()
        about["problem"] = "" if script.lock is not None else f"it has no {script.path.name}{SUFFIX} and cannot be run"
        script.tool()
    except ToolfoldError as error:
        about["problem"] = error.message
    return about


async def _kept_script(visit: _Visit) -> _Page:
    visit.require_admin()
    folder = visit.gateway.settings.scripts_folder
    if folder is None:
        raise ConfigError(
            "no folder for scripts is configured", next_action="keep one with `toolfold scripts add FILE`"
        )
    script = _KeptScript.of(folder, visit.query("name"))
    text = await asyncio.to_thread(script.text)
    values = {"title": f"Script {script.name}", "script": _script(script), "source": text[:_MAX_SOURCE]}
    return _Page("script.html", {**values, "cut": len(text) > _MAX_SOURCE})


async def _run(visit: _Visit) -> _Page:
    """One run of an agent: its turns, and when each command ran and how long."""
    visit.require_admin()
    name = visit.query("run")
    events = (await asyncio.to_thread(visit.gateway.agent(model="").events, name))[:_MAX_EVENTS]
    started, ended = events[0], next((one for one in events if one["event"] == "run.ended" and not one["path"]), None)
    total = max((float(one["at"]) for one in events), default=0.0) - float(started["at"])
    values = {
        "title": f"Run {name}",
        "run": name,
        "task": str(started.get("task", "")),
        "agent": str(started.get("definition", {}).get("name", "")),
        "report": None if ended is None else ended.get("report"),
        "seconds": total,
        "turns": _turns(events, float(started["at"]), total),
    }
    return _Page("run.html", values)


def _turns(events: Sequence[dict[str, Any]], began: float, total: float) -> list[dict[str, Any]]:
    turns: dict[tuple[str, int], dict[str, Any]] = {}
    commands: dict[tuple[str, int, int], dict[str, Any]] = {}
    for event in events:
        place = (str(event["path"]), int(event.get("turn", 0)))
        match event["event"]:
            case "turn.answered":
                reply = event["reply"]
                usage = reply.get("usage") or {}
                tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
                turn = {"path": place[0], "turn": place[1], "seconds": event["seconds"], "tokens": tokens}
                turns[place] = {**turn, "text": str(reply.get("text", ""))[:_MAX_SHOWN], "commands": []}
            case "command.started" if place in turns:
                command = {"what": event["command"], "left": _share(float(event["at"]) - began, total), "width": 0.0}
                command |= {"seconds": None, "result": None}
                commands[(*place, event["index"])] = command
                turns[place]["commands"].append(command)
            case "command.done" if (done := commands.get((*place, event["index"]))) is not None:
                done |= {"seconds": event["seconds"], "result": event["result"]}
                done["width"] = max(0.5, _share(float(event["seconds"]), total))
    return list(turns.values())


def _share(seconds: float, total: float) -> float:
    return round(100 * seconds / total, 2) if total > 0 else 0.0


GETS = {"/runs": _runs, "/runs/script": _kept_script, "/runs/one": _run}
POSTS: dict[str, Work] = {}
