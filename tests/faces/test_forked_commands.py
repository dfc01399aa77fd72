"""What other tests rely on: a command that is forked is told, and does, what one that is started does."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fork_server

TOOLFOLD = [sys.executable, "-m", "toolfold"]
# Prints what it was started with: a server of functions is loaded by the command itself.
TOOLS = """
import os, signal, sys
def told() -> list:
    here = [os.getcwd(), sys.argv[1:], sys.path[:2], sys.stdout.encoding, sys.dont_write_bytecode]
    signals = [signal.getsignal(number) == signal.SIG_DFL for number in (signal.SIGPIPE, signal.SIGCHLD)]
    kept = {name: value for name, value in os.environ.items() if name != "PWD"}
    return [*here, signals, sorted(kept.items()), sorted(os.listdir("/proc/self/fd"))[:3], os.umask(0o22)]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "toolfold.toml").write_text('[servers.tools]\nfunctions = "./tools.py"\n')
    return tmp_path


def both(folder: Path, *words: str, **more: Any) -> "list[subprocess.CompletedProcess[bytes]]":
    base = {"PATH": os.environ["PATH"], "HOME": str(folder), **more.pop("env", {})}
    options = {"cwd": folder, "env": base, "capture_output": True, "timeout": 60, **more}
    return [run([*TOOLFOLD, *words], **options) for run in (subprocess.run, fork_server.run)]


@pytest.mark.parametrize("env", [{}, {"LANG": "C.UTF-8", "PYTHONPATH": "/x", "PYTHONUNBUFFERED": "1"}, {"LC_ALL": "C"}])
def test_a_forked_command_is_told_what_a_started_one_is(folder: Path, env: dict[str, str]) -> None:
    assert [done.returncode for done in both(folder, "build", "--no-search", env=env)] == [0, 0]
    started, forked = both(folder, "call", "tools.told", "{}", "--json", env=env)
    assert (forked.returncode, forked.stdout, forked.stderr) == (started.returncode, started.stdout, started.stderr)
    assert str(folder).encode() in started.stdout


@pytest.mark.parametrize("words", ["nonsense", "tree", "--version", "call tools.told x", "extract - a"])
def test_a_forked_command_ends_as_a_started_one_does(folder: Path, words: str) -> None:
    both(folder, "build", "--no-search")
    started, forked = both(folder, *words.split(), input=b'{"a": 1}')
    assert (forked.returncode, forked.stdout, forked.stderr) == (started.returncode, started.stdout, started.stderr)


def test_a_forked_command_takes_signals_and_ends_at_its_time_limit(folder: Path) -> None:
    serve = [*TOOLFOLD, "--home", str(folder), "serve"]
    options: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": folder}
    with fork_server.Popen(serve, **options) as process:
        assert process.poll() is None
        assert Path(f"/proc/{process.pid}/cwd").exists()
        process.kill()
        assert process.wait(60) == -9
    read, write = os.pipe()
    with pytest.raises(subprocess.TimeoutExpired):
        fork_server.run(serve, timeout=0.5, **{**options, "stdin": read})
    os.close(read)
    os.close(write)
