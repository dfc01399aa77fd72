"""A thousand clients at once, half over `/v1` and half over MCP, each on a connection of its own: no error, and every
answer carries the mark of whoever asked. `benchmarks/http_clients.py` is the crowd."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from gateway_process import Home, figure, scaled

ROOT = Path(__file__).parents[2]
CLIENTS = 1000
SECONDS = int(os.environ.get("TOOLFOLD_CLIENTS_S") or scaled(6, 600))


@pytest.mark.timeout(SECONDS + 120)
def test_a_thousand_clients_each_get_their_own_answers(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A connection is a file, and a gateway spends three eighths of its files on callers.
    wanted = 3 * CLIENTS + 500
    if hard < wanted:
        pytest.skip(f"{wanted} open files are needed, and this user may open {hard}: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 10 * CLIENTS)), hard))
    home = Home(tmp_path).write(Home.server("good", "large_stdio.py"))
    out = tmp_path / "load.json"
    try:
        with home.serve("--profile", "direct") as gateway:
            gateway.wait_for("good.echo", text="x")
            before, files, busy = gateway.memory_mb(), gateway.open_files(), gateway.cpu_s()
            command = [sys.executable, "-m", "benchmarks.http_clients", str(gateway.port), str(CLIENTS), str(SECONDS)]
            subprocess.run([*command, "good.echo", str(out), "good_echo"], cwd=ROOT, check=True, timeout=SECONDS + 100)
            spent = gateway.cpu_s() - busy
            grown, more_files = gateway.memory_mb() - before, gateway.open_files() - files
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    found = json.loads(out.read_bytes())
    found["cpu_ms_a_call"] = round(spent * 1000 / max(1, found["answers"]), 2)
    figure(
        "clients at once", clients=CLIENTS, seconds=SECONDS, grown_mb=round(grown, 1), more_files=more_files, **found
    )
    assert found["errors"] == 0, found["first_error"]
    assert found["wrong_answers"] == 0
    assert found["answers"] >= CLIENTS
    assert found["answered_clients"] == CLIENTS
