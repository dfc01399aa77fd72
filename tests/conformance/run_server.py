"""Runs the server scenarios of the official MCP conformance suite against toolfold, and says how many passed.

    python tests/conformance/run_server.py FOLDER

First against the fixture server alone, so that its own faults are not taken for ours; then against
`toolfold serve --profile transparent` in front of it, for each revision; and last its scenarios of the extension for
tasks, in front of a server that has them. FOLDER holds `node_modules` with the suite and
a Node of at least version 22; what is missing there is installed with npm. Exits with 1 unless every required scenario
passes.
"""

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from run_client import REVISIONS, install

FIXTURE = Path(__file__).with_name("fixture_server.py")
# Two of its scenarios say nothing here: a tool that needs tasks must refuse a client without them, which toolfold
# serves by following the task itself; and that of notifications is skipped by the suite.
TASKS_FIXTURE = Path(__file__).parents[1] / "servers" / "tasks_stdio.py"
TASKS = [
    *("tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal"),
    *("tasks-mrtr-input", "tasks-request-headers", "tasks-dispatch-and-envelope", "tasks-mrtr-composition"),
]
START_S = 30.0
RUN_S = 300.0


def required(folder: Path, revision: str) -> list[str]:
    """The server scenarios that a revision of the specification requires."""
    text = (folder / "node_modules/@modelcontextprotocol/conformance/requirements" / f"{revision}.yaml").read_text()
    section = text.partition("\nserver:\n")[2].partition("\nclient:")[0]
    return re.findall(r"^\s*-\s+(\S+)$", section, re.MULTILINE)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: list[str], port: int, log: Path) -> Iterator[None]:
    """A server that listens, until the block ends."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + START_S
        while not listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{command[0]} did not start:\n{log.read_text()}")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        if process.wait(10) not in {0, -15}:
            sys.stdout.write(f"it ended with {process.returncode}:\n{log.read_text()}\n")


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def run(folder: Path, port: int, revision: str, *, verbose: bool) -> tuple[int, int]:
    """How many of the required scenarios passed, and how many there are."""
    node, suite = install(folder)
    with tempfile.TemporaryDirectory() as results:
        done = subprocess.run(
            [node, suite, "server", "--url", f"http://127.0.0.1:{port}/mcp", "--requirements", revision],
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
            cwd=results,
            env={**os.environ, "NO_COLOR": "1"},
        )
    passed = set(re.findall(r"^✓ (\S+): \d+ passed, 0 failed", done.stdout, re.MULTILINE))
    wanted = required(folder, revision)
    missing = [name for name in wanted if name not in passed]
    if verbose or missing:
        sys.stdout.write(done.stdout + done.stderr)
    for name in missing:
        sys.stdout.write(f"FAILED {revision} {name}\n")
    return len(wanted) - len(missing), len(wanted)


def run_tasks(folder: Path, port: int, *, verbose: bool) -> int:
    """How many of the scenarios of tasks passed."""
    node, suite = install(folder)
    passed = 0
    for name in TASKS:
        address = f"http://127.0.0.1:{port}/mcp"
        with tempfile.TemporaryDirectory() as results:
            done = subprocess.run(
                [
                    node,
                    suite,
                    "server",
                    "--url",
                    address,
                    "--spec-version",
                    "2026-07-28",
                    "--scenario",
                    name,
                    "--force",
                ],
                capture_output=True,
                text=True,
                timeout=RUN_S,
                check=False,
                cwd=results,
                env={**os.environ, "NO_COLOR": "1"},
            )
        ok = re.search(r"^Passed: [1-9]\d*/\d+, 0 failed", done.stdout, re.MULTILINE) is not None
        passed += ok
        if verbose or not ok:
            sys.stdout.write(done.stdout + done.stderr)
        if not ok:
            sys.stdout.write(f"FAILED {name}\n")
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--verbose", action="store_true", help="print what the suite says")
    options = parser.parse_args()
    folder = options.folder.resolve()
    install(folder)
    failed = False
    with tempfile.TemporaryDirectory() as text:
        work = Path(text)
        config = work / "toolfold.toml"
        config.write_text(f'[servers.fixture]\ncommand = "{sys.executable}"\nargs = ["{FIXTURE}"]\n')
        gateway = [sys.executable, "-m", "toolfold", "--config", str(config), "--home", str(work / "home"), "serve"]
        for name in ("fixture alone", "through toolfold"):
            port = free_port()
            through = [*gateway, "--profile", "transparent", "--http", f"127.0.0.1:{port}"]
            command = [sys.executable, str(FIXTURE), str(port)] if name == "fixture alone" else through
            with running(command, port, work / f"{port}.log"):
                for revision in REVISIONS:
                    passed, wanted = run(folder, port, revision, verbose=options.verbose)
                    failed |= passed < wanted or not wanted
                    sys.stdout.write(f"{name}, {revision}: {passed} of {wanted} passed\n")
                    sys.stdout.flush()
        jobs = work / "jobs.toml"
        arguments = f'args = ["{TASKS_FIXTURE}", "modern", "{work}"]'
        jobs.write_text(f'[servers.jobs]\ncommand = "{sys.executable}"\n{arguments}\n')
        port = free_port()
        started = [sys.executable, "-m", "toolfold", "--config", str(jobs), "--home", str(work / "jobs"), "serve"]
        command = [*started, "--profile", "transparent", "--http", f"127.0.0.1:{port}"]
        with running(command, port, work / f"{port}.log"):
            passed = run_tasks(folder, port, verbose=options.verbose)
            failed |= passed < len(TASKS)
            sys.stdout.write(f"through toolfold, tasks: {passed} of {len(TASKS)} passed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
