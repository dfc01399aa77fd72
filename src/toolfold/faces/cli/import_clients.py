"""`toolfold import`: shows what MCP clients have configured, and with `--yes` writes it to `toolfold.toml`.

Without `--yes` nothing is written: on a terminal it asks, in a pipe it only shows. A client's own file is touched only
with `--replace`, which leaves toolfold as its one server, beside those that do not start. That is all or nothing:
everything is checked, the servers are started once, then all files are written, a backup of each beside it. A project's
files are replaced only with `--project`, into the project's own `toolfold.toml` and without a path of this machine.
`--undo` takes the last import back.
"""

import argparse
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from toolfold.config import Limits, Settings, clients, missing
from toolfold.config.acceptance import ProjectFile, _Acceptances
from toolfold.config.clients import CLIENTS, Applied, ClientConfig, ImportPlan, Rewrite
from toolfold.config.files import read_text
from toolfold.config.install_hints import problem_of
from toolfold.config.secrets import INPUT_PREFIX, find_plain_secrets
from toolfold.config.toml import parse_toml
from toolfold.errors import ConfigError, UpstreamError
from toolfold.faces.cli.build import SOME_FAILED, Cost, plural, print_failure, read_servers
from toolfold.faces.cli.runner import _is_accepted_now, _user_home, load_settings, run_with_gateway
from toolfold.faces.cli.terminal import Output, one_line
from toolfold.gateway import Gateway
from toolfold.types import ServerSpec

MARKS = {
    "add": ("+", "green"),
    "rename": ("+", "green"),
    "identical": ("=", "dim"),
    "itself": ("=", "dim"),
    "broken": ("✗", "red"),
    "stays": ("✗", "red"),
}
# What to do after an import, by whether clients start toolfold now.
_NEXT = {True: "start the clients anew", False: "toolfold build"}
# Nothing of what was found can be read: as for a configuration that is wrong.
UNREADABLE = 2
UNDONE = {
    "restored": ("restored:", ""),
    "removed": ("removed:", ", which the import had made"),
    "merged": ("restored:", ": its servers; what was added or changed since stays"),
    "cleared": ("restored:", ": what the import added is gone; what came since stays"),
    "kept": ("kept:", ", since all of it was changed after the import"),
}


def import_servers(arguments: argparse.Namespace, output: Output) -> int:
    settings, target = _target(arguments)
    journal = clients.Journal(settings.user_home / "imports.json", clients.put_back)
    _recover(journal, output)
    if arguments.undo:
        return _undo(arguments, journal, output)
    base = _base(arguments, target, settings.limits)
    found, left = _without_unaccepted(_client_configs(arguments, output), arguments, settings, output)
    configs = [_as_patient(config, base.limits) for config in found]
    plan = clients.plan_import(configs, base, secrets=arguments.secrets, environ=os.environ)
    if not output.as_json:
        _print_plan(plan, target, output, arguments.client)
    rewrites = _rewrites(arguments, configs, plan, target) if arguments.replace else []
    # Before anything is asked, started or written: what stands in the way is told first, all of it.
    clients.check_import(plan, target, rewrites)
    with _scratch(arguments) as scratch:
        wanted = bool(rewrites) and (arguments.yes or output.interactive)
        failed, cost = _start_servers(plan, base.limits, scratch, output) if wanted else ({}, Cost())
        plan, rewrites = _leave_failed(plan, rewrites, () if arguments.even_failed else failed, output)
        applied = None
        if _may_write(plan, target, rewrites, failed, output, yes=arguments.yes):
            applied = clients.apply(plan, target, rewrites, journal=journal.path)
    if output.as_json:
        output.data({**_as_dict(plan, target, applied, failed), "withheld": [str(file.path) for file in left]})
    else:
        _report(plan, applied, output, cost=cost, is_work=bool(plan.additions or rewrites))
    return SOME_FAILED if failed else _exit_code(plan)


def _exit_code(plan: ImportPlan) -> int:
    is_broken = {item.action == "broken" for item in plan.items} or {bool(plan.problems)}
    return UNREADABLE if is_broken == {True} else 0


def _report(plan: ImportPlan, applied: Applied | None, output: Output, *, cost: Cost, is_work: bool) -> None:
    if applied is None:
        _note_unwritten(plan, is_work, output)
        return
    _print_applied(applied, output)
    cost.print(output)


def _recover(journal: clients.Journal, output: Output) -> None:
    for file, _ in journal.recover():
        output.warn(f"the last import was killed while it wrote: {output.short_path(file.path)} is as it was before")


def _as_patient(config: ClientConfig, limits: Limits) -> ClientConfig:
    """A client's servers with the time to start that they will have here, where the client says none."""
    factor = limits.start_timeout_s / Limits().start_timeout_s
    servers = [
        replace(server, spec=replace(server.spec, start_timeout_s=server.spec.start_timeout_s * factor))
        if server.spec is not None and "start_timeout_s" not in server.table
        else server
        for server in config.servers
    ]
    return replace(config, servers=tuple(servers))


def _base(arguments: argparse.Namespace, target: Path, limits: Limits) -> Settings:
    """What the target has already."""
    if target.exists():
        return Settings.load(target, require_servers=False)
    return Settings(project=target.parent.resolve() if arguments.project else None, limits=limits)


@contextmanager
def _scratch(arguments: argparse.Namespace) -> Iterator[Path]:
    """A folder for what is needed while servers are tried; their logs are kept. What killed imports left goes."""
    for left in Path(tempfile.gettempdir()).glob("toolfold-import-*-*"):
        pid = left.name.split("-")[2]
        try:
            if pid.isdigit() and left.stat().st_uid == os.getuid():
                os.kill(int(pid), 0)
        except ProcessLookupError:
            shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue  # it is somebody else's
    with tempfile.TemporaryDirectory(prefix=f"toolfold-import-{os.getpid()}-") as folder:
        try:
            yield Path(folder)
        finally:
            _keep_logs(Path(folder), load_settings(arguments, require_servers=False).home)


def _keep_logs(scratch: Path, home: Path) -> None:
    """What servers wrote while they were tried goes where `toolfold logs` reads."""
    for file in (scratch / "logs").glob("*.log"):
        with suppress(OSError):  # a log is never worth a failure
            (home / "logs").mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(home / "logs" / file.name, "ab", opener=partial(os.open, mode=0o600)) as log:
                log.write(file.read_bytes())


def _client_configs(arguments: argparse.Namespace, output: Output) -> Sequence[ClientConfig]:
    """All clients' files, or one client's, or one named file. A project's are shared with others: they are replaced
    only where that is asked for, and then alone."""
    client = arguments.client
    if client is not None and client not in CLIENTS and Path(client).exists():
        return [clients.read_client_file(client)]
    configs = clients.discover(client)
    shared = [config for config in configs if config.scope == "project"]
    if arguments.project:
        return shared
    for config in shared if arguments.replace else ():
        output.note(f"{output.short_path(config.path)} belongs to the project and stays: add --project to replace it")
        configs.remove(config)
    _note_elsewhere(client, configs, output)
    return configs


def _without_unaccepted(
    configs: Sequence[ClientConfig], arguments: argparse.Namespace, settings: Settings, output: Output
) -> tuple[list[ClientConfig], list[ProjectFile]]:
    """Those that count here, and the project's files that were neither named, nor asked for with `--project`, nor
    accepted: what came with a clone would otherwise start in every folder from now on."""
    if arguments.project or arguments.client not in {None, *CLIENTS}:
        return list(configs), []
    shared = [config for config in configs if config.scope == "project"]
    left = {config.path: found for config in shared if (found := _unaccepted(config, output)) is not None}
    _tell_left(left, {file.path for file in settings.withheld}, output)
    return [config for config in configs if config.path not in left], list(left.values())


def _tell_left(left: Mapping[Path, ProjectFile], told: Collection[Path], output: Output) -> None:
    """`told`: files that were named a moment ago, with all that they would start."""
    for path, found in left.items():
        what = "it is not imported" if path in told else found.text
        command = f"toolfold import {shlex.quote(os.path.relpath(path))}"
        output.warn(output.short_path(f"{what}; read it, and if you trust it: {command}"))


def _unaccepted(config: ClientConfig, output: Output) -> ProjectFile | None:
    """The file, where the person did not accept it and does not now."""
    if not config.servers:
        return None
    record, text = _Acceptances.of_person(), read_text(config.path)
    servers = tuple(server.spec for server in config.servers if server.spec is not None)
    found = record.examine(config.path, text, servers)
    accepted = record.allow(config.path, text) or (output.interactive and _is_accepted_now(found.error(), output))
    return None if accepted else found


def _note_elsewhere(client: str | None, configs: Sequence[ClientConfig], output: Output) -> None:
    """Names the servers that Claude Code has for other folders."""
    here = {(config.path, config.key) for config in configs}
    everywhere = [config for config in clients.discover(client, all_projects=True) if config.scope == "local"]
    for config in (config for config in everywhere if (config.path, config.key) not in here):
        names = ", ".join(server.name for server in config.servers)
        output.note(f"{names} of {output.short_path(str(config.key[1]))} is left out: run it in that folder")


def _target(arguments: argparse.Namespace) -> tuple[Settings, Path]:
    """What is in use, and the `toolfold.toml` to write: the one asked for, the project's, the one in use, or the
    person's own."""
    settings = load_settings(arguments, require_servers=False)
    settings = replace(settings, user_home=_user_home(arguments, settings))
    in_use = next((source for source in settings.sources if source.suffix == ".toml"), None)
    if arguments.to or arguments.project:
        return settings, Path(arguments.to or "toolfold.toml")
    return settings, in_use or settings.user_home / "toolfold.toml"


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
    arguments: argparse.Namespace, configs: Sequence[ClientConfig], plan: ImportPlan, target: Path
) -> list[Rewrite]:
    """The clients' files that are to start toolfold alone, each once, however many places in it hold servers."""
    if plan.problems:
        raise ConfigError(
            "a client's file cannot be read, so nothing is replaced",
            hints=plan.problems,
            next_action="Correct it, or name another client: toolfold import CLIENT --replace",
        )
    _refuse_broken(plan)
    files: dict[Path, list[ClientConfig]] = {}
    for config in configs:
        if config.servers and not _starts_toolfold_alone(config, plan):
            files.setdefault(config.path.resolve(), []).append(config)
    drop = arguments.drop_comments
    return [
        Rewrite(path=held[0].path, configs=tuple(held), entry=_entry(arguments, held[0], target), drop_comments=drop)
        for held in files.values()
    ]


def _refuse_broken(plan: ImportPlan) -> None:
    if broken := [item for item in plan.items if item.action == "broken"]:
        raise ConfigError(
            f"{', '.join(item.written for item in broken)} cannot be taken over, so nothing is replaced",
            hints=[item.reason for item in broken],
            next_action="Correct or remove it there, or name another client: toolfold import CLIENT --replace",
        )


def _entry(arguments: argparse.Namespace, config: ClientConfig, target: Path) -> dict[str, Any]:
    """How this client starts toolfold, with the state folder that is named now, which it would not know of."""
    if arguments.project:
        return clients.toolfold_entry(config.client, None)
    home = arguments.home or os.environ.get("TOOLFOLD_HOME", "").strip()
    state = Path(home).expanduser().absolute() if home else None
    return clients.toolfold_entry(config.client, target.resolve(), home=state, command=_own_command())


def _leave_failed(
    plan: ImportPlan, rewrites: Sequence[Rewrite], failed: Collection[str], output: Output
) -> tuple[ImportPlan, list[Rewrite]]:
    """The same, but for the servers that failed: a client that works keeps what works in it."""
    plan = plan.leave(failed)
    staying = [item for item in plan.items if item.action == "stays"]
    places = {(item.path, item.key, item.written) for item in staying}
    # What already starts toolfold, and nothing besides but what stays, would be written as it is.
    itself = {(item.path, item.key, item.written) for item in plan.items if item.action == "itself"}
    left = [
        replace(rewrite, kept=rewrite.servers & places)
        for rewrite in rewrites
        if not rewrite.servers <= places | itself
    ]
    for item in staying:
        output.note(f"{item.name} stays in {output.short_path(item.path)}: --even-failed takes it over as it is")
    return plan, left


def _own_command() -> list[str]:
    """How a client starts this very toolfold: by whole path, since few clients have a person's `PATH`."""
    program = Path(sys.argv[0])
    found = program.absolute() if program.stem == "toolfold" and program.is_file() else shutil.which("toolfold")
    return [str(found)] if found else [sys.executable, "-m", "toolfold"]


def _start_servers(
    plan: ImportPlan, limits: Limits, scratch: Path, output: Output
) -> tuple[dict[str, UpstreamError], Cost]:
    """Starts what will be written, once, and prints which work; nothing but their logs is kept."""

    async def work(gateway: Gateway) -> tuple[dict[str, UpstreamError], Cost]:
        _, failed = await read_servers(gateway, None, output)
        return failed, await Cost.count(gateway)

    tried = [spec for spec in plan.taken_over if not _asked_for(spec)]
    settings = Settings(servers=tuple(tried), limits=limits, home=scratch)
    with _secrets_set(plan):
        failed, cost = run_with_gateway(settings, work, fast=True) if tried else ({}, Cost())
    for spec in plan.taken_over:
        if spec not in tried:
            output.note(f"{spec.name} is not tried: its client asks for {', '.join(_asked_for(spec))}")
    for name, error in failed.items():
        print_failure(name, error, output)
    if not output.as_json:
        total = len(tried)
        output.line(f"{total - len(failed)} of {total} servers started and listed their tools")
    return failed, cost


def _asked_for(spec: ServerSpec) -> list[str]:
    """What only the client knows, which asks a person for it and hands it to toolfold."""
    return [name for name in missing(spec) if name.startswith(INPUT_PREFIX)]


@contextmanager
def _secrets_set(plan: ImportPlan) -> Iterator[None]:
    """Inside, the variables that will hold the clients' secrets are set, as they must be later on."""
    pairs = [(secret.variable, secret.value) for item in plan.additions for secret in item.secrets]
    unset = {variable: value for variable, value in pairs if plan.secrets == "env" and variable not in os.environ}
    os.environ |= unset
    try:
        yield
    finally:
        for variable in unset:
            del os.environ[variable]


def _undo(arguments: argparse.Namespace, journal: clients.Journal, output: Output) -> int:
    if arguments.client or arguments.replace:
        raise ConfigError("--undo takes back the whole last import", next_action="Run: toolfold import --undo")
    undone = journal.undo()
    if output.as_json:
        output.data([{"path": str(file.path), "outcome": outcome} for file, outcome in undone])
        return 0
    for file, outcome in undone:
        label, text = UNDONE[outcome]
        output.line(f"{output.style(label, 'green')} {output.short_path(file.path)}{text}")
        if outcome in {"merged", "cleared"} and file.backup is not None:
            output.line(f"the file as it was before the import: {output.short_path(str(file.backup))}")
        _note_copies(file.path, output, is_ours=not file.keys)
    return 0


def _note_copies(path: Path, output: Output, *, is_ours: bool) -> None:
    """Names what is left of a file of our own: others know theirs."""
    left = clients.backups(path) if is_ours else []
    held = list(filter(_may_hold_secrets, left))
    for names, said in (
        ([path for path in left if path not in held], ""),
        (held, ", with the secrets that stood in it"),
    ):
        if names:
            output.note(f"copies of it are left{said}: {', '.join(path.name for path in names)}")


def _may_hold_secrets(path: Path) -> bool:
    """Whether one stands there in plain text; of a file that cannot be read nobody knows."""
    try:
        tables = parse_toml(path, read_text(path))
    except ConfigError:
        return True
    sections = [table for table in tables.values() if isinstance(table, dict)]
    inner = [table for section in sections for table in section.values() if isinstance(table, dict)]
    return any(find_plain_secrets(table) or find_plain_secrets({"env": table}) for table in (*sections, *inner))


def _starts_toolfold_alone(config: ClientConfig, plan: ImportPlan) -> bool:
    itself = {item.written for item in plan.items if item.action == "itself" and item.path == config.path}
    return {server.written for server in config.servers} <= itself


def _print_plan(plan: ImportPlan, target: Path, output: Output, client: str | None) -> None:
    for problem in plan.problems:
        output.warn(problem)
    if not plan.items:
        output.note("no servers were found")
        output.note(f"looked for: {client or ', '.join(CLIENTS)}; a file can be named, too: toolfold import FILE")
        return
    heading: tuple[Path, object] | None = None
    width = max(len(item.name) for item in plan.items)
    for item in plan.items:
        if (item.path, item.key) != heading:
            heading = (item.path, item.key)
            output.prose(
                f"{output.style(item.title, 'bold')} ({item.scope}) {output.style(output.short_path(item.path), 'dim')}"
            )
        mark, colour = MARKS[item.action]
        reason = f"  {output.style(one_line(item.reason), 'yellow')}" if item.reason else ""
        output.prose(
            f"  {output.style(mark, colour)} {item.name:{width}}  {output.style(item.shown, 'dim')}{reason}", 6
        )
    for warning in (*plan.warnings, *_problems(plan)):
        output.warn(warning)
    output.prose(f"{len(plan.additions)} of {len(plan.items)} servers would be added to {output.short_path(target)}")


def _problems(plan: ImportPlan) -> Iterator[str]:
    for item in plan.additions:
        if item.spec is not None and (problem := problem_of(item.spec)):
            yield f"{item.name}: {problem[0]}"


def _note_unwritten(plan: ImportPlan, is_work: bool, output: Output) -> None:
    if is_work:
        output.note("nothing was written; run it again with --yes")
    elif any(item.action == "stays" for item in plan.items):
        output.note("nothing was written: nothing is left that could be taken over")


def _print_applied(applied: Applied, output: Output) -> None:
    if applied.added:
        servers = plural(len(applied.added), "server")
        output.prose(f"{output.style('written:', 'green')} {output.short_path(applied.target)} ({servers})")
    if applied.backup is not None:
        output.prose(f"the file as it was: {output.short_path(applied.backup)}")
    if applied.private:
        output.prose("it holds secrets, so only you may read it")
    for variable in applied.variables:
        # By the plan it holds what the client has, where it is set.
        is_set = f"set here as the client has it: {variable}"
        output.prose(is_set if variable in os.environ else f"set this before you go on: export {variable}=…")
    if applied.variables:
        output.note(
            "a client that is started from the desktop does not see what a terminal exports: set it for the whole "
            "login, or import with --secrets keyring"
        )
    if not applied.replaced:
        output.note("nothing was started: toolfold build does that, and says what it costs in tokens")
    for file in applied.replaced:
        output.prose(f"{output.style('replaced:', 'green')} {output.short_path(file.path)} now starts toolfold")
        output.prose(f"the file as it was: {output.short_path(str(file.backup))}")
    then = f"{output.style('next:', 'cyan')} {_NEXT[bool(applied.replaced)]}"
    output.prose(f"{then}   (to take all of it back: toolfold import --undo)")


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
