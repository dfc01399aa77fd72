"""The example in the manual of live sessions runs as it stands, and the bench says when its peer is absent."""

import re
import subprocess
import sys
from pathlib import Path

from benchmarks.live import query_peer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "live.md"


def test_the_example_of_the_page_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "'signature': '(x)'" in done.stdout
    assert "'value_repr': 'None'" in done.stdout


def test_the_bench_says_that_its_peer_is_absent(tmp_path: Path) -> None:
    assert "DIR/jupyter" in query_peer(tmp_path, 1)["absent"]
