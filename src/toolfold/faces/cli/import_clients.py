"""`toolfold import`: shows what MCP clients have configured, and with `--yes` writes it to `toolfold.toml`.

Without `--yes` nothing is written: on a terminal it asks, in a pipe it only shows. A client's own file is touched only
with `--replace`, which leaves toolfold as its one server. That is all or nothing: everything is checked, the servers
are started once, then all files are written, a backup of each beside it. `--undo` takes the last import back.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from toolfold.config import Limits, Settings, clients
from toolfold.config.clients import CLIENTS, Applied, ClientConfig, ImportPlan, Rewrite
from toolfold.errors import ConfigError, UpstreamError
from toolfold.faces.cli.build import SOME_FAILED, Cost, plural, print_failure, read_servers
from toolfold.faces.cli.runner import load_settings, run_with_gateway
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway

MARKS = {
    "add": ("+", "green"),
    "rename": ("+", "green"),
    "identical": ("=", "dim"),
    "itself": ("=", "dim"),
    "broken": ("✗", "red"),
}
UNDONE = {
    "restored": ("restored:", ""),
    "removed": ("removed:", ", which the import had made"),
    "merged": ("restored:", ": its servers; all else in it was changed since and stays"),
    "kept": ("kept:", ", since it was changed after the import"),
}


def import_servers(arguments: argparse.Namespace, output: Output) -> int:
    target, journal = _target(arguments)
    if arguments.undo:
        return _undo(arguments, journal, output)
    configs = _client_configs(arguments.client)
    existing = Settings.load(target, require_servers=False) if target.exists() else None
    plan = clients.plan_import(configs, existing, secrets=arguments.secrets)
    if not output.as_json:
        _print_plan(plan, target, output)
    rewrites = _rewrites(arguments, configs, plan, target, output) if arguments.replace else []
    # Before anything is asked, started or written: what stands in the way is told first, all of it.
    clients.check_import(plan, target, rewrites)
    applied, cost = None, Cost()
    failed: dict[str, UpstreamError] = {}
    if rewrites and (arguments.yes or output.interactive):
        failed, cost = _start_servers(plan, existing, output)
    if _may_write(plan, target, rewrites, failed, output, yes=arguments.yes):
        applied = clients.apply(plan, target, rewrites, journal=journal)
    if output.as_json:
        output.data(_as_dict(plan, target, applied, failed))
    else:
        _print_applied(applied, bool(plan.additions or rewrites), output)
        if applied is not None:
            cost.print(output)
    return SOME_FAILED if failed else 0


def _client_configs(client: str | None) -> Sequence[ClientConfig]:
    """All clients' files, or one client's, or one named file."""
    if client is not None and client not in CLIENTS and Path(client).exists():
        return [clients.read_client_file(client)]
    return clients.discover(client)


def _target(arguments: argparse.Namespace) -> tuple[Path, Path]:
    """The `toolfold.toml` to write: the one asked for, the one in use, or the user's own; and the record of imports."""
    settings = load_settings(arguments, require_servers=False)
    home = Path(arguments.home) if arguments.home else settings.user_home
    in_use = next((source for source in settings.sources if source.suffix == ".toml"), home / "toolfold.toml")
    return Path(arguments.to) if arguments.to else in_use, home / "imports.json"


def _may_write(
    plan: ImportPlan,
    target: Path,
    rewrites: Sequence[Rewrite],
    failed: dict[str, UpstreamError],
    output: Output,
    *,
    yes: bool,
) -> bool:
    """Whether there is something to write and the person wants it."""
    if yes or not (plan.additions or rewrites):
        return bool(plan.additions or rewrites)
    steps = [f"write {plural(len(plan.additions), 'server')} to {output.short_path(target)}"] if plan.additions else []
    steps += [f"leave toolfold as the one server in {plural(len(rewrites), 'client file')}"] if rewrites else []
    doubt = f", though {', '.join(failed)} did not start" if failed else ""
    return output.interactive and output.confirm(f"{' and '.join(steps)}{doubt}?")


def _rewrites(
    arguments: argparse.Namespace, configs: Sequence[ClientConfig], plan: ImportPlan, target: Path, output: Output
) -> list[Rewrite]:
    """The clients' files that are to start toolfold alone, each once, however many places in it hold servers."""
    unreadable = {item.path for item in plan.items if item.action == "broken"}
    files: dict[Path, list[ClientConfig]] = {}
    for config in configs:
        if config.servers and not _starts_toolfold_alone(config, plan):
            files.setdefault(config.path.resolve(), []).append(config)
    rewrites = []
    for held in files.values():
        path, client = held[0].path, held[0].client
        # A server that could not be read is in no other file: replacing this one would lose it.
        if path in unreadable:
            output.warn(f"{path} was left as it is: one of its servers could not be taken over")
            continue
        entry = clients.toolfold_entry(client, target.resolve(), command=_own_command())
        rewrites.append(Rewrite(path=path, configs=tuple(held), entry=entry, drop_comments=arguments.drop_comments))
    return rewrites


def _own_command() -> list[str]:
    """How a client starts this very toolfold: by whole path, since few clients have a person's `PATH`."""
    program = Path(sys.argv[0])
    found = program.absolute() if program.stem == "toolfold" and program.is_file() else shutil.which("toolfold")
    return [str(found)] if found else [sys.executable, "-m", "toolfold"]


def _start_servers(
    plan: ImportPlan, existing: Settings | None, output: Output
) -> tuple[dict[str, UpstreamError], Cost]:
    """Starts what the clients have, once, and prints which work; nothing of it is kept."""
    limits = existing.limits if existing else Limits()

    async def work(gateway: Gateway) -> tuple[dict[str, UpstreamError], Cost]:
        _, failed = await read_servers(gateway, None, output)
        return failed, await Cost.count(gateway)

    with tempfile.TemporaryDirectory(prefix="toolfold-import-") as home:
        settings = Settings(servers=plan.taken_over, limits=limits, home=Path(home))
        failed, cost = run_with_gateway(settings, work, fast=True)
    for name, error in failed.items():
        print_failure(name, error, output)
    if not output.as_json:
        total = len(plan.taken_over)
        output.line(f"{total - len(failed)} of {total} servers started and listed their tools")
    return failed, cost


def _undo(arguments: argparse.Namespace, journal: Path, output: Output) -> int:
    if arguments.client or arguments.replace:
        raise ConfigError("--undo takes back the whole last import", next_action="Run: toolfold import --undo")
    undone = clients.undo(journal, clients.put_back)
    if output.as_json:
        output.data([{"path": str(file.path), "outcome": outcome} for file, outcome in undone])
        return 0
    for file, outcome in undone:
        label, text = UNDONE[outcome]
        output.line(f"{output.style(label, 'green')} {output.short_path(file.path)}{text}")
        if outcome == "merged":
            output.line(f"the file as it was before the import: {output.short_path(str(file.backup))}")
    return 0


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
            output.line(
                f"{output.style(item.title, 'bold')} ({item.scope}) {output.style(output.short_path(item.path), 'dim')}"
            )
        mark, colour = MARKS[item.action]
        reason = f"  {output.style(item.reason, 'yellow')}" if item.reason else ""
        output.line(f"  {output.style(mark, colour)} {item.name}  {output.style(item.shown, 'dim')}{reason}")
    for warning in plan.warnings:
        output.warn(warning)
    output.line(f"{len(plan.additions)} of {len(plan.items)} servers would be added to {output.short_path(target)}")


def _print_applied(applied: Applied | None, is_work: bool, output: Output) -> None:
    if applied is None:
        if is_work:
            output.note("nothing was written; run it again with --yes")
        return
    if applied.added:
        servers = plural(len(applied.added), "server")
        output.line(f"{output.style('written:', 'green')} {output.short_path(applied.target)} ({servers})")
    if applied.backup is not None:
        output.line(f"the file as it was: {output.short_path(applied.backup)}")
    if applied.private:
        output.line("it holds secrets, so only you may read it")
    for variable in applied.variables:
        output.line(f"set this before you go on: export {variable}=…")
    for file in applied.replaced:
        output.line(f"{output.style('replaced:', 'green')} {output.short_path(file.path)} now starts toolfold alone")
        output.line(f"the file as it was: {output.short_path(str(file.backup))}")
    output.line(f"{output.style('next:', 'cyan')} toolfold build   (to take all of it back: toolfold import --undo)")


def _as_dict(
    plan: ImportPlan, target: Path, applied: Applied | None, failed: dict[str, UpstreamError]
) -> dict[str, object]:
    written = None
    if applied is not None and applied.added:
        written = {"added": applied.added, "backup": applied.backup and str(applied.backup)}
    return {
        "target": str(target),
        "items": [item.as_dict() for item in plan.items],
        "problems": plan.problems,
        "warnings": plan.warnings,
        "written": written,
        "variables": plan.variables,
        "failed": {name: error.as_dict() for name, error in failed.items()},
        "replaced": [
            {"path": str(file.path), "backup": str(file.backup)} for file in (applied.replaced if applied else ())
        ],
    }
