"""`toolfold build` and `toolfold servers`: connect, and print what came of it and what changed.

Here stands also how every command gets at a catalogue that was not built yet.
"""

import argparse
import os
import re
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolfold.audit.savings import compute_savings
from toolfold.config import Settings
from toolfold.errors import ConfigError, NotBuilt, SignInRequired, UpstreamError
from toolfold.faces.cli.parser import parse
from toolfold.faces.cli.runner import _few, load_settings, outdated_text, run_with_gateway
from toolfold.faces.cli.server_lines import server_lines
from toolfold.faces.cli.terminal import Output, one_line
from toolfold.faces.mcp_server.profiles import client_tokens
from toolfold.faces.surface.instructions import visible_servers
from toolfold.gateway import Gateway
from toolfold.telemetry.server_logs import LogLine, ServerLogs
from toolfold.text import printable
from toolfold.types import LOCAL, Change, Listing, ServerState
from toolfold.upstream.credentials import SignedIn

if TYPE_CHECKING:
    from toolfold.catalogue.build import Build

T = TypeVar("T")

SOME_FAILED = 3
# How many lines of a server's log are looked at for what became of it.
LOG_LINES = 200
# How far the two clocks by which a process was started may lie apart.
_CLOCK_S = 5.0
_STARTED = re.compile(r"started (?:again )?in .*, process (\d+)")
MAX_CHANGES = 20
MAX_FIELDS_SHOWN = 200
MARKS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}
STATUS_COLOURS = {"ready": "green", "idle": "dim", "connecting": "yellow", "failed": "red", "disabled": "dim"}
STATUS_COLOURS |= dict.fromkeys(("needs sign-in", "not accepted", "not read"), "yellow")
_LABELS = {False: ("failed:", "red"), True: ("needs sign-in:", "yellow")}
_NAMED_CALLERS = 5
# The server of scripts that are kept.
_SCRIPTS = "scripts"


def build(arguments: argparse.Namespace, output: Output) -> int:
    settings = load_settings(arguments)
    for warning in settings.warnings:
        output.warn(warning)
    registry = Path(arguments.registry) if arguments.registry else settings.home / "tool_registry.json"
    if registry.is_dir():
        raise ConfigError(f"--registry {registry} is a folder", next_action="name a file, such as tool_registry.json")
    only = [settings.server(name).name for name in arguments.server or ()]

    async def work(gateway: Gateway) -> "tuple[Build, dict[str, UpstreamError], Cost]":
        result, failed = await read_servers(gateway, only or None, output, registry)
        if not arguments.no_search:
            with output.counter("indexing for search") as show:
                await gateway.search.sync(show)
        return result, failed, await Cost.count(gateway)

    result, failed, cost = run_with_gateway(settings, work, fast=True)
    if output.as_json:
        output.data({**_report(result, failed, cost, registry), "withheld": _withheld(settings)})
    else:
        _print_build(result, failed, output)
        output.prose(f"registry: {output.short_path(registry)}")
        cost.print(output)
    return SOME_FAILED if failed else 0


async def read_servers(
    gateway: Gateway, servers: Sequence[str] | None, output: Output, registry: Path | None = None
) -> "tuple[Build, dict[str, UpstreamError]]":
    """Builds, showing what it waits for, and returns the build with the error of each server that failed. Indexes
    nothing."""
    failed: dict[str, UpstreamError] = {}
    waiting = dict.fromkeys(servers or [spec.name for spec in gateway.upstreams.specs() if spec.enabled])
    tools = 0
    with ExitStack() as stage:
        step = stage.enter_context(output.progress("connecting", len(waiting), _waiting_text(waiting)))
        stage.enter_context(server_lines(gateway, output))

        def on_server(name: str, result: Listing | UpstreamError) -> None:
            nonlocal tools
            waiting.pop(name, None)
            if isinstance(result, UpstreamError):
                failed[name] = result
            else:
                tools += result.tool_count
            step(_waiting_text(waiting))
            if not waiting:
                stage.close()
                stage.enter_context(output.progress(f"placing {plural(tools, 'tool')} in the tree", None))

        return await gateway.build(servers, registry=registry, on_server=on_server, index=False), failed


def _waiting_text(waiting: Collection[str]) -> str:
    return f"waiting for {', '.join(waiting)}" if waiting else ""


def run_with_catalogue(
    arguments: argparse.Namespace,
    work: Callable[[Gateway], Awaitable[T]],
    *,
    build_first: bool = True,
    require_servers: bool = False,
    rereads: str = "",
    **options: bool,
) -> T:
    """Runs `work` on the catalogue. Where there is none yet it is built first, if there are servers to build it from;
    a catalogue that is there needs no configured server, and no file is made. Of the server that `work` reads anew
    itself nobody need hear that it is outdated."""
    settings = load_settings(arguments, require_servers=require_servers)
    output = Output(as_json=arguments.json)

    async def with_note(gateway: Gateway) -> T:
        await _note_outdated(gateway, output, rereads)
        return await work(gateway)

    try:
        return run_with_gateway(settings, with_note, create=False, **options)
    except NotBuilt:
        names = [spec.name for spec in settings.servers if spec.enabled]
        if not build_first:
            raise
    if not names:
        action = "toolfold import, or toolfold add NAME -- COMMAND; then: toolfold build"
        raise NotBuilt("there is no catalogue yet, and no server is configured", next_action=action)
    output.note(f"there is no catalogue yet: building it from {_few(names)}")

    async def build_now(gateway: Gateway) -> None:
        result, failed = await read_servers(gateway, None, output)
        for name, error in failed.items():
            print_failure(name, error, output)
        if result.report.tools:
            with output.counter("indexing for search") as show:
                await gateway.search.sync(show)

    run_with_gateway(settings, build_now, fast=True)
    return run_with_gateway(settings, work, create=False, **options)


class Cost(Struct, frozen=True):
    """What all tools cost a client that lists them, and what it reads instead, in tokens; `None` where there are no
    token tables to count with."""

    tools: int = 0
    definition_tokens: int | None = None
    client_tokens: int | None = None

    @classmethod
    async def count(cls, gateway: Gateway) -> "Cost":
        try:
            whole = await compute_savings((), gateway.view().catalogue, gateway.store, 0)
            return cls(whole.tools, whole.full_tokens, await client_tokens(gateway, parse(["serve"]).profile))
        except ConfigError:
            return cls()

    def print(self, output: Output, indent: str = "") -> None:
        """What it means: `1,806 tools, 1,308,619 tokens; your client now reads 1,150`."""
        if self.tools:
            full, read = self.definition_tokens or 0, self.client_tokens or 0
            text = f"{plural(self.tools, 'tool')}, {full:,} tokens; your client now reads {read:,}"
            few = "" if read < full else ": so few are listed as they are, beside tools of toolfold's own"
            output.prose(f"{indent}{output.style(text, 'bold')}{few}")

    def as_dict(self) -> dict[str, int | None]:
        return {"definition_tokens": self.definition_tokens, "client_tokens": self.client_tokens}


def _report(result: "Build", failed: dict[str, UpstreamError], cost: Cost, registry: Path) -> dict[str, object]:
    keys = ("tools", "nodes", "added", "removed", "changed", "servers")
    return {
        "generation": result.generation,
        **{key: getattr(result.report, key) for key in keys},
        "failed": {name: error.as_dict() for name, error in failed.items()},
        "changes": result.changes,
        "warnings": result.report.warnings,
        "registry": str(registry),
        **cost.as_dict(),
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
    own = [server for server in report.servers if server.name != _SCRIPTS]
    working = sum(not server.error for server in own)
    kept = " and the scripts that are kept" if len(own) < len(report.servers) else ""
    output.prose(
        f"{output.style(plural(report.tools, 'tool'), 'bold')} of {plural(len(own), 'server')}{kept}"
        f" ({working} working) in {plural(report.nodes, 'category', 'categories')}"
    )


async def _count_leaves(gateway: Gateway, total: int) -> tuple[int, int]:
    """Of so many leaves, how many are tools, and how many prompts and resources."""
    tools = min(total, sum((await visible_servers(gateway, LOCAL)).values()))
    return tools, total - tools


def _leaves_text(tools: int, others: int) -> str:
    beside = plural(others, "prompt or resource", "prompts and resources")
    return f"{plural(tools, 'tool')} and {beside}" if others else plural(tools, "tool")


def print_failure(name: str, error: UpstreamError, output: Output) -> None:
    waits = isinstance(error, SignInRequired)
    output.labelled(*_LABELS[waits], f"{name}: {_once(name, error.message)}")
    # Hints are the last lines that the server wrote to standard error: the very last ones say why it ended. Those of a
    # traceback say only where: the log has them.
    for hint in error.hints[-3:]:
        if str(hint) not in error.message and not str(hint).startswith((" ", "Traceback (")):
            output.note(f"  - {one_line(str(hint))}")
    if error.next_action:
        output.labelled("next:", "cyan", error.next_action.removeprefix("Run: "), indent="  ")


def _once(name: str, message: str) -> str:
    """A message without what the label before it says already."""
    return message.removeprefix(f"{name} ").removeprefix(f"{SignInRequired.phrase}: ")


def _print_changes(changes: Sequence[Change], unchanged: int, output: Output) -> None:
    """Prints what differs from the build before."""
    # A first build, or one of servers that were never there.
    if not unchanged and all(change.kind == "added" for change in changes):
        return
    for change in changes[:MAX_CHANGES]:
        mark, colour = MARKS[change.kind]
        fields = f" ({printable(', '.join(change.fields), MAX_FIELDS_SHOWN)})" if change.fields else ""
        output.line(f"  {output.style(mark, colour)} {change.tool_id}{fields}")
    if len(changes) > MAX_CHANGES:
        output.line(f"  … and {len(changes) - MAX_CHANGES} more changes: toolfold build --json lists all")
    if not changes:
        output.line("nothing changed since the last build")


def servers(arguments: argparse.Namespace, output: Output) -> int:
    async def work(gateway: Gateway) -> tuple[Sequence[ServerState], Sequence[SignedIn]]:
        await _note_outdated(gateway, output)
        states = await gateway.servers(connect=arguments.connect)
        if arguments.view_as:
            visible = await visible_servers(gateway, LOCAL)
            states = [replace(state, tools=visible[state.name]) for state in states if visible.get(state.name)]
        return states, await gateway.upstreams.credentials.summaries(entry.name for entry in settings.callers)

    settings = load_settings(arguments)
    states, signed_in = run_with_gateway(settings, work, fast=arguments.connect)
    if not arguments.connect:
        logs = ServerLogs(settings.home / "logs")
        states = [_elsewhere(state, logs) for state in states]
    states = [*states, *_withheld(settings, arguments.view_as)]
    own = _by_server(states, signed_in, arguments.view_as)
    if output.as_json:
        output.data([{**msgspec.to_builtins(state), "signed_in": own[state.name]} for state in states])
    else:
        print_servers(states, output)
        _print_signed_in(own, {state.next_action for state in states}, output)
        _print_unread([one for found in own.values() for one in found], output)
        _print_how_known(settings, output, connected=arguments.connect)
    return SOME_FAILED if any(state.status == "failed" for state in states) else 0


async def _note_outdated(gateway: Gateway, output: Output, rereads: str = "") -> None:
    """Says how the catalogue is older than the configuration, but for the server that is read again."""
    outdated = await gateway.upstreams.outdated()
    if outdated := {name: became for name, became in outdated.items() if name != rereads}:
        output.note(f"{outdated_text(gateway.settings, outdated)}: toolfold build")


def _withheld(settings: Settings, view_as: str | None = None) -> list[ServerState]:
    """The servers of files that the person has not accepted, which are no caller's."""
    kept = [(spec, left.command) for left in settings.withheld if not view_as for spec in left.servers]
    return [
        ServerState(name=spec.name, transport=spec.transport, status="not accepted", shown=spec.shown(), next_action=do)
        for spec, do in kept
    ]


def _print_how_known(settings: Settings, output: Output, *, connected: bool) -> None:
    if not connected:
        output.note("by the last build and the logs; --connect starts each and asks it")
    if (idle_s := settings.limits.idle_s) and any(spec.transport == "stdio" for spec in settings.servers):
        output.note(f"servers start with a call and stop after {idle_s / 60:g} min without one (limits.idle_s)")


def _elsewhere(state: ServerState, logs: ServerLogs) -> ServerState:
    """The state with what another toolfold on this state folder wrote of the server last: that it runs, or rests."""
    if state.status not in {"idle", "failed", "not read"}:
        return state
    told = [line for line in reversed(logs.read(state.name, LOG_LINES)) if line.writer == "toolfold"]
    if pid := _running(told):
        note = f"runs in another toolfold, process {pid}"
        return replace(state, status="ready", pid=pid, error="", next_action="", note=note)
    last = told[0].text if told else ""
    return replace(state, note=f"in another toolfold: {last}") if last.startswith("stopped after") else state


def _running(told: Sequence[LogLine]) -> int | None:
    """The process that is still there: several toolfolds may have started one each."""
    started = ((line.time, int(match[1])) for line in told if (match := _STARTED.match(line.text)))
    return next((pid for at, pid in started if _is_alive(pid, at)), None)


def _is_alive(pid: int, since: str) -> bool:
    """Whether the process that was started by then is still there, and its number is no other's by now."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is there, and somebody else's
        pass
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        up_s = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):  # no Linux
        return True
    started = time.time() - up_s + ticks / os.sysconf("SC_CLK_TCK")
    return started <= datetime.fromisoformat(since).timestamp() + _CLOCK_S


def print_servers(states: Sequence[ServerState], output: Output, indent: str = "") -> None:
    rows = []
    for state in states:
        protocol = state.info.protocol_version and f"(MCP {state.info.protocol_version})"
        about = (state.info.title or state.info.name, state.info.version, protocol)
        rows.append(
            (
                state.name,
                output.style(state.status, STATUS_COLOURS[state.status]),
                "" if state.tools is None else str(state.tools),
                state.transport,
                " ".join(filter(None, about)) or state.shown,
            )
        )
    output.table(("server", "state", "tools", "by", "what it says of itself"), rows, indent)
    for state in states:
        _print_troubles(state, output)


def _print_troubles(state: ServerState, output: Output) -> None:
    if state.error:
        output.labelled(*_LABELS[state.status == "needs sign-in"], f"{state.name}: {_once(state.name, state.error)}")
        if state.next_action:
            output.labelled("next:", "cyan", state.next_action.removeprefix("Run: "), indent="  ")
    for warning in state.warnings:
        output.warn(f"{state.name}: {warning}")
    if state.note:
        output.note(f"{state.name}: {state.note}")


def _by_server(
    states: Sequence[ServerState], signed_in: Sequence[SignedIn], view_as: str | None
) -> dict[str, list[SignedIn]]:
    seen = [one for one in signed_in if not view_as or one.caller in ("", view_as)]
    return {state.name: [one for one in seen if one.server == state.name] for state in states}


def _print_signed_in(signed_in: dict[str, list[SignedIn]], told: Collection[str], output: Output) -> None:
    """`told`: next steps that a person has read already."""
    for server, own in signed_in.items():
        for one in filter(lambda one: not one.problem, own[:_NAMED_CALLERS]):
            whose = f"{one.caller} is " if one.caller else ""
            output.note(f"{server}: {whose}signed in{one.describe()}")
            if (action := one.command or one.next_action) and action not in told:
                output.labelled("next:", "cyan", action, indent="  ")
        if len(own) > _NAMED_CALLERS:
            output.note(f"{server}: and {len(own) - _NAMED_CALLERS} more callers; servers --json lists them")


def _print_unread(sign_ins: Sequence[SignedIn], output: Output) -> None:
    """Those that cannot be read, once for all that have the same trouble."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in filter(lambda one: one.problem, sign_ins):
        whose = f" (caller {one.caller})" if one.caller and not one.caller.startswith("#") else ""
        found.setdefault((one.problem, one.next_action), []).append(one.server + whose)
    for (problem, action), servers in found.items():
        few = ", ".join(list(dict.fromkeys(servers))[:_NAMED_CALLERS])
        output.warn(f"{few}: {problem}" + (f" ({len(servers)} sign-ins)" if len(servers) > 1 else ""))
        output.labelled("next:", "cyan", action, indent="  ")


def plural(count: int, singular: str, many: str = "") -> str:
    """`1 tool`, `2 tools`."""
    return f"{count:,} {singular if count == 1 else many or singular + 's'}"
