"""`toolfold audit`: what was searched, chosen, expanded and called, by whom, tied together."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from toolfold.audit.record import Step
from toolfold.audit.savings import Savings, SessionCost
from toolfold.errors import ConfigError
from toolfold.faces.cli.runner import run_with_catalogue
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway


def audit(arguments: argparse.Namespace, output: Output) -> int:
    async def work(gateway: Gateway) -> list[Step]:
        trail = gateway.governor.trail or gateway.governor.new_trail()
        return await trail.steps(session=arguments.session, last=None if arguments.export else arguments.last)

    steps = run_with_catalogue(arguments, work)
    if arguments.export:
        _export(steps, Path(arguments.export))
        output.note(f"{len(steps)} steps written to {arguments.export}")
        return 0
    if output.as_json:
        output.data({"steps": steps})
        return 0
    if not steps:
        output.note("nothing was recorded" + (f" in session {arguments.session}" if arguments.session else " yet"))
        return 0
    known = {step.id: step for step in steps}
    for line in _lines(steps, known, output):
        output.line(line)
    return 0


def _export(steps: Sequence[Step], file: Path) -> None:
    """One JSON object a line."""
    try:
        with file.open("wb") as out:
            out.writelines(msgspec.json.encode(step) + b"\n" for step in steps)
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be written: {error.strerror or error}", next_action="name another file"
        ) from error


def _lines(steps: Sequence[Step], known: dict[str, Step], output: Output) -> list[str]:
    """A line a step, under a heading for each caller and session."""
    found: list[str] = []
    heading: tuple[str, str] | None = None
    for step in steps:
        if (step.caller, step.session) != heading:
            heading = (step.caller, step.session)
            found.append(output.style(f"{step.caller}{f', session {step.session}' if step.session else ''}", "bold"))
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(step.at))
        mark = output.style(f"[{step.selection or step.id}]", "dim")
        found.append(f"  {output.style(when, 'dim')}  {step.step:7}  {_describe(step, known)}  {mark}")
    return found


def _describe(step: Step, known: dict[str, Step]) -> str:
    if step.code:
        subject = step.tool_id or repr(step.query) or " / ".join(step.path)
        return f"{subject}: {step.code}, {step.message}"
    if step.step == "choose":
        source = known.get(step.search)
        of = f" of {len(source.results)}" if source is not None and source.results else ""
        return f"{step.tool_id}, number {step.rank}{of} for {step.query!r}"
    if step.step == "call":
        return f"{step.tool_id} v{step.version} {_arguments(step)} → {_outcome(step)}"
    if step.tool_id:
        return step.tool_id
    where = f" in {' / '.join(step.path)}" if step.path else ""
    asked = f"{step.query!r}{where}" if step.query else where.removeprefix(" in ") or "everything"
    shown = ", ".join(step.results[:3]) + (", …" if len(step.results) > 3 else "")
    return f"{asked} → {shown or f'{step.shown_bytes:,} bytes'}"


def _arguments(step: Step) -> str:
    text = "" if step.arguments is None else msgspec.json.encode(step.arguments).decode()
    return text or f"{step.argument_bytes or 0:,} bytes"


def _outcome(step: Step) -> str:
    size = f"{step.result_bytes or 0:,} bytes in {step.seconds * 1000:.0f} ms"
    stored = f", stored as {step.stored}" if step.stored else ""
    return f"{'the tool failed, ' if step.is_error else ''}{size}{stored}"


# --- `toolfold stats`: what the full definitions would have cost against what was shown.


def stats(arguments: argparse.Namespace, output: Output) -> int:
    async def work(gateway: Gateway) -> Savings:
        return await gateway.governor.savings()

    found = run_with_catalogue(arguments, work)
    if output.as_json:
        output.data(found)
        return 0
    output.line(f"{found.tools:,} tools, whose definitions are {found.full_tokens:,} tokens")
    if not found.sessions:
        output.note("nothing was searched or called yet")
        return 0
    rows = [_stats_row(one, one.caller, one.session or "-") for one in found.sessions]
    if len(rows) > 1:
        rows.append(_stats_row(found.total, output.style("all", "bold"), ""))
    output.table(("caller", "session", "steps", "calls", "in full", "shown", "saved"), rows)
    return 0


def _stats_row(one: SessionCost, caller: str, session: str) -> tuple[str, ...]:
    about = "≈" if one.estimated else ""
    return (
        caller,
        session,
        f"{one.steps:,}",
        f"{one.calls:,}",
        f"{one.full_tokens:,}",
        f"{about}{one.shown_tokens:,}",
        f"{one.saved_percent:.1f} %",
    )
