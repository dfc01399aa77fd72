"""`toolfold build` and `toolfold servers`: connect, and print what came of it and what changed."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from toolfold.errors import UpstreamError
from toolfold.faces.cli.runner import load_settings, run_with_gateway
from toolfold.faces.cli.terminal import Output
from toolfold.faces.surface.instructions import visible_servers
from toolfold.gateway import Gateway
from toolfold.types import LOCAL, Change, Listing, ServerState

if TYPE_CHECKING:
    from toolfold.catalogue.build import Build

SOME_FAILED = 3
MAX_CHANGES = 20
MARKS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}
STATUS_COLOURS = {"ready": "green", "idle": "dim", "connecting": "yellow", "failed": "red", "disabled": "dim"}


def build(arguments: argparse.Namespace, output: Output) -> int:
    settings = load_settings(arguments)
    for warning in settings.warnings:
        output.warn(warning)
    registry = Path(arguments.registry) if arguments.registry else settings.home / "tool_registry.json"
    only = [settings.server(name).name for name in arguments.server or ()]
    total = len(only) or sum(spec.enabled for spec in settings.servers)

    async def work(gateway: Gateway) -> "tuple[Build, dict[str, UpstreamError]]":
        result = await read_servers(gateway, only or None, total, output, registry)
        if not arguments.no_search:
            with output.counter("indexing for search") as show:
                await gateway.search.sync(show)
        return result

    result, failed = run_with_gateway(settings, work, fast=True)
    if output.as_json:
        output.data(_report(result, failed, registry))
    else:
        _print_build(result, failed, output)
        output.line(f"registry: {registry}")
    return SOME_FAILED if failed else 0


async def read_servers(
    gateway: Gateway, servers: Sequence[str] | None, total: int, output: Output, registry: Path | None = None
) -> "tuple[Build, dict[str, UpstreamError]]":
    """Builds with a progress bar, and returns the build with the error of each server that failed. Indexes nothing."""
    failed: dict[str, UpstreamError] = {}
    with output.progress("connecting", total) as step:

        def on_server(name: str, result: Listing | UpstreamError) -> None:
            if isinstance(result, UpstreamError):
                failed[name] = result
                step(f"{name} failed")
            else:
                step(f"{name}, {len(result.tools)} tools")

        return await gateway.build(servers, registry=registry, on_server=on_server, index=False), failed


def _report(result: "Build", failed: dict[str, UpstreamError], registry: Path) -> dict[str, object]:
    keys = ("tools", "nodes", "added", "removed", "changed", "servers")
    return {
        "generation": result.generation,
        **{key: getattr(result.report, key) for key in keys},
        "failed": {name: error.as_dict() for name, error in failed.items()},
        "changes": result.changes,
        "warnings": result.report.warnings,
        "registry": str(registry),
    }


def _print_build(result: "Build", failed: dict[str, UpstreamError], output: Output) -> None:
    report = result.report
    for server in report.servers:
        for warning in server.warnings:
            output.warn(f"{server.name}: {warning}")
    for warning in report.warnings:
        output.warn(warning)
    for name, error in failed.items():
        print_failure(name, error, output)
    _print_changes(result.changes, report.unchanged, output)
    working = sum(not server.error for server in report.servers)
    output.line(
        f"{output.style(plural(report.tools, 'tool'), 'bold')} of {plural(len(report.servers), 'server')}"
        f" ({working} working) in {plural(report.nodes, 'category', 'categories')}"
    )


def print_failure(name: str, error: UpstreamError, output: Output) -> None:
    output.labelled("failed:", "red", f"{name}: {error.message}")
    # Hints are the last lines that the server wrote to standard error: the very last ones say why it ended.
    for hint in error.hints[-3:]:
        output.note(f"  - {hint}")
    if error.next_action:
        output.labelled("next:", "cyan", error.next_action, indent="  ")


def _print_changes(changes: Sequence[Change], unchanged: int, output: Output) -> None:
    """Prints what differs from the build before."""
    # A first build, or one of servers that were never there.
    if not unchanged and all(change.kind == "added" for change in changes):
        return
    for change in changes[:MAX_CHANGES]:
        mark, colour = MARKS[change.kind]
        fields = f" ({', '.join(change.fields)})" if change.fields else ""
        output.line(f"  {output.style(mark, colour)} {change.tool_id}{fields}")
    if len(changes) > MAX_CHANGES:
        output.line(f"  … and {len(changes) - MAX_CHANGES} more changes: toolfold build --json lists all")
    if not changes:
        output.line("nothing changed since the last build")


def servers(arguments: argparse.Namespace, output: Output) -> int:
    async def work(gateway: Gateway) -> Sequence[ServerState]:
        states = await gateway.servers(connect=arguments.connect)
        if arguments.view_as:
            visible = await visible_servers(gateway, LOCAL)
            states = [replace(state, tools=visible[state.name]) for state in states if visible.get(state.name)]
        return states

    settings = load_settings(arguments)
    states = run_with_gateway(settings, work, fast=arguments.connect)
    if output.as_json:
        output.data(msgspec.to_builtins(states))
    else:
        print_servers(states, output)
        if (idle_s := settings.limits.idle_s) and any(spec.transport == "stdio" for spec in settings.servers):
            output.note(f"servers start with their first call, and stop after {idle_s:g} s without one (limits.idle_s)")
    return SOME_FAILED if any(state.status == "failed" for state in states) else 0


def print_servers(states: Sequence[ServerState], output: Output) -> None:
    rows = []
    for state in states:
        about = (state.info.title or state.info.name, state.info.version, state.info.protocol_version)
        rows.append(
            (
                state.name,
                output.style(state.status, STATUS_COLOURS[state.status]),
                "" if state.tools is None else str(state.tools),
                state.transport,
                " ".join(filter(None, about)) or state.shown,
            )
        )
    output.table(("server", "state", "tools", "by", "what it says of itself"), rows)
    for state in states:
        if state.error:
            output.labelled("failed:", "red", f"{state.name}: {state.error}")
            if state.next_action:
                output.labelled("next:", "cyan", state.next_action, indent="  ")
        for warning in state.warnings:
            output.warn(f"{state.name}: {warning}")
        if state.note:
            output.note(f"{state.name}: {state.note}")


def plural(count: int, singular: str, many: str = "") -> str:
    """`1 tool`, `2 tools`."""
    return f"{count:,} {singular if count == 1 else many or singular + 's'}"
