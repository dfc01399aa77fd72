"""`toolfold agent TASK`: runs the planner with live progress, replays a recorded run, resumes one that broke off."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toolfold.errors import ConfigError
from toolfold.faces.cli.build import run_with_catalogue
from toolfold.faces.cli.runner import load_settings, run_with_gateway
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway
from toolfold.text import truncate

# Exit codes of their own: a test tells a difference from a failure, and a report from one that looked at nothing.
DIVERGED = 6
GAVE_UP = 7
CALLED_NOTHING = 8
MAX_SHOWN = 100


def agent(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.runs:
        return _print_runs(arguments, output)
    if arguments.replay:
        return _replay(arguments, output)
    task = output.read_piped() if arguments.task == "-" else arguments.task
    if not task and not arguments.resume:
        raise ConfigError("no task was given", next_action='say what is to be done: toolfold agent "…"')

    settings = load_settings(arguments)

    async def work(gateway: Gateway) -> dict[str, Any]:
        with _show_progress(output) as progress:
            on_text = progress.add_text if progress is not None and settings.model.stream else None
            planner = gateway.agent(
                arguments.agent or "", model=arguments.model or "", listener=progress, on_text=on_text
            )
            report = await (planner.resume(arguments.resume) if arguments.resume else planner.run(task))
            return report.as_dict()

    report = run_with_catalogue(arguments, work, require_servers=True, fast=True, keep_outputs=True)
    if output.as_json:
        output.data(report)
    else:
        output.line(report["text"])
        output.note(_ending(report, output))
    if report["ending"] != "finished":
        return GAVE_UP
    return 0 if report["calls"] or report["scripts"] else CALLED_NOTHING


def _ending(report: dict[str, Any], output: Output) -> str:
    usage = report["usage"]
    cost = f", ${usage['cost']:.4f}" if usage["cost"] is not None else ""
    used = f"{report['turns']} turns, {report['calls']} calls, {usage['input_tokens'] + usage['output_tokens']} tokens"
    colour = "green" if report["ending"] == "finished" else "yellow"
    nothing = "" if report["calls"] or report["scripts"] else "; no tool was called"
    return f"{output.style(report['ending'], colour, stream=output.err)}: {used}{cost}{nothing}; run {report['run']}"


def _replay(arguments: argparse.Namespace, output: Output) -> int:
    path = Path(arguments.replay)
    # A file, or the name of a recorded run.
    record = path if path.suffix == ".jsonl" or path.is_file() else arguments.replay

    async def work(gateway: Gateway) -> dict[str, Any]:
        return (await gateway.agent(model="").replay(record, live_tools=arguments.live_tools)).as_dict()

    replay = run_with_gateway(load_settings(arguments, require_servers=arguments.live_tools), work)
    if output.as_json:
        output.data(replay)
    elif replay["identical"]:
        output.line(f"the same, event for event: {replay['events']} events, {replay['report']['turns']} turns")
    else:
        for divergence in replay["divergences"]:
            where = f"turn {divergence['turn']}" + (f" of {divergence['path']}" if divergence["path"] else "")
            output.line(f"{output.style(divergence['what'], 'yellow')} differs in {where}")
            output.line(f"  recorded: {divergence['expected'][:MAX_SHOWN]}")
            output.line(f"  now:      {divergence['got'][:MAX_SHOWN]}")
    return 0 if replay["identical"] else DIVERGED


def _print_runs(arguments: argparse.Namespace, output: Output) -> int:
    async def work(gateway: Gateway) -> list[dict[str, Any]]:
        return gateway.agent(model="").runs()

    runs = run_with_gateway(load_settings(arguments, require_servers=False), work)
    if output.as_json:
        output.data(runs)
        return 0
    if not runs:
        output.note("no run was recorded yet")
    rows = [(run["run"], run["ending"] or "broke off", str(run["turns"]), run["task"]) for run in runs]
    output.table(("run", "ended", "turns", "task"), rows)
    return 0


class _Progress:
    """A listener for the events of a run: a line for each command that is done, a status for what goes on now."""

    def __init__(self, output: Output, status: Any = None) -> None:
        self._output = output
        self._status = status
        self._tokens = 0
        self._cost = 0.0
        self._said = ""
        # Commands of one turn run side by side, and those of an agent that another one started lie below its path.
        self._labels: dict[tuple[str, int, int], str] = {}

    def __call__(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "turn.asked":
                self._said = ""
                self._update(f"turn {event['turn']}: thinking")
            case "turn.answered":
                usage = event["reply"]["usage"]
                self._tokens += usage["input_tokens"] + usage["output_tokens"]
                self._cost += usage["cost"] or 0.0
            case "command.started":
                label = _command_label(event["command"])
                self._labels[event["path"], event["turn"], event["index"]] = label
                self._update(f"turn {event['turn']}: {label}")
            case "command.done":
                self._print_done(event)

    def add_text(self, piece: str) -> None:
        """A piece of the model's answer, as it comes."""
        self._said = " ".join((self._said + piece)[-MAX_SHOWN:].split())
        self._update(self._said)

    def _print_done(self, event: dict[str, Any]) -> None:
        output = self._output
        label = self._labels.pop((event["path"], event["turn"], event["index"]), "")
        text, colour = ("ok", "green") if event["result"]["ok"] else ("no", "yellow")
        mark = output.style(text, colour, stream=output.err)
        cost = f"  ${self._cost:.4f}" if self._cost else ""
        used = output.style(f"{event['seconds']:.1f} s  {self._tokens} tokens{cost}", "dim", stream=output.err)
        indent = "  " * event["path"].count("/")
        output.note(f"{indent}{event['turn']:>3}  {mark}  {label}  {used}")

    def _update(self, text: str) -> None:
        if self._status is not None:
            self._status.update(f"{text}  ({self._tokens} tokens)")


def _command_label(command: dict[str, Any]) -> str:
    """A command in a few words."""
    about = next((command[key] for key in ("tool_id", "query", "extract", "agent", "status") if command.get(key)), "")
    return truncate(f"{command['type']} {about}".strip(), MAX_SHOWN)


@contextmanager
def _show_progress(output: Output) -> "Iterator[_Progress | None]":
    """Progress on standard error, on a terminal with a line that changes while the model thinks."""
    if output.as_json:
        yield None
    elif not output.err.isatty():
        yield _Progress(output)
    else:
        from rich.console import Console

        with Console(file=output.err).status("starting") as status:
            yield _Progress(output, status)
