"""Runs the client scenarios of the official MCP conformance suite, one at a time, and says how many passed.

    python tests/conformance/run_client.py FOLDER

FOLDER holds `node_modules` with the suite and a Node of at least version 22. What is missing there is installed
with npm. Run are all scenarios that a revision requires, those added since, and the extensions for services that sign
in as themselves and for skills. Exits with 1 when a scenario fails.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
NODE = "node@22"
REVISIONS = ("2025-11-25", "2026-07-28")
EXTENSIONS = (
    *("auth/client-credentials-jwt", "auth/client-credentials-basic"),
    *(f"sep-2640-client-{name}" for name in ("no-prefetch", "verify-digest", "verify-size", "verify-frontmatter")),
)
CLIENT = Path(__file__).with_name("client.py")


def install(folder: Path) -> tuple[str, str]:
    """The Node and the suite to run, installed if need be."""
    programs = folder / "node_modules" / ".bin"
    if not (programs / "conformance").exists() or not (programs / "node").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--silent", "--prefix", str(folder), SUITE, NODE], check=True)
    return str(programs / "node"), str(programs / "conformance")


def scenarios(folder: Path, revision: str) -> list[str]:
    """The client scenarios that a revision of the specification requires, and those added since."""
    text = (folder / "node_modules/@modelcontextprotocol/conformance/requirements" / f"{revision}.yaml").read_text()
    required = text.partition("\nclient:\n")[2].partition("\nnot_scored:")[0]
    names = re.findall(r"^\s*-\s+(\S+)$", required, re.MULTILINE)
    later = re.findall(r"- scenario: (\S+)\n\s+leg: client\n\s+reason: added-after-release", text)
    return [*names, *later, *EXTENSIONS]


def run(node: str, suite: str, revision: str, scenario: str) -> tuple[bool, str]:
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(CLIENT))}"
    arguments = [node, suite, "client", "--command", command, "--scenario", scenario, "--spec-version", revision]
    if scenario in EXTENSIONS:
        arguments.append("--force")  # of no revision, they would be skipped
    with tempfile.TemporaryDirectory() as results:
        done = subprocess.run(
            [*arguments, "--output-dir", results],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, "NO_COLOR": "1"},
        )
    output = done.stdout + done.stderr
    failed, skipped = re.search(r"(\d+) failed", output), "SKIPPED: scenario" in output
    return done.returncode == 0 and (failed is None or failed[1] == "0") and not skipped, output


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", help="one scenario")
    parser.add_argument("--verbose", action="store_true", help="print what the suite says of each scenario")
    options = parser.parse_args()
    node, suite = install(options.folder)
    passed = failed = 0
    for revision in REVISIONS:
        for scenario in scenarios(options.folder, revision):
            if options.only not in {None, scenario}:
                continue
            ok, output = run(node, suite, revision, scenario)
            passed, failed = passed + ok, failed + (not ok)
            sys.stdout.write(f"{'ok    ' if ok else 'FAILED'} {revision} {scenario}\n")
            if options.verbose or not ok:
                sys.stdout.write(output + "\n")
            sys.stdout.flush()
    sys.stdout.write(f"{passed} passed, {failed} failed\n")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
