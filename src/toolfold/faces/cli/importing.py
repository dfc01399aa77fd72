"""`toolfold import`: shows what MCP clients have configured, and with `--yes` writes it to `toolfold.toml`.

Without `--yes` nothing is written: on a terminal it asks, in a pipe it only shows. No client's own file is touched.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from toolfold.config import Settings
from toolfold.config.clients import (
    CLIENTS,
    Applied,
    ClientConfig,
    ImportPlan,
    apply,
    discover,
    plan_import,
    read_client_file,
)
from toolfold.faces.cli.output import Output
from toolfold.faces.cli.running import settings_of

MARKS = {
    "add": ("+", "green"),
    "rename": ("+", "green"),
    "identical": ("=", "dim"),
    "itself": ("=", "dim"),
    "broken": ("✗", "red"),
}


def take_over(arguments: argparse.Namespace, output: Output) -> int:
    found = configurations(arguments.client)
    target = target_of(arguments)
    existing = Settings.load(target, require_servers=False) if target.exists() else None
    plan = plan_import(found, existing, secrets=arguments.secrets)
    if not output.as_json:
        show(plan, target, output)
    write = bool(plan.additions) and (arguments.yes or agreed(plan, target, output))
    applied = apply(plan, target) if write else None
    if output.as_json:
        output.data(as_dict(plan, target, applied))
    elif applied is not None:
        tell(applied, output)
    elif plan.additions:
        output.note("nothing was written; run it again with --yes")
    return 0


def configurations(client: str | None) -> Sequence[ClientConfig]:
    """All clients' files, or one client's, or one named file."""
    if client is not None and client not in CLIENTS and Path(client).exists():
        return [read_client_file(client)]
    return discover(client)


def target_of(arguments: argparse.Namespace) -> Path:
    """The `toolfold.toml` to write: the one asked for, the one in use, or the user's own."""
    if arguments.to:
        return Path(arguments.to)
    settings = settings_of(arguments, require_servers=False)
    toml = [source for source in settings.sources if source.suffix == ".toml"]
    if toml:
        return toml[0]
    return (Path(arguments.home) if arguments.home else settings.user_home) / "toolfold.toml"


def show(plan: ImportPlan, target: Path, output: Output) -> None:
    for problem in plan.problems:
        output.warn(problem)
    if not plan.items:
        output.note("no servers found in any client's configuration")
        output.note(f"looked for: {', '.join(CLIENTS)}; a file can be named, too: toolfold import FILE")
        return
    seen: Path | None = None
    for item in plan.items:
        if item.path != seen:
            seen = item.path
            output.line(f"{output.style(item.title, 'bold')} ({item.scope}) {output.style(str(item.path), 'dim')}")
        mark, colour = MARKS[item.action]
        rest = f"  {output.style(item.reason, 'yellow')}" if item.reason else ""
        output.line(f"  {output.style(mark, colour)} {item.name}  {output.style(item.shown, 'dim')}{rest}")
    for warning in plan.warnings:
        output.warn(warning)
    output.line(f"{len(plan.additions)} of {len(plan.items)} servers would be added to {target}")


def agreed(plan: ImportPlan, target: Path, output: Output) -> bool:
    """Asks a person, if there is one."""
    if output.as_json or not (sys.stdin.isatty() and output.err.isatty()):
        return False
    output.err.write(f"write {len(plan.additions)} servers to {target}? [y/N] ")
    output.err.flush()
    return sys.stdin.readline().strip().casefold() in {"y", "yes"}


def tell(applied: Applied, output: Output) -> None:
    output.line(f"{output.style('written:', 'green')} {applied.target} ({len(applied.added)} servers)")
    if applied.backup is not None:
        output.line(f"the file as it was: {applied.backup}")
    if applied.private:
        output.line("it holds secrets, so only you may read it")
    for variable in applied.variables:
        output.line(f"set this before you go on: export {variable}=…")
    output.line(f"{output.style('next:', 'cyan')} toolfold build")


def as_dict(plan: ImportPlan, target: Path, applied: Applied | None) -> dict[str, object]:
    return {
        "target": str(target),
        "items": [item.as_dict() for item in plan.items],
        "problems": plan.problems,
        "warnings": plan.warnings,
        "written": None
        if applied is None
        else {"added": applied.added, "backup": applied.backup and str(applied.backup)},
        "variables": plan.variables,
    }
