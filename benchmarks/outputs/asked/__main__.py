"""This set alone: figures to standard output, as JSON."""

import json
import sys
import tempfile
from pathlib import Path

from benchmarks.outputs.asked import measure

with tempfile.TemporaryDirectory(prefix="toolfold-bench-") as name:
    json.dump(measure(Path(name), 2000, {}), sys.stdout, indent=2)
sys.stdout.write("\n")
