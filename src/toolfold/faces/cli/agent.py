"""`toolfold agent TASK`: runs the planner with live progress, replays a recorded run, resumes one that broke off."""

import argparse
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from toolfold.errors import ConfigError
from toolfold.faces.cli.output import Output
from toolfold.faces.cli.running import settings_of, with_gateway
from toolfold.gateway import Gateway

ENDED_BADLY = 1
DIVERGED = 6
SHOWN = 100


def agent(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.runs:
        return runs(arguments, output)
    if arguments.replay:
        return replay(arguments, output)
    task = sys.stdin.read() if arguments.task == "-" else arguments.task
    if not task and not arguments.resume:
        raise ConfigError("no task was given", next_action='say what is to be done: toolfold agent "…"')

    async def work(gateway: Gateway) -> dict[str, Any]:
        with shown(output) as progress:
            made = gateway.agent(arguments.agent or "", model=arguments.model or "", listener=progress)
            report = await (made.resume(arguments.resume) if arguments.resume else made.run(task))
            return report.as_dict()

    report = with_gateway(settings_of(arguments), work, fast=True)
    if output.as_json:
        output.data(report)
    else:
        output.line(report["text"])
        output.note(ending(report, output))
    return 0 if report["ending"] == "finished" else ENDED_BADLY


def replay(arguments: argparse.Namespace, output: Output) -> int:
    async def work(gateway: Gateway) -> dict[str, Any]:
        made = gateway.agent(model="")
        return (await made.replay(_record(arguments.replay), live_tools=arguments.live_tools)).as_dict()

    found = with_gateway(settings_of(arguments, require_servers=arguments.live_tools), work)
    if output.as_json:
        output.data(found)
    elif found["identical"]:
        output.line(f"the same, event for event: {found['events']} events, {found['report']['turns']} turns")
    else:
        for one in found["divergences"]:
            where = f"turn {one['turn']}" + (f" of {one['path']}" if one["path"] else "")
            output.line(f"{output.style(one['what'], 'yellow')} differs in {where}")
            output.line(f"  recorded: {one['expected'][:SHOWN]}")
            output.line(f"  now:      {one['got'][:SHOWN]}")
    return 0 if found["identical"] else DIVERGED


def runs(arguments: argparse.Namespace, output: Output) -> int:
    async def work(gateway: Gateway) -> list[dict[str, Any]]:
        return gateway.agent(model="").runs()

    found = with_gateway(settings_of(arguments, require_servers=False), work)
    if output.as_json:
        output.data(found)
    elif not found:
        output.note("no run was recorded yet")
    else:
        rows = [(one["run"], one["ending"] or "broke off", str(one["turns"]), one["task"]) for one in found]
        output.table(("run", "ended", "turns", "task"), rows)
    return 0


def _record(text: str) -> str | Path:
    path = Path(text)
    return path if path.suffix == ".jsonl" or path.is_file() else text


def ending(report: dict[str, Any], output: Output) -> str:
    usage = report["usage"]
    cost = f", ${usage['cost']:.4f}" if usage["cost"] is not None else ""
    used = f"{report['turns']} turns, {report['calls']} calls, {usage['input_tokens'] + usage['output_tokens']} tokens"
    colour = "green" if report["ending"] == "finished" else "yellow"
    return f"{output.style(report['ending'], colour, stream=output.err)}: {used}{cost}; run {report['run']}"


class Progress:
    """Told each event of a run; shows a line for each command that is done, and what goes on now."""

    def __init__(self, output: Output, status: Any = None, *, quiet: bool = False) -> None:
        self._output = output
        self._status = status
        self._quiet = quiet
        self._tokens = 0
        self._cost = 0.0
        self._begun: dict[tuple[str, int, int], str] = {}

    def __call__(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "turn.asked":
                self._now(f"turn {event['turn']}: thinking")
            case "turn.answered":
                self._answered(event)
            case "command.started":
                label = named(event["command"])
                self._begun[event["path"], event["turn"], event["index"]] = label
                self._now(f"turn {event['turn']}: {label}")
            case "command.done":
                self._done(event)

    def _answered(self, event: dict[str, Any]) -> None:
        usage = event["reply"]["usage"]
        self._tokens += usage["input_tokens"] + usage["output_tokens"]
        self._cost += usage["cost"] or 0.0

    def _done(self, event: dict[str, Any]) -> None:
        if self._quiet:
            return
        output, ok = self._output, event["result"]["ok"]
        label = self._begun.pop((event["path"], event["turn"], event["index"]), "")
        mark = output.style("ok", "green", stream=output.err) if ok else output.style("no", "yellow", stream=output.err)
        cost = f"  ${self._cost:.4f}" if self._cost else ""
        used = output.style(f"{event['seconds']:.1f} s  {self._tokens} tokens{cost}", "dim", stream=output.err)
        inside = "  " * event["path"].count("/")
        output.note(f"{inside}{event['turn']:>3}  {mark}  {label}  {used}")

    def _now(self, text: str) -> None:
        if self._status is not None:
            self._status.update(f"{text}  ({self._tokens} tokens)")


def named(command: dict[str, Any]) -> str:
    """A command in a few words."""
    about = next((command[key] for key in ("tool_id", "query", "extract", "agent", "status") if command.get(key)), "")
    text = f"{command['type']} {about}".strip()
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def shown(output: Output) -> "AbstractContextManager[Progress]":
    """Progress on standard error; with `--json`, none."""
    if output.as_json:
        return nullcontext(Progress(output, quiet=True))
    if not output.err.isatty():
        return nullcontext(Progress(output))
    return _Live(output)


class _Live:
    """A line that changes while the model thinks."""

    def __init__(self, output: Output) -> None:
        from rich.console import Console

        self._output = output
        self._status = Console(file=output.err).status("starting")

    def __enter__(self) -> Progress:
        self._status.__enter__()
        return Progress(self._output, self._status)

    def __exit__(self, *exc_info: Any) -> None:
        self._status.__exit__(*exc_info)
