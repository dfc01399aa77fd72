"""`toolfold agent TASK`: runs the planner with live progress, replays a recorded run, resumes one that broke off."""

import argparse
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from toolfold.errors import ConfigError
from toolfold.faces.cli.runner import load_settings, run_with_gateway
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway

ENDED_BADLY = 1
DIVERGED = 6
MAX_SHOWN = 100


def agent(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.runs:
        return _print_runs(arguments, output)
    if arguments.replay:
        return _replay(arguments, output)
    task = sys.stdin.read() if arguments.task == "-" else arguments.task
    if not task and not arguments.resume:
        raise ConfigError("no task was given", next_action='say what is to be done: toolfold agent "…"')

    async def work(gateway: Gateway) -> dict[str, Any]:
        with _show_progress(output) as progress:
            made = gateway.agent(arguments.agent or "", model=arguments.model or "", listener=progress)
            report = await (made.resume(arguments.resume) if arguments.resume else made.run(task))
            return report.as_dict()

    report = run_with_gateway(load_settings(arguments), work, fast=True)
    if output.as_json:
        output.data(report)
    else:
        output.line(report["text"])
        output.note(_ending(report, output))
    return 0 if report["ending"] == "finished" else ENDED_BADLY


def _replay(arguments: argparse.Namespace, output: Output) -> int:
    async def work(gateway: Gateway) -> dict[str, Any]:
        made = gateway.agent(model="")
        return (await made.replay(_record(arguments.replay), live_tools=arguments.live_tools)).as_dict()

    found = run_with_gateway(load_settings(arguments, require_servers=arguments.live_tools), work)
    if output.as_json:
        output.data(found)
    elif found["identical"]:
        output.line(f"the same, event for event: {found['events']} events, {found['report']['turns']} turns")
    else:
        for one in found["divergences"]:
            where = f"turn {one['turn']}" + (f" of {one['path']}" if one["path"] else "")
            output.line(f"{output.style(one['what'], 'yellow')} differs in {where}")
            output.line(f"  recorded: {one['expected'][:MAX_SHOWN]}")
            output.line(f"  now:      {one['got'][:MAX_SHOWN]}")
    return 0 if found["identical"] else DIVERGED


def _print_runs(arguments: argparse.Namespace, output: Output) -> int:
    async def work(gateway: Gateway) -> list[dict[str, Any]]:
        return gateway.agent(model="").runs()

    found = run_with_gateway(load_settings(arguments, require_servers=False), work)
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


def _ending(report: dict[str, Any], output: Output) -> str:
    usage = report["usage"]
    cost = f", ${usage['cost']:.4f}" if usage["cost"] is not None else ""
    used = f"{report['turns']} turns, {report['calls']} calls, {usage['input_tokens'] + usage['output_tokens']} tokens"
    colour = "green" if report["ending"] == "finished" else "yellow"
    return f"{output.style(report['ending'], colour, stream=output.err)}: {used}{cost}; run {report['run']}"


class _Progress:
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
                label = _command_label(event["command"])
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


def _command_label(command: dict[str, Any]) -> str:
    """A command in a few words."""
    about = next((command[key] for key in ("tool_id", "query", "extract", "agent", "status") if command.get(key)), "")
    text = f"{command['type']} {about}".strip()
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def _show_progress(output: Output) -> "AbstractContextManager[_Progress]":
    """Progress on standard error; with `--json`, none."""
    if output.as_json:
        return nullcontext(_Progress(output, quiet=True))
    if not output.err.isatty():
        return nullcontext(_Progress(output))
    return _LiveStatus(output)


class _LiveStatus:
    """A line that changes while the model thinks."""

    def __init__(self, output: Output) -> None:
        from rich.console import Console

        self._output = output
        self._status = Console(file=output.err).status("starting")

    def __enter__(self) -> _Progress:
        self._status.__enter__()
        return _Progress(self._output, self._status)

    def __exit__(self, *exc_info: Any) -> None:
        self._status.__exit__(*exc_info)
