"""`toolfold run` and `toolfold stubs`: a script with the tools it asks for, and what a type checker sees of them."""

import argparse
import sys
from pathlib import Path

from toolfold.errors import ScriptError
from toolfold.faces.cli.runner import load_settings, run_with_catalogue, run_with_gateway
from toolfold.faces.cli.terminal import Output
from toolfold.gateway import Gateway
from toolfold.scripts.runner import Lock, ScriptResult, locks, reports

SCRIPT_FAILED = 1


def run_script(arguments: argparse.Namespace, output: Output) -> int:
    """Prints what the script printed, and its summary; what it needed and how it went goes beside it."""
    source = sys.stdin.buffer.read() if arguments.script == "-" else _read(Path(arguments.script))
    lock_file = Path(f"{arguments.script}{locks.SUFFIX}")
    if arguments.locked and arguments.script == "-":
        raise ScriptError("a script from standard input cannot be locked", next_action="save it to a file")
    lock = _read_lock(lock_file) if arguments.locked else None

    async def work(gateway: Gateway) -> ScriptResult:
        return await gateway.run_script(
            source,
            locked=lock,
            timeout_s=arguments.timeout,
            args=arguments.args or (),
            name=Path(arguments.script).name if arguments.script != "-" else "script.py",
            unsafe=arguments.unsafe,
            confirmed=arguments.yes,
        )

    result = run_with_gateway(load_settings(arguments), work, fast=True, create=False)
    if arguments.locked:
        _write_lock(lock_file, lock, result)
    if output.as_json:
        output.data(reports.as_dict(result))
    else:
        _print_result(result, output)
    if result.ok:
        return 0
    return result.code if result.outcome == "exited" and result.code else SCRIPT_FAILED


def _print_result(result: ScriptResult, output: Output) -> None:
    if result.stdout:
        output.line(result.stdout.rstrip("\n"))
    if result.stderr:
        output.note(result.stderr.rstrip("\n"))
    if result.answer is not None:
        output.data(result.answer)
    for line in reports.summary_lines(result):
        output.note(line)


def stubs(arguments: argparse.Namespace, output: Output) -> int:
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
            output.data(sorted(files))
    elif output.as_json:
        output.data(files)
    else:
        for name, text in files.items():
            if text and name.startswith("servers/"):
                output.line(f"# {name}\n{text}")
    return 0


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ScriptError(f"{path} cannot be read: {error.strerror}", next_action="give the path of a script") from None


def _read_lock(path: Path) -> Lock | None:
    return locks.load(path.read_bytes(), str(path)) if path.exists() else None


def _write_lock(path: Path, before: Lock | None, result: ScriptResult) -> None:
    """A lock that is there stays as it is, unless the script has needs that it does not know."""
    lock = locks.create(result.needs)
    if before is None or any(before.find(one.need, one.server) is None for one in lock.needs):
        path.write_bytes(locks.dump(lock))
