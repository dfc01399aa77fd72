"""`toolfold stats`: what the full definitions would have cost against what was shown."""

import argparse

from toolfold.faces.cli.output import Output
from toolfold.faces.cli.running import with_catalogue
from toolfold.gateway import Gateway
from toolfold.gateway.savings import Savings, Spent


def stats(arguments: argparse.Namespace, output: Output) -> int:
    async def work(gateway: Gateway) -> Savings:
        return await gateway.governor.savings()

    found = with_catalogue(arguments, work)
    if output.as_json:
        output.data(found)
        return 0
    output.line(f"{found.tools:,} tools, whose definitions are {found.full_tokens:,} tokens")
    if not found.sessions:
        output.note("nothing was searched or called yet")
        return 0
    rows = [row(one, one.caller, one.session or "-") for one in found.sessions]
    if len(rows) > 1:
        rows.append(row(found.total, output.style("all", "bold"), ""))
    output.table(("caller", "session", "steps", "calls", "in full", "shown", "saved"), rows)
    return 0


def row(one: Spent, caller: str, session: str) -> tuple[str, ...]:
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
