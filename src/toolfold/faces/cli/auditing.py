"""`toolfold audit`: what was searched, chosen, expanded and called, by whom, tied together."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from toolfold.errors import ConfigError
from toolfold.faces.cli.output import Output
from toolfold.faces.cli.running import with_catalogue
from toolfold.gateway import Gateway
from toolfold.gateway.steps import Step


def audit(arguments: argparse.Namespace, output: Output) -> int:
    async def work(gateway: Gateway) -> list[Step]:
        trail = gateway.governor.trail or gateway.governor.new_trail()
        return await trail.steps(session=arguments.session, last=None if arguments.export else arguments.last)

    steps = with_catalogue(arguments, work)
    if arguments.export:
        export(steps, Path(arguments.export))
        output.note(f"{len(steps)} steps written to {arguments.export}")
        return 0
    if output.as_json:
        output.data({"steps": steps})
        return 0
    if not steps:
        output.note("nothing was recorded" + (f" in session {arguments.session}" if arguments.session else " yet"))
        return 0
    known = {step.id: step for step in steps}
    for line in lines(steps, known, output):
        output.line(line)
    return 0


def export(steps: Sequence[Step], file: Path) -> None:
    """One JSON object a line."""
    try:
        with file.open("wb") as out:
            out.writelines(msgspec.json.encode(step) + b"\n" for step in steps)
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be written: {error.strerror or error}", next_action="name another file"
        ) from error


def lines(steps: Sequence[Step], known: dict[str, Step], output: Output) -> list[str]:
    """A line a step, under a heading for each caller and session."""
    found: list[str] = []
    heading: tuple[str, str] | None = None
    for step in steps:
        if (step.caller, step.session) != heading:
            heading = (step.caller, step.session)
            found.append(output.style(f"{step.caller}{f', session {step.session}' if step.session else ''}", "bold"))
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(step.at))
        mark = output.style(f"[{step.selection or step.id}]", "dim")
        found.append(f"  {output.style(when, 'dim')}  {step.step:7}  {told(step, known)}  {mark}")
    return found


def told(step: Step, known: dict[str, Step]) -> str:
    if step.code:
        subject = step.tool_id or repr(step.query) or " / ".join(step.path)
        return f"{subject}: {step.code}, {step.message}"
    if step.step == "choose":
        source = known.get(step.search)
        of = f" of {len(source.results)}" if source is not None and source.results else ""
        return f"{step.tool_id}, number {step.rank}{of} for {step.query!r}"
    if step.step == "call":
        return f"{step.tool_id} v{step.version} {arguments_of(step)} → {outcome_of(step)}"
    if step.tool_id:
        return step.tool_id
    where = f" in {' / '.join(step.path)}" if step.path else ""
    asked = f"{step.query!r}{where}" if step.query else where.removeprefix(" in ") or "everything"
    shown = ", ".join(step.results[:3]) + (", …" if len(step.results) > 3 else "")
    return f"{asked} → {shown or f'{step.shown_bytes:,} bytes'}"


def arguments_of(step: Step) -> str:
    text = "" if step.arguments is None else msgspec.json.encode(step.arguments).decode()
    return text or f"{step.argument_bytes or 0:,} bytes"


def outcome_of(step: Step) -> str:
    size = f"{step.result_bytes or 0:,} bytes in {step.seconds * 1000:.0f} ms"
    stored = f", stored as {step.stored}" if step.stored else ""
    return f"{'the tool failed, ' if step.is_error else ''}{size}{stored}"
