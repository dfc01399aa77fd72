"""`toolfold import`: shows what MCP clients have configured, and with `--yes` writes it to `toolfold.toml`.

Without `--yes` nothing is written: on a terminal it asks, in a pipe it only shows. A client's own file is touched only
with `--replace`, which leaves toolfold as its one server; a backup of the file comes first.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from toolfold.config import Settings
from toolfold.config.clients import (
    CLIENTS,
    Applied,
    ClientConfig,
    ImportPlan,
    PlanItem,
    Replacement,
    apply,
    discover,
    plan_import,
    read_client_file,
    replace_servers,
    toolfold_entry,
)
from toolfold.faces.cli.runner import load_settings
from toolfold.faces.cli.terminal import Output

MARKS = {
    "add": ("+", "green"),
    "rename": ("+", "green"),
    "identical": ("=", "dim"),
    "itself": ("=", "dim"),
    "broken": ("✗", "red"),
}


def import_servers(arguments: argparse.Namespace, output: Output) -> int:
    found = _client_configs(arguments.client)
    target = _target(arguments)
    existing = Settings.load(target, require_servers=False) if target.exists() else None
    plan = plan_import(found, existing, secrets=arguments.secrets)
    if not output.as_json:
        _print_plan(plan, target, output)
    write = bool(plan.additions) and (arguments.yes or _confirm(plan, target, output))
    applied = apply(plan, target) if write else None
    replaced = _replace_servers(arguments, found, plan, target, output) if write or not plan.additions else []
    if output.as_json:
        output.data(
            {
                **_as_dict(plan, target, applied),
                "replaced": [
                    {"path": str(one.path), "backup": str(one.backup), "removed": one.removed} for one in replaced
                ],
            }
        )
        return 0
    if applied is not None:
        _print_applied(applied, output)
    elif plan.additions:
        output.note("nothing was written; run it again with --yes")
    for one in replaced:
        output.line(f"{output.style('replaced:', 'green')} {one.path} now starts toolfold alone")
        output.line(f"the file as it was: {one.backup}")
    return 0


def _replace_servers(
    arguments: argparse.Namespace, found: Sequence[ClientConfig], plan: ImportPlan, target: Path, output: Output
) -> list[Replacement]:
    """Points clients at toolfold, where a person asked for it. A file with a server that could not be read stays."""
    if not arguments.replace:
        return []
    if not arguments.yes:
        output.note("with --replace and --yes these clients would start toolfold alone")
        return []
    unread = {item.path for item in plan.items if item.action == "broken"}
    done = []
    for config in found:
        ours = {item.written for item in plan.items if _is_ours(item, config)}
        if {server.written for server in config.servers} <= ours:
            continue
        if config.path in unread:
            output.warn(f"{config.path} was left as it is: one of its servers could not be taken over")
            continue
        entry = toolfold_entry(config.client, target.resolve(), command=shutil.which("toolfold") or "toolfold")
        done.append(replace_servers(config, entry, drop_comments=arguments.drop_comments))
    return done


def _is_ours(item: PlanItem, config: ClientConfig) -> bool:
    """Whether that server of the client is toolfold already."""
    return item.action == "itself" and item.path == config.path


def _client_configs(client: str | None) -> Sequence[ClientConfig]:
    """All clients' files, or one client's, or one named file."""
    if client is not None and client not in CLIENTS and Path(client).exists():
        return [read_client_file(client)]
    return discover(client)


def _target(arguments: argparse.Namespace) -> Path:
    """The `toolfold.toml` to write: the one asked for, the one in use, or the user's own."""
    if arguments.to:
        return Path(arguments.to)
    settings = load_settings(arguments, require_servers=False)
    toml = [source for source in settings.sources if source.suffix == ".toml"]
    if toml:
        return toml[0]
    return (Path(arguments.home) if arguments.home else settings.user_home) / "toolfold.toml"


def _print_plan(plan: ImportPlan, target: Path, output: Output) -> None:
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


def _confirm(plan: ImportPlan, target: Path, output: Output) -> bool:
    """Asks a person, if there is one."""
    if output.as_json or not (sys.stdin.isatty() and output.err.isatty()):
        return False
    output.err.write(f"write {len(plan.additions)} servers to {target}? [y/N] ")
    output.err.flush()
    return sys.stdin.readline().strip().casefold() in {"y", "yes"}


def _print_applied(applied: Applied, output: Output) -> None:
    output.line(f"{output.style('written:', 'green')} {applied.target} ({len(applied.added)} servers)")
    if applied.backup is not None:
        output.line(f"the file as it was: {applied.backup}")
    if applied.private:
        output.line("it holds secrets, so only you may read it")
    for variable in applied.variables:
        output.line(f"set this before you go on: export {variable}=…")
    output.line(f"{output.style('next:', 'cyan')} toolfold build")


def _as_dict(plan: ImportPlan, target: Path, applied: Applied | None) -> dict[str, object]:
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
