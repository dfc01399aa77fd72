"""`toolfold trust`: what changed since it was accepted, what looks odd, and accepting it."""

import argparse
from collections.abc import Sequence
from difflib import unified_diff

import msgspec
from msgspec import Raw

from toolfold.errors import ConfigError
from toolfold.faces.cli.runner import run_with_catalogue
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway
from toolfold.policy.access import TrustReview
from toolfold.types import Tool, ToolDefinition


def trust(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.list and arguments.tool_id:
        return _print_differences(arguments, output)
    if arguments.list or not (arguments.tool_id or arguments.all):
        return _print_review(arguments, output)
    if arguments.all and arguments.tool_id:
        raise ConfigError("either name tools or give --all", next_action="see: toolfold trust --help")
    wanted: Sequence[str] | None = None if arguments.all else arguments.tool_id

    async def work(gateway: Gateway) -> list[str]:
        return await gateway.governor.accept(wanted)

    accepted = run_with_catalogue(arguments, work)
    if output.as_json:
        output.data({"accepted": accepted})
        return 0
    for tool_id in accepted:
        output.line(f"{output.style('accepted', 'green')} {tool_id}")
    if not accepted:
        output.note("all of this was accepted already")
    return 0


def _print_review(arguments: argparse.Namespace, output: Output) -> int:
    async def work(gateway: Gateway) -> TrustReview:
        return await gateway.governor.review()

    found = run_with_catalogue(arguments, work)
    if output.as_json:
        output.data({"tools": found.tools, "standings": found.standings})
        return 0
    for one in found.standings:
        state = f"{one.state}{', held back' if one.held else ''}"
        version = f" (version {one.accepted_version} → {one.version})" if one.state == "changed" else ""
        colour = "yellow" if one.state != "accepted" else "dim"
        output.line(f"{output.style(one.tool_id, 'bold')}  {output.style(state, colour)}{version}")
        for flag in one.flags:
            output.line(f"    {output.style(f'flag:{flag.kind}', 'red')} {flag.reason}: {flag.excerpt}")
    waiting = sum(one.state != "accepted" for one in found.standings)
    flagged = sum(bool(one.flags) for one in found.standings)
    output.note(f"{found.tools:,} tools: {waiting} to accept, {flagged} flagged")
    if waiting:
        output.note("look at one with `toolfold trust --list ID`, accept it with `toolfold trust ID`")
    return 0


def _print_differences(arguments: argparse.Namespace, output: Output) -> int:
    """Shows each tool as it is beside what was accepted, whoever may see it. What cannot be seen is spelt out."""

    async def work(gateway: Gateway) -> list[tuple[Tool, ToolDefinition | None]]:
        return [await gateway.governor.definitions(tool_id) for tool_id in arguments.tool_id]

    found = run_with_catalogue(arguments, work)
    if output.as_json:
        output.data(
            [
                {"tool_id": tool.tool_id, "accepted": accepted.raw if accepted else None, "now": tool.definition.raw}
                for tool, accepted in found
            ]
        )
        return 0
    for tool, accepted in found:
        output.line(output.style(tool.tool_id, "bold"))
        before = _escaped_lines(accepted.raw) if accepted is not None else []
        after = _escaped_lines(tool.definition.raw)
        if before == after:
            output.line("  as it was accepted")
        for line in list(unified_diff(before, after, lineterm="", n=1))[2:]:
            colour = {"+": "green", "-": "red"}.get(line[0], "dim")
            output.line(f"  {output.style(line, colour)}")
    return 0


def _escaped_lines(raw: Raw) -> list[str]:
    """A tool object as lines of JSON, every character that could hide written as its code."""
    text = msgspec.json.format(bytes(raw), indent=2).decode("utf-8", "replace")
    return [
        "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in line) for line in text.split("\n")
    ]
