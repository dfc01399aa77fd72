"""`toolfold bench faults`: the fault and security suites at full count and time, and the figure that each test prints.

More than an hour and a half: one of it mixed load, ten minutes a thousand clients. `TOOLFOLD_SOAK_S` and
`TOOLFOLD_CLIENTS_S` shorten these two. A test that fails is named, and its figure may be missing.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.measurement import environment
from benchmarks.servers import ROOT

_SUITES = ("tests/faults", "tests/security")


def run(data: Path | None = None, *, only: str = "") -> dict[str, Any]:
    del data
    with tempfile.TemporaryDirectory(prefix="toolfold-bench-") as scratch:
        kept = Path(scratch) / "figures"
        kept.touch()
        # One after the other: side by side they would measure each other.
        command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "--tb=short", "-rf", *_SUITES, "-k", only or "test"]
        given = {**os.environ, "TOOLFOLD_FAULTS": "long", "TOOLFOLD_FIGURES": str(kept)}
        done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False)
        figures = [msgspec.json.decode(line) for line in kept.read_text().splitlines()]
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    metrics = {"failed": failed, "figures": figures, "summary": done.stdout.splitlines()[-1:]}
    return {"name": "faults", "metrics": metrics, "environment": environment("uvicorn", "httptools", "psycopg")}
