"""`toolfold trust`: the tools that changed since they were accepted or look odd, and accepting them; with `--project`
the configuration of a folder."""

import argparse
import os
from difflib import unified_diff
from pathlib import Path

import msgspec
from msgspec import Raw

from toolfold.config.acceptance import ProjectFile, _Acceptances
from toolfold.config.reader import _project_file
from toolfold.errors import ConfigError
from toolfold.faces.cli.build import plural, run_with_catalogue
from toolfold.faces.cli.terminal import Output, one_line
from toolfold.gateway import Gateway
from toolfold.types import Tool, ToolDefinition


def trust(arguments: argparse.Namespace, output: Output) -> None:
    if arguments.project is not None:
        _trust_project(arguments, output)
    elif arguments.list and arguments.tool_id:
        _print_differences(arguments, output)
    elif arguments.list or not (arguments.tool_id or arguments.all):
        _print_review(arguments, output)
    elif arguments.all and arguments.tool_id:
        raise ConfigError("either name tools or give --all", next_action="see: toolfold trust --help")
    else:
        _accept(arguments, output)


def _trust_project(arguments: argparse.Namespace, output: Output) -> None:
    """Shows what a folder's configuration would start, and accepts it unless that is all that is asked for."""
    if arguments.tool_id or arguments.all:
        raise ConfigError("--project is about a folder's configuration, and not about tools")
    found = _project_file(Path(arguments.project).absolute(), os.environ)
    if found.entry is None:
        raise ConfigError(f"{found.path} {found.reason}", next_action="correct the file")
    record = _Acceptances.of_person()
    was = record.holds(found.path, found.entry)
    if arguments.forget:
        record.forget(found.path)
    elif not arguments.list:
        record.accept(found.path, found.entry)
    _print_project(found, was, was if arguments.list else not arguments.forget, output)


def _print_project(found: ProjectFile, was: bool, accepted: bool, output: Output) -> None:
    if output.as_json:
        servers = [{"name": one.name, "shown": one.shown(), "enabled": one.enabled} for one in found.servers]
        told = {"file": str(found.path), "accepted": accepted, "changes": found.changes, "servers": servers}
        output.data({**told, "written": found.written})
        return
    state = output.style("accepted", "green") if accepted else output.style("not accepted", "yellow")
    changed = f": {found.changes}" if found.changes and not was else ""
    output.line(f"{state} {output.short_path(found.path)}{changed}")
    for text in found.review:
        output.line(f"  {text}")


def _accept(arguments: argparse.Namespace, output: Output) -> None:
    tool_ids = arguments.tool_id or None
    accepted = run_with_catalogue(arguments, lambda gateway: gateway.trust.accept(tool_ids))
    if output.as_json:
        output.data({"accepted": accepted})
        return
    for tool_id in accepted:
        output.line(f"{output.style('accepted', 'green')} {tool_id}")
    if not accepted:
        output.note("all of this was accepted already")


def _print_review(arguments: argparse.Namespace, output: Output) -> None:
    review = run_with_catalogue(arguments, lambda gateway: gateway.trust.review())
    if output.as_json:
        output.data({"tools": review.tools, "standings": review.standings})
        return
    for standing in review.standings:
        state = f"{standing.state}{', held back' if standing.held else ''}"
        colour = "yellow" if standing.state != "accepted" else "dim"
        version = ""
        if standing.state == "changed":
            version = f" (version {standing.accepted_version} → {standing.version})"
        output.line(f"{output.style(standing.tool_id, 'bold')}  {output.style(state, colour)}{version}")
        for flag in standing.flags:
            output.line(f"    {output.style(f'flag:{flag.kind}', 'red')} {one_line(f'{flag.reason}: {flag.excerpt}')}")
    waiting = sum(standing.state != "accepted" for standing in review.standings)
    flagged = sum(bool(standing.flags) for standing in review.standings)
    output.note(f"{plural(review.tools, 'tool')}: {waiting} to accept, {flagged} flagged")
    if waiting:
        output.note("look at one with `toolfold trust --list ID`, accept it with `toolfold trust ID`")


def _print_differences(arguments: argparse.Namespace, output: Output) -> None:
    """Prints each tool as it is beside what was accepted, whoever may see it."""

    async def work(gateway: Gateway) -> list[tuple[Tool, ToolDefinition | None]]:
        return [await gateway.trust.definitions(tool_id) for tool_id in arguments.tool_id]

    pairs = run_with_catalogue(arguments, work)
    if output.as_json:
        output.data(
            [
                {"tool_id": tool.tool_id, "accepted": accepted.sent if accepted else None, "now": tool.definition.sent}
                for tool, accepted in pairs
            ]
        )
        return
    for tool, accepted in pairs:
        output.line(output.style(tool.tool_id, "bold"))
        before = _escaped_lines(accepted.sent) if accepted is not None else []
        after = _escaped_lines(tool.definition.sent)
        if before == after:
            output.line("  as it was accepted")
        for line in list(unified_diff(before, after, lineterm="", n=1))[2:]:
            colour = {"+": "green", "-": "red"}.get(line[0], "dim")
            output.line(f"  {output.style(line, colour)}")


def _escaped_lines(raw: Raw) -> list[str]:
    """A tool object as lines of JSON, with escapes for what does not print."""
    text = msgspec.json.format(bytes(raw), indent=2).decode("utf-8", "replace")
    # Zero-width and bidirectional characters are how a description hides text from the person who accepts it.
    return [
        "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in line) for line in text.split("\n")
    ]
