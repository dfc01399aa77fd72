"""`toolfold bench all`: the benches of docs/figures.md one after the other, each in a process of its own.

With `--quick` each runs on a part of its tasks and for three minutes at most: some minutes in all, which show that the
commands still print their figures, and roughly which.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.measurement import environment

# The benches, with what makes a quick run of each: none, where it is quick as it is.
QUICK: dict[str, tuple[str, ...]] = {
    "bfcl": ("--sample", "5", "--seed", "1"),
    "results": ("--sample", "4", "--seed", "1"),
    "agent": ("--only", "sqlite-*"),
    **dict.fromkeys(("schemas", "ontology", "everyday", "live", "scripts", "calls", "start"), ()),
}
# Benches that have no smaller form, and take longer than a quick run may.
LONG = ("retrieval", "abstain", "search", "outputs", "scale", "load", "build", "faults", "fuzz")
QUICK_S = 180.0


def run(data: Path | None = None, peers: Path | None = None, *, quick: bool = False) -> dict[str, Any]:
    given = [f"--{name}={path}" for name, path in (("data", data), ("peers", peers)) if path is not None]
    found: dict[str, Any] = {}
    for name, smaller in QUICK.items():
        sys.stderr.write(f"bench {name}\n")
        found[name] = _printed(name, [*given, *(smaller if quick else ())], QUICK_S if quick else None)
    for name in LONG:
        found[name] = {"left_out": "takes long"} if quick else _printed(name, given, None)
    return {"name": "all", "metrics": found, "environment": environment()}


def _printed(name: str, options: list[str], limit_s: float | None) -> dict[str, Any]:
    """The metrics that a bench prints, or why there are none."""
    command = [sys.executable, "-P", "-m", "toolfold", "bench", name, *options, "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        return {"left_out": f"not done within {limit_s:g} s"}
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return {"failed": done.stderr[-500:]}
    if done.returncode or "metrics" not in report:
        return {"failed": report.get("error", {}).get("message") or done.stderr[-500:]}
    return dict(report["metrics"])
