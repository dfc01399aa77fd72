"""`toolfold build` and `toolfold servers`: connect, tell what came of it, and what changed."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolfold.errors import UpstreamError
from toolfold.faces.cli.runner import load_settings, run_with_gateway
from toolfold.faces.cli.terminal import Output, Progress
from toolfold.gateway import Gateway
from toolfold.types import Change, Listing, ServerState

if TYPE_CHECKING:
    from toolfold.gateway import Build

SOME_FAILED = 3
SHOWN_CHANGES = 20
MARKS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}
DOTS = {"ready": "green", "idle": "dim", "connecting": "yellow", "failed": "red", "disabled": "dim"}


def build(arguments: argparse.Namespace, output: Output) -> int:
    settings = load_settings(arguments)
    for warning in settings.warnings:
        output.warn(warning)
    registry = Path(arguments.registry) if arguments.registry else None
    asked = [settings.server(name).name for name in arguments.server or ()]
    names = asked or [spec.name for spec in settings.servers if spec.enabled]

    async def work(gateway: Gateway) -> "tuple[Build, dict[str, UpstreamError]]":
        made = await read_servers(gateway, asked or None, len(names), output, registry)
        if not arguments.no_search:
            await gateway.finder.sync()
        return made

    made, failed = run_with_gateway(settings, work, fast=True)
    if output.as_json:
        output.data(_report(made, failed, registry or settings.home / "tool_registry.json"))
    else:
        _print_build(made, failed, output)
        output.line(f"registry: {registry or settings.home / 'tool_registry.json'}")
    return SOME_FAILED if failed else 0


async def read_servers(
    gateway: Gateway, servers: Sequence[str] | None, total: int, output: Output, registry: Path | None = None
) -> "tuple[Build, dict[str, UpstreamError]]":
    """Builds with a progress bar, and keeps the errors."""
    failed: dict[str, UpstreamError] = {}
    with output.progress("connecting", total) as step:

        def done(name: str, found: Listing | UpstreamError) -> None:
            if isinstance(found, UpstreamError):
                failed[name] = found
            _show_progress(step, name, found)

        made = await gateway.build(servers, registry=registry, on_server=done)
    return made, failed


def _show_progress(step: Progress, name: str, found: Listing | UpstreamError) -> None:
    step(f"{name} failed" if isinstance(found, UpstreamError) else f"{name}, {len(found.tools)} tools")


def _report(made: "Build", failed: dict[str, UpstreamError], registry: Path) -> dict[str, object]:
    return {
        "generation": made.generation,
        "tools": made.report.tools,
        "nodes": made.report.nodes,
        "added": made.report.added,
        "removed": made.report.removed,
        "changed": made.report.changed,
        "servers": made.report.servers,
        "failed": {name: error.as_dict() for name, error in failed.items()},
        "changes": made.changes,
        "warnings": made.report.warnings,
        "registry": str(registry),
    }


def _print_build(made: "Build", failed: dict[str, UpstreamError], output: Output) -> None:
    known = made.report
    for server in known.servers:
        for warning in server.warnings:
            output.warn(f"{server.name}: {warning}")
    for warning in known.warnings:
        output.warn(warning)
    for name, error in failed.items():
        print_failure(name, error, output)
    _print_changes(made.changes, known.unchanged, output)
    working = sum(not server.error for server in known.servers)
    output.line(
        f"{output.style(plural(known.tools, 'tool'), 'bold')} of {plural(len(known.servers), 'server')}"
        f" ({working} working) in {plural(known.nodes, 'category', 'categories')}"
    )


def print_failure(name: str, error: UpstreamError, output: Output) -> None:
    output.note(f"{output.style('failed:', 'red', stream=output.err)} {name}: {error.message}")
    for hint in error.hints[-3:]:
        output.note(f"  - {hint}")
    if error.next_action:
        output.note(f"  {output.style('next:', 'cyan', stream=output.err)} {error.next_action}")


def _print_changes(changes: Sequence[Change], unchanged: int, output: Output) -> None:
    """What differs from the build before; a first build is all new and says so by its count alone."""
    if not unchanged and all(change.kind == "added" for change in changes):
        return
    for change in changes[:SHOWN_CHANGES]:
        mark, colour = MARKS[change.kind]
        fields = f" ({', '.join(change.fields)})" if change.fields else ""
        output.line(f"  {output.style(mark, colour)} {change.tool_id}{fields}")
    if len(changes) > SHOWN_CHANGES:
        output.line(f"  … and {len(changes) - SHOWN_CHANGES} more changes: toolfold build --json lists all")
    if not changes:
        output.line("nothing changed since the last build")


def servers(arguments: argparse.Namespace, output: Output) -> int:
    settings = load_settings(arguments)

    async def work(gateway: Gateway) -> Sequence[ServerState]:
        return await gateway.servers(connect=arguments.connect)

    states = run_with_gateway(settings, work, fast=arguments.connect)
    if output.as_json:
        output.data([_as_dict(state) for state in states])
    else:
        print_servers(states, output)
    return SOME_FAILED if any(state.status == "failed" for state in states) else 0


def print_servers(states: Sequence[ServerState], output: Output) -> None:
    rows = []
    for state in states:
        name = state.info.title or state.info.name
        about = " ".join(filter(None, (name, state.info.version, state.info.protocol_version)))
        rows.append(
            (
                state.name,
                output.style(state.status, DOTS[state.status]),
                "" if state.tools is None else str(state.tools),
                state.transport,
                about or state.shown,
            )
        )
    output.table(("server", "state", "tools", "by", "what it says of itself"), rows)
    for state in states:
        if state.error:
            output.note(f"{output.style('failed:', 'red', stream=output.err)} {state.name}: {state.error}")
            if state.next_action:
                output.note(f"  {output.style('next:', 'cyan', stream=output.err)} {state.next_action}")
        for warning in state.warnings:
            output.warn(f"{state.name}: {warning}")


def _as_dict(state: ServerState) -> dict[str, object]:
    import msgspec

    found: dict[str, object] = msgspec.to_builtins(state)
    return found


def plural(number: int, one: str, many: str = "") -> str:
    """`1 tool`, `2 tools`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
