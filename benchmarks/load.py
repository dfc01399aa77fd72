"""`toolfold bench load`: a thousand clients at once on one worker, on two, and on a bare Starlette service, in turns.

Every client checks that each answer is its own. The services stand behind the same clients on the same machine, which
share its cores with them: only the comparison counts.
"""

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.measurement import environment
from benchmarks.peers import BARE_SERVER, STARLETTE_ECHO
from benchmarks.processes import START_S, cpu_seconds, free_port, memory_mb, started
from benchmarks.servers import ROOT

CLIENTS = 1000
SECONDS = 60.0
TURNS = 4

CONFIG = """\
[servers.echo]
command = {python}
args = [{script}]
"""


def run(data: Path | None = None, *, clients: int = CLIENTS, seconds: float = SECONDS) -> dict[str, Any]:
    del data
    _allow_files(clients)
    with tempfile.TemporaryDirectory(prefix="toolfold-bench-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        gateway, gateway_port = _serve(folder, stack)
        _, workers_port = _serve(folder, stack, workers=2)
        _, bare_port = _echo(folder, stack)
        ours: list[dict[str, Any]] = []
        two: list[dict[str, Any]] = []
        bare: list[dict[str, Any]] = []
        before = _cpu(gateway.pid)
        for _ in range(TURNS):
            ours.append(_loaded(folder, gateway_port, clients, seconds / TURNS))
            two.append(_loaded(folder, workers_port, clients, seconds / TURNS))
            bare.append(_loaded(folder, bare_port, clients, seconds / TURNS))
        answers = sum(one["answers"] for one in ours)
        metrics = {
            "clients": clients,
            "seconds_each": seconds,
            "turns": TURNS,
            "toolfold": _joined(ours),
            "two_workers": _joined(two),
            "starlette_echo": _joined(bare),
            "gateway_cpu_ms_per_call": round((_cpu(gateway.pid) - before) * 1000 / max(answers, 1), 4),
            "gateway_peak_mb": round(memory_mb(gateway.pid, "VmHWM"), 1) if sys.platform == "linux" else None,
        }
        metrics["throughput_to_bare"] = round(
            metrics["toolfold"]["per_second"] / max(metrics["starlette_echo"]["per_second"], 0.1), 3
        )
        metrics["p99_to_bare"] = round(metrics["toolfold"]["p99_ms"] / max(metrics["starlette_echo"]["p99_ms"], 0.1), 3)
    return {"name": "load", "metrics": metrics, "environment": environment("uvicorn", "starlette", "httptools")}


def _serve(folder: Path, stack: ExitStack, workers: int = 1) -> tuple["subprocess.Popen[bytes]", int]:
    script, config = folder / "echo_server.py", folder / "toolfold.toml"
    script.write_text(BARE_SERVER, encoding="utf-8")
    quoted = [msgspec.json.encode(value).decode() for value in (sys.executable, str(script))]
    config.write_text(CONFIG.format(python=quoted[0], script=quoted[1]), encoding="utf-8")
    shared = ["--config", str(config), "--home", str(folder / "home")]
    toolfold = [sys.executable, "-m", "toolfold"]
    subprocess.run([*toolfold, "build", "--no-search", *shared], stdout=subprocess.DEVNULL, check=True, timeout=START_S)
    port = free_port()
    options = ["--http", f"127.0.0.1:{port}", "--workers", str(workers), *shared]
    return started([*toolfold, "serve", *options], port, stack), port


def _echo(folder: Path, stack: ExitStack) -> tuple["subprocess.Popen[bytes]", int]:
    script = folder / "starlette_echo.py"
    script.write_text(STARLETTE_ECHO, encoding="utf-8")
    port = free_port()
    return started([sys.executable, str(script), str(port)], port, stack), port


def _loaded(folder: Path, port: int, clients: int, seconds: float) -> dict[str, Any]:
    out = folder / "load.json"
    command = [sys.executable, "-m", "benchmarks.http_clients", str(port), str(clients), str(seconds), "echo.echo"]
    subprocess.run([*command, str(out)], cwd=ROOT, check=True, timeout=seconds + 120)
    found: dict[str, Any] = msgspec.json.decode(out.read_bytes())
    return found


def _joined(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts added up; the times of the worst turn."""
    return {
        "answers": sum(one["answers"] for one in turns),
        "errors": sum(one["errors"] for one in turns),
        "first_error": next((one["first_error"] for one in turns if one["first_error"]), ""),
        "wrong_answers": sum(one["wrong_answers"] for one in turns),
        "per_second": round(sum(one["per_second"] for one in turns) / len(turns), 1),
        "p50_ms": max(one["p50_ms"] for one in turns),
        "p99_ms": max(one["p99_ms"] for one in turns),
    }


def _cpu(pid: int) -> float:
    return cpu_seconds(pid) if sys.platform == "linux" else 0.0


def _allow_files(clients: int) -> None:
    """Each client is an open file, here and in the services that inherit the limit."""
    if os.name != "posix":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = clients * 2 + 200
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
