"""`toolfold run` and `toolfold stubs`: a script with the tools it asks for, and what a type checker sees of them."""

import argparse
import sys
from pathlib import Path

from toolfold.errors import ScriptError
from toolfold.faces.cli.build import run_with_catalogue
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway
from toolfold.scripts import report as reports
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
    for need in needs:
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
        output.note(result.stderr.rstrip("\n"))
    if result.answer is not None:
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
