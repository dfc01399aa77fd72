"""`toolfold audit` and `toolfold stats`: what was searched, chosen and called, by whom, and the tokens it saved."""

import argparse
import asyncio
import time
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
from msgspec.structs import asdict

from toolfold.audit.record import Step, decode_step
from toolfold.audit.savings import Savings, SessionCost, compute_savings
from toolfold.errors import ConfigError
from toolfold.faces.cli.build import Cost, run_with_catalogue
from toolfold.faces.cli.parser import parse
from toolfold.faces.cli.terminal import Output
from toolfold.faces.mcp_server.profiles import client_tokens
from toolfold.gateway import Gateway
from toolfold.telemetry.audit_export import _encode_line
from toolfold.types import Caller

_FOLLOW_S = 0.5
# More steps than this between two looks, and the oldest of them are not shown.
_FOLLOWED = 1000
# What `--export` calls the stream on standard output.
_JSONL = "jsonl"


def audit(arguments: argparse.Namespace, output: Output) -> None:
    if arguments.export == _JSONL:
        _stream(arguments, output)
        return
    filters = any((arguments.server, arguments.tool, arguments.caller, arguments.status, arguments.since))

    async def work(gateway: Gateway) -> list[Step]:
        last = None if arguments.export or filters else arguments.last
        steps = await gateway.audit_log.steps(session=arguments.session, last=last)
        steps = [step for step in steps if _is_wanted(step, arguments)]
        if not arguments.follow:
            return steps if arguments.export else steps[-arguments.last :]
        await _follow(gateway, steps[-arguments.last :], arguments, output)
        return []

    steps = run_with_catalogue(arguments, work, build_first=False)
    if arguments.export:
        _export(steps, Path(arguments.export))
        output.note(f"{len(steps)} steps written to {arguments.export}")
    elif output.as_json:
        output.data({"steps": steps})
    elif steps:
        _print(steps, output)
    else:
        where = f" in session {arguments.session}" if arguments.session else "" if filters else " yet"
        output.note(f"nothing {'that fits ' if filters else ''}was recorded{where}")


def _stream(arguments: argparse.Namespace, output: Output) -> None:
    """Writes the records after a number to standard output, a batch at a time, each with its own number."""

    async def work(gateway: Gateway) -> None:
        await gateway.audit_log.flush()
        after = arguments.after
        while True:
            rows = await gateway.store.audit_rows(session=arguments.session, after=after, first=_FOLLOWED)
            wanted = [row for row in rows if _is_wanted(decode_step(row.record), arguments)]
            output.out.writelines(_encode_line(row).decode() for row in wanted)
            output.out.flush()
            after = rows[-1].number if rows else after
            if not (rows or arguments.follow):
                return
            await asyncio.sleep(0 if rows else _FOLLOW_S)

    run_with_catalogue(arguments, work, build_first=False)


def _is_wanted(step: Step, arguments: argparse.Namespace) -> bool:
    return (
        arguments.caller in (None, step.caller)
        and (arguments.since is None or step.at >= arguments.since)
        and (arguments.status is None or (arguments.status == "failed") == bool(step.code or step.is_error))
        and _fits(f"{arguments.server}.*" if arguments.server else None, step.tool_id)
        and _fits(arguments.tool, step.tool_id)
    )


def _fits(pattern: str | None, tool_id: str) -> bool:
    return pattern is None or fnmatchcase(tool_id.casefold(), pattern.casefold())


async def _follow(gateway: Gateway, steps: Sequence[Step], arguments: argparse.Namespace, output: Output) -> None:
    """Prints these steps, then each that is recorded by anybody, for ever."""
    recent = await gateway.audit_log.steps(session=arguments.session, last=_FOLLOWED)
    while True:
        if output.as_json:
            for step in steps:
                output.data(step)
        else:
            _print(steps, output)
        output.out.flush()
        await asyncio.sleep(_FOLLOW_S)
        seen = {step.id for step in recent}
        recent = await gateway.audit_log.steps(session=arguments.session, last=_FOLLOWED)
        steps = [step for step in recent if step.id not in seen and _is_wanted(step, arguments)]


def _export(steps: Sequence[Step], file: Path) -> None:
    """Writes one JSON object a line."""
    try:
        with file.open("wb") as out:
            out.writelines(msgspec.json.encode(step) + b"\n" for step in steps)
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be written: {error.strerror or error}", next_action="name another file"
        ) from error


def _print(steps: Sequence[Step], output: Output) -> None:
    """A line a step, under a heading for each caller and session."""
    by_id = {step.id: step for step in steps}
    heading: tuple[str, str] | None = None
    for step in sorted(steps, key=lambda step: step.at):  # a script is recorded when it ends, after its calls
        if (step.caller, step.session) != heading:
            heading = (step.caller, step.session)
            who = step.caller or "nobody who is known"
            output.prose(output.style(f"{who}{f', session {step.session}' if step.session else ''}", "bold"))
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(step.at))
        mark = output.style(f"[{step.selection or step.id}]", "dim")
        output.prose(f"  {output.style(when, 'dim')}  {step.step:7}  {_describe(step, by_id)}  {mark}", 32)


def _describe(step: Step, by_id: Mapping[str, Step]) -> str:
    if step.code:
        subject = step.tool_id or repr(step.query)
        return f"{subject}: {step.code}{step.message and f', {step.message}'}"
    if step.step == "choose":
        search = by_id.get(step.search)
        total = f" of {len(search.results)}" if search is not None and search.results else ""
        return f"{step.tool_id}, number {step.rank}{total} for {step.query!r}"
    if step.step == "call":
        return _describe_call(step)
    return step.tool_id or _describe_search(step)


def _describe_call(step: Step) -> str:
    arguments = f"{step.argument_bytes or 0:,} bytes"
    if step.arguments is not None:
        arguments = msgspec.json.encode(step.arguments).decode()
    failed = "the tool failed, " if step.is_error else ""
    stored = f", stored as {step.stored}" if step.stored else ""
    result = f"{failed}{step.result_bytes or 0:,} bytes in {step.seconds * 1000:.0f} ms{stored}"
    name = f"{step.tool_id} (at its server: {step.sent_as})" if step.sent_as else step.tool_id
    return f"{name} v{step.version} {arguments} → {result}"


def _describe_search(step: Step) -> str:
    path = " / ".join(step.path)
    request = path or "everything"
    if step.query:
        request = f"{step.query!r} in {path}" if path else repr(step.query)
    results = ", ".join(step.results[:3]) + (", …" if len(step.results) > 3 else "")
    return f"{request} → {results or f'{step.shown_bytes:,} bytes'}"


def stats(arguments: argparse.Namespace, output: Output) -> None:
    async def work(gateway: Gateway) -> tuple[Savings, Cost, dict[str, list[str]], int]:
        contradicted = await gateway.describer.all_contradictions(gateway.view())
        cost = await Cost.count(gateway)
        named = () if arguments.view_as else gateway.settings.callers
        callers = [Caller(name=entry.name, policy=entry.policy, groups=entry.groups) for entry in named]
        profile = parse(["serve"]).profile
        seen = {one.name: (gateway.view(one).catalogue, await client_tokens(gateway, profile, one)) for one in callers}
        steps = await gateway.audit_log.steps(caller=arguments.view_as)
        whole = gateway.view().catalogue
        savings = await compute_savings(steps, whole, gateway.store, cost.client_tokens or 0, seen)
        return savings, cost, contradicted, await gateway.search.count_enriched()

    savings, cost, contradicted, enriched = run_with_catalogue(arguments, work)
    if output.as_json:
        data = {**asdict(savings), "client_tokens": cost.client_tokens}
        output.data({**data, "contradicted": contradicted, "enriched": enriched})
        return
    cost.print(output)
    if not savings.sessions:
        output.note("nothing was searched or called yet")
    rows = [_stats_row(spent, spent.caller, spent.session) for spent in savings.sessions]
    if len(rows) > 1:
        rows.append(_stats_row(savings.total, output.style("all", "bold"), ""))
    output.table(("caller", "steps", "calls", "tokens unfolded", "tokens read", "saved", "session"), rows)
    if enriched:
        output.note(f"{enriched:,} tools are enriched with requests that a model wrote")
    for tool_id, texts in contradicted.items():
        output.note(f"{tool_id} returns what it does not declare: {'; '.join(texts)}")


def _stats_row(spent: SessionCost, caller: str, session: str) -> tuple[str, ...]:
    return (
        caller,
        f"{spent.steps:,}",
        f"{spent.calls:,}",
        f"{spent.full_tokens:,}",
        f"{'≈' if spent.estimated else ''}{spent.shown_tokens:,}",
        f"{spent.saved_percent:.1f} %",
        session,
    )
