"""`toolfold run`, `scripts` and `stubs`: a script with the tools it asks for, scripts that are kept by name, and what a
type checker sees of their tools."""

import argparse
import sys
from pathlib import Path

import msgspec
from msgspec.structs import replace

from toolfold.errors import ConfigError, ScriptError, ToolfoldError
from toolfold.faces.cli.build import run_with_catalogue
from toolfold.faces.cli.runner import load_settings
from toolfold.faces.cli.terminal import Output, safe
from toolfold.gateway import Gateway
from toolfold.scripts import report as reports
from toolfold.scripts.kept import SERVER, _KeptScript
from toolfold.scripts.lock import SUFFIX, Lock
from toolfold.scripts.runner import Need, ScriptResult

SCRIPT_FAILED = 1


def run_script(arguments: argparse.Namespace, output: Output) -> int:
    """Prints what the script printed, and its summary; what it needed and how it went goes beside it."""
    piped = arguments.script == "-"
    if arguments.locked and piped:
        raise ScriptError("a script from standard input cannot be locked", next_action="save it to a file")
    path = Path(arguments.script)
    source = sys.stdin.buffer.read() if piped else _read(path)
    lock_file = Path(f"{path}{SUFFIX}")
    lock = _read_lock(lock_file) if arguments.locked else None
    result = run_with_catalogue(
        arguments,
        lambda gateway: gateway.run_script(
            source,
            locked=lock,
            timeout_s=arguments.timeout,
            args=arguments.args or (),
            name="script.py" if piped else path.name,
            unsafe=arguments.unsafe,
            confirmed=arguments.yes,
            **output.answering(),
            on_needs=None if output.as_json else lambda needs: _show_needs(needs, output),
        ),
        require_servers=True,
        fast=True,
        keep_outputs=True,
    )
    if lock is not None:
        _write_lock(lock_file, lock, result)
    if output.as_json:
        output.data(reports.as_dict(result))
    else:
        _print_result(result, output)
    return _exit_code(result)


def _show_needs(needs: tuple[Need, ...], output: Output) -> None:
    # How each tool is called is for whoever writes the script, which is seldom done on a terminal.
    for need in [replace(need, signature="") for need in needs] if output.err.isatty() else needs:
        output.note(f"[{need.shown}]")


def _exit_code(result: ScriptResult) -> int:
    """The script's own where it has one."""
    if result.ok:
        return 0
    return result.code if result.outcome == "exited" and result.code else SCRIPT_FAILED


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ScriptError(f"{path} cannot be read: {error.strerror}", next_action="give the path of a script") from None


def _read_lock(path: Path) -> Lock:
    return Lock.load(path.read_bytes(), str(path)) if path.exists() else Lock()


def _write_lock(path: Path, before: Lock, result: ScriptResult) -> None:
    """Writes the lock. One that is there stays, unless the script has needs that it does not know."""
    lock = Lock.create(result.needs)
    if not path.exists() or any(before.find(locked.need, locked.server) is None for locked in lock.needs):
        path.write_bytes(lock.dump())


def _print_result(result: ScriptResult, output: Output) -> None:
    if result.stdout:
        output.line(result.stdout.rstrip("\n"))
    if result.stderr:
        output.note(result.stderr.rstrip("\n"), as_it_is=True)
    if result.unsaid is not None:
        output.data(result.answer)
    for line in reports.summary_lines(result):
        output.note(line)


def stubs(arguments: argparse.Namespace, output: Output) -> None:
    """Prints the stubs, or writes them into a folder that a type checker takes as a search path."""

    async def work(gateway: Gateway) -> dict[str, str]:
        needs, files = await gateway.scripts.stubs(arguments.need, server=arguments.server)
        for need in needs:
            output.note(f"{need.query!r} -> {need.tool_id} ({need.confidence:.2f})")
        return files

    files = run_with_catalogue(arguments, work)
    if arguments.out:
        for name, text in files.items():
            path = Path(arguments.out) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        output.note(f"wrote {len(files)} files to {arguments.out}")
    if output.as_json:
        output.data(sorted(files) if arguments.out else files)
    elif not arguments.out:
        for name, text in files.items():
            if text and name.startswith("servers/"):
                output.line(f"# {name}\n{text}")


def scripts(arguments: argparse.Namespace, output: Output) -> int:
    """Scripts that are kept by name. What is kept is a tool like any other: `scripts.NAME`."""
    folder = load_settings(arguments).scripts_folder
    if folder is None:
        raise ConfigError("there is no configuration to keep scripts beside", next_action="run: toolfold init")
    action = arguments.action
    if action == "list":
        return _list_scripts(list(map(_KeptScript, sorted(folder.glob("*.py")))), output)
    if not arguments.script:
        raise ConfigError(f"no script is named to {action}", next_action=f"toolfold scripts {action} NAME")
    if action == "add":
        name = arguments.name or Path(arguments.script).stem
        return _add_script(_KeptScript.of(folder, name), _read(Path(arguments.script)), arguments, output)
    script = _KeptScript.of(folder, arguments.script)
    if action == "run":
        return _run_kept(script, arguments, output)
    if action == "show":
        # A model may have written it: whoever looks it over sees all of it, also of one that is no Python.
        source = script.text()
        output.out.write((safe(source) if output.out.isatty() else source).rstrip() + "\n")
        return 0
    script.read()
    if action == "lock":
        _lock_script(script, arguments, output)
    else:
        script.path.unlink()
        script.lock_path.unlink(missing_ok=True)
        run_with_catalogue(arguments, _reread, rereads=SERVER)
        output.note(f"removed {script.name}")
    return 0


def _list_scripts(kept: list[_KeptScript], output: Output) -> int:
    rows, problems = [], {}
    for script in kept:
        try:
            definition, lock = script.tool().definition, script.lock
            needs = "not locked" if lock is None else ", ".join(need.tool_id for need in lock.needs)
            rows.append([f"{SERVER}.{script.name}", needs, definition.description.partition("\n")[0]])
        except ToolfoldError as error:
            problems[script.name] = error.message
    if output.as_json:
        named = [dict(zip(("tool_id", "tools", "description"), row, strict=True)) for row in rows]
        output.data({"scripts": named, "problems": problems})
        return 0
    output.table(("script", "its tools", "what it does"), rows)
    for name, problem in problems.items():
        output.warn(problem if problem.startswith(f"{name}.py") else f"{name}.py: {problem}")
    if not kept:
        output.note("no script is kept; keep one: toolfold scripts add FILE.py")
    return 0


def _add_script(script: _KeptScript, source: bytes, arguments: argparse.Namespace, output: Output) -> int:
    # Whatever the case: some file systems and many readers do not tell them apart.
    held = [path.stem for path in script.path.parent.glob("*.py") if path.stem.casefold() == script.name.casefold()]
    if held:
        action = f"toolfold scripts remove {held[0]}, or --name another"
        raise ConfigError(f"a script {held[0]!r} is kept already", next_action=action)
    script.path.parent.mkdir(parents=True, exist_ok=True)
    script.path.write_bytes(source)
    try:
        script.tool()
        _lock_script(script, arguments, output)
    except BaseException:
        script.path.unlink()
        raise
    return 0


def _lock_script(script: _KeptScript, arguments: argparse.Namespace, output: Output) -> None:
    """Locks the script to the tools that its needs lead to now."""

    async def work(gateway: Gateway) -> tuple[Need, ...]:
        needs = (await gateway.scripts.prepare(script.read(), locked=Lock(), name=script.path.name)).needs
        if unmet := [need for need in needs if not need.tool_id]:
            raise ScriptError(unmet[0].problem, hints=unmet[0].hints, next_action=unmet[0].next_action)
        if called := [need for need in needs if need.tool_id.startswith(f"{SERVER}.")]:
            raise ScriptError(
                f"{called[0].query!r} is {called[0].tool_id}, and scripts that are kept do not call each other",
                next_action="name the tools that it calls, or put the code of both into one script",
            )
        script.lock_path.write_bytes(Lock.create(needs).dump())
        await _reread(gateway)
        return needs

    needs = run_with_catalogue(arguments, work, rereads=SERVER)
    required = msgspec.json.decode(script.tool().definition.input_schema).get("required", [])
    given = "".join(f" {name}=…" for name in required)
    _show_needs(needs, output)
    if output.as_json:
        output.data({"tool_id": f"{SERVER}.{script.name}", "needs": [need.tool_id for need in needs]})
    else:
        output.note(f"kept as {SERVER}.{script.name}; try it: toolfold scripts run {script.name}{given}")


async def _reread(gateway: Gateway) -> None:
    """Takes the scripts as they are now into the catalogue."""
    if any(spec.name == SERVER for spec in gateway.upstreams.specs()):
        await gateway.build([SERVER])


def _run_kept(script: _KeptScript, arguments: argparse.Namespace, output: Output) -> int:
    from toolfold.faces.cli.call import call

    script.read()
    arguments.tool_id = f"{SERVER}.{script.name}"
    arguments.timeout, arguments.expect_version, arguments.whole, arguments.save = None, None, False, ""
    return call(arguments, output)
