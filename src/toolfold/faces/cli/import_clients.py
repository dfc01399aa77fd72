"""`toolfold import`: shows what MCP clients have configured, and with `--yes` writes it to `toolfold.toml`.

Without `--yes` nothing is written: on a terminal it asks, in a pipe it only shows. A client's own file is touched only
with `--replace`, which leaves toolfold as its one server; a backup of the file comes first.
"""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from toolfold.config import Settings, clients
from toolfold.config.clients import CLIENTS, Applied, ClientConfig, ImportPlan, Replacement
from toolfold.faces.cli.runner import load_settings
from toolfold.faces.cli.terminal import Output

MARKS = {
    "add": ("+", "green"),
    "rename": ("+", "green"),
    "identical": ("=", "dim"),
    "itself": ("=", "dim"),
    "broken": ("✗", "red"),
}


def import_servers(arguments: argparse.Namespace, output: Output) -> None:
    configs = _client_configs(arguments.client)
    target = _target(arguments)
    existing = Settings.load(target, require_servers=False) if target.exists() else None
    plan = clients.plan_import(configs, existing, secrets=arguments.secrets)
    if not output.as_json:
        _print_plan(plan, target, output)
    write = bool(plan.additions) and (arguments.yes or _confirm(plan, target, output))
    applied = clients.apply(plan, target) if write else None
    replaced: list[Replacement] = []
    if arguments.replace and (write or not plan.additions):
        replaced = _replace_servers(arguments, configs, plan, target, output)
    if output.as_json:
        output.data(_as_dict(plan, target, applied, replaced))
    else:
        _print_applied(plan, applied, replaced, output)


def _client_configs(client: str | None) -> Sequence[ClientConfig]:
    """All clients' files, or one client's, or one named file."""
    if client is not None and client not in CLIENTS and Path(client).exists():
        return [clients.read_client_file(client)]
    return clients.discover(client)


def _target(arguments: argparse.Namespace) -> Path:
    """The `toolfold.toml` to write: the one asked for, the one in use, or the user's own."""
    if arguments.to:
        return Path(arguments.to)
    settings = load_settings(arguments, require_servers=False)
    for source in settings.sources:
        if source.suffix == ".toml":
            return source
    return (Path(arguments.home) if arguments.home else settings.user_home) / "toolfold.toml"


def _confirm(plan: ImportPlan, target: Path, output: Output) -> bool:
    return output.interactive and output.confirm(f"write {len(plan.additions)} servers to {target}?")


def _replace_servers(
    arguments: argparse.Namespace, configs: Sequence[ClientConfig], plan: ImportPlan, target: Path, output: Output
) -> list[Replacement]:
    """Points clients at toolfold."""
    if not arguments.yes:
        output.note("with --replace and --yes these clients would start toolfold alone")
        return []
    unreadable = {item.path for item in plan.items if item.action == "broken"}
    replaced = []
    for config in configs:
        if _starts_toolfold_alone(config, plan):
            continue
        # A server that could not be read is in no other file: replacing this one would lose it.
        if config.path in unreadable:
            output.warn(f"{config.path} was left as it is: one of its servers could not be taken over")
            continue
        entry = clients.toolfold_entry(config.client, target.resolve(), command=shutil.which("toolfold") or "toolfold")
        replaced.append(clients.replace_servers(config, entry, drop_comments=arguments.drop_comments))
    return replaced


def _starts_toolfold_alone(config: ClientConfig, plan: ImportPlan) -> bool:
    itself = {item.written for item in plan.items if item.action == "itself" and item.path == config.path}
    return {server.written for server in config.servers} <= itself


def _print_plan(plan: ImportPlan, target: Path, output: Output) -> None:
    for problem in plan.problems:
        output.warn(problem)
    if not plan.items:
        output.note("no servers found in any client's configuration")
        output.note(f"looked for: {', '.join(CLIENTS)}; a file can be named, too: toolfold import FILE")
        return
    heading: Path | None = None
    for item in plan.items:
        if item.path != heading:
            heading = item.path
            output.line(f"{output.style(item.title, 'bold')} ({item.scope}) {output.style(str(item.path), 'dim')}")
        mark, colour = MARKS[item.action]
        reason = f"  {output.style(item.reason, 'yellow')}" if item.reason else ""
        output.line(f"  {output.style(mark, colour)} {item.name}  {output.style(item.shown, 'dim')}{reason}")
    for warning in plan.warnings:
        output.warn(warning)
    output.line(f"{len(plan.additions)} of {len(plan.items)} servers would be added to {target}")


def _print_applied(plan: ImportPlan, applied: Applied | None, replaced: Sequence[Replacement], output: Output) -> None:
    if applied is not None:
        output.line(f"{output.style('written:', 'green')} {applied.target} ({len(applied.added)} servers)")
        if applied.backup is not None:
            output.line(f"the file as it was: {applied.backup}")
        if applied.private:
            output.line("it holds secrets, so only you may read it")
        for variable in applied.variables:
            output.line(f"set this before you go on: export {variable}=…")
        output.line(f"{output.style('next:', 'cyan')} toolfold build")
    elif plan.additions:
        output.note("nothing was written; run it again with --yes")
    for file in replaced:
        output.line(f"{output.style('replaced:', 'green')} {file.path} now starts toolfold alone")
        output.line(f"the file as it was: {file.backup}")


def _as_dict(
    plan: ImportPlan, target: Path, applied: Applied | None, replaced: Sequence[Replacement]
) -> dict[str, object]:
    written = None if applied is None else {"added": applied.added, "backup": applied.backup and str(applied.backup)}
    return {
        "target": str(target),
        "items": [item.as_dict() for item in plan.items],
        "problems": plan.problems,
        "warnings": plan.warnings,
        "written": written,
        "variables": plan.variables,
        "replaced": [
            {"path": str(file.path), "backup": str(file.backup), "removed": file.removed} for file in replaced
        ],
    }
