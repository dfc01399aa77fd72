"""Runs the server scenarios of the official MCP conformance suite against toolfold, and says how many passed.

    python tests/conformance/run_server.py FOLDER

First against the fixture server alone, so that its own faults are not taken for ours; then against `toolfold serve`
in front of it, in the profile `transparent` and in `auto` and `discovery`, for each revision. In these two the suite
asks through `folded_client.py`, which knows under which addresses the fixture's tools and prompts are found, and
`EXCEPTIONS` says what does not hold there and why: each of these must still fail, or it is to be taken out. At last
the scenarios for servers with skills, against `toolfold serve` as it is, in front of a server with skills and a
folder of them, and those of the extension for tasks, in front of a server that has them. FOLDER holds `node_modules`
with the suite and a Node of at least version 22; what is missing there is installed with npm. Exits with 1 unless
every scenario passes that is required and no exception.
"""

import argparse
import json
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

SERVERS = Path(__file__).parents[1] / "servers"
FIXTURE = Path(__file__).with_name("fixture_server.py")
FOLDED = Path(__file__).with_name("folded_client.py")
SERVED = ("transparent", "auto", "discovery")
# What the suite requires and the profiles that fold do not promise, by scenario.
EXCEPTIONS = {
    "logging-set-level": "many servers stand behind one endpoint: the capability `logging` is not announced",
    "tools-call-with-logging": "as above: log messages of a server go to its own log, `toolfold logs`",
    "input-required-result-basic-elicitation": "asks for the fixture's own key of a question: here the gateway is the "
    "one that asks, under keys of its own, which the protocol leaves to it",
}
# Two of its scenarios say nothing here: a tool that needs tasks must refuse a client without them, which toolfold
# serves by following the task itself; and that of notifications is skipped by the suite.
TASKS_FIXTURE = Path(__file__).parents[1] / "servers" / "tasks_stdio.py"
TASKS = [
    *("tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal"),
    *("tasks-mrtr-input", "tasks-request-headers", "tasks-dispatch-and-envelope", "tasks-mrtr-composition"),
]
START_S = 30.0
RUN_S = 300.0
# The third, of directories, does not apply: they are not offered.
SKILLS = ("sep-2640-skills-enumeration", "sep-2640-skills-manifest")


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


@contextmanager
def serving(profile: str, gateway: list[str], work: Path) -> Iterator[int]:
    """The port where the suite asks: of the fixture alone, of toolfold, or of who knows its addresses."""
    port, between = free_port(), free_port()
    if not profile:
        command = [sys.executable, str(FIXTURE), str(port)]
    else:
        command = [*gateway, "--profile", profile, "--http", f"127.0.0.1:{port}"]
    with running(command, port, work / f"{port}.log"):
        if profile in SERVED[1:]:
            url = f"http://127.0.0.1:{port}/mcp"
            folded = [sys.executable, str(FOLDED), str(between), url, "fixture"]
            with running(folded, between, work / f"{between}.log"):
                yield between
        else:
            yield port


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def run(
    folder: Path, port: int, revision: str, exceptions: frozenset[str] = frozenset(), *, verbose: bool
) -> tuple[int, int]:
    """How many of the required scenarios passed that have to, and how many there are."""
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
    wrong = [name for name in wanted if (name in passed) is (name in exceptions)]
    if verbose or wrong:
        sys.stdout.write(done.stdout + done.stderr)
    for name in wrong:
        what = "PASSED, and is named as an exception:" if name in exceptions else "FAILED"
        sys.stdout.write(f"{what} {revision} {name}\n")
    promised = [name for name in wanted if name not in exceptions]
    return len(promised) - len(wrong), len(promised)


def run_skills(folder: Path, work: Path, *, verbose: bool) -> bool:
    """Whether the scenarios for servers with skills pass through the default profile."""
    sys.path.append(str(SERVERS))
    from made_skills import made, skill

    node, suite = install(folder)
    held = made(
        skill("skill://acme/refunds/SKILL.md", {"ref/FORMS.md": "forms"}), skill("skill://pdf/SKILL.md"), page=1
    )
    (work / "skills.json").write_text(json.dumps(held))
    (work / "team" / "notes").mkdir(parents=True)
    (work / "team" / "notes" / "SKILL.md").write_text("---\nname: notes\ndescription: Take notes.\n---\nNotes.\n")
    config, port = work / "skills.toml", free_port()
    args = json.dumps([str(SERVERS / "leaves_stdio.py"), str(work / "skills.json")])
    config.write_text(f'[servers.docs]\ncommand = "{sys.executable}"\nargs = {args}\n[servers.team]\nskills = "team"\n')
    command = [sys.executable, "-m", "toolfold", "--config", str(config), "--home", str(work / "skills-home"), "serve"]
    passed = True
    with running([*command, "--http", f"127.0.0.1:{port}"], port, work / "skills.log"):
        for revision in REVISIONS:
            for name in SKILLS:
                chosen = ["--scenario", name, "--spec-version", revision, "--force"]
                done = subprocess.run(
                    [node, suite, "server", "--url", f"http://127.0.0.1:{port}/mcp", *chosen],
                    capture_output=True,
                    text=True,
                    timeout=RUN_S,
                    check=False,
                    cwd=work,
                    env={**os.environ, "NO_COLOR": "1"},
                )
                counts = re.search(r"^Passed: (\d+)/(\d+), 0 failed", done.stdout, re.MULTILINE)
                fine = counts is not None and counts[1] == counts[2] != "0"
                passed &= fine
                if verbose or not fine:
                    sys.stdout.write(done.stdout + done.stderr)
                said = f"{counts[1]} of {counts[2]} checks passed" if counts else "FAILED"
                sys.stdout.write(f"default profile, {revision}, {name}: {said}\n")
    return passed


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
        toolfold = [sys.executable, "-m", "toolfold", "--config", str(config), "--home", str(work / "home")]
        # A client that comes before the first catalogue is told to wait: the suite does not.
        subprocess.run([*toolfold, "build"], check=True, capture_output=True, timeout=120)
        gateway = [*toolfold, "serve"]
        for profile in ("", *SERVED):
            with serving(profile, gateway, work) as port:
                exceptions = frozenset(EXCEPTIONS) if profile in SERVED[1:] else frozenset[str]()
                for revision in REVISIONS:
                    passed, wanted = run(folder, port, revision, exceptions, verbose=options.verbose)
                    failed |= passed < wanted or not wanted
                    name = f"through toolfold, {profile}" if profile else "fixture alone"
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
        failed |= not run_skills(folder, work, verbose=options.verbose)
    for name, why in EXCEPTIONS.items():
        sys.stdout.write(f"not promised in {' and '.join(SERVED[1:])}: {name}: {why}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
