"""A locked script gets the same tools tomorrow or fails and says why; stubs say what a script will get."""

import asyncio
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from script_kit import EXAMPLES, create_repository, git, git_log, open_gateway

import fork_server
from toolfold import Gateway
from toolfold.errors import LockMismatch, ScriptError, ToolNotFound
from toolfold.scripts.lock import Lock
from toolfold.testing.memory_upstream import MemoryUpstream

CODE = 'log, = use_tools("get the git commit log")\nprint(log.tool_id)'
TOOLFOLD = [sys.executable, "-m", "toolfold"]


@pytest.mark.requirement("U-11")
async def test_a_lock_keeps_a_need_at_its_tool_though_a_better_one_came(tmp_path: Path) -> None:
    upstream = MemoryUpstream("git", [git_log])
    async with open_gateway(tmp_path, [upstream]) as gateway:
        lock = Lock.create((await gateway.run_script(CODE)).needs)
        assert Lock.load(lock.dump()) == lock

        def get_the_git_commit_log() -> str:
            """Get the git commit log."""
            return ""

        upstream.set_tools([git_log, get_the_git_commit_log])
        await gateway.reread("git")
        free = await gateway.run_script(CODE)
        held = await gateway.run_script(CODE, locked=lock)
        assert free.stdout == "git.get_the_git_commit_log\n"
        assert held.stdout == "git.git_log\n"


@pytest.mark.requirement("U-11")
async def test_a_tool_that_changed_or_went_away_fails_a_locked_script_before_it_runs(tmp_path: Path) -> None:
    upstream = MemoryUpstream("git", [git_log])
    async with open_gateway(tmp_path, [upstream]) as gateway:
        lock = Lock.create((await gateway.run_script(CODE)).needs)

        def changed(max_count: int, author: str) -> str:
            """Get the git commit log: the latest commits of the repository with hash and author."""
            return ""

        changed.__name__ = "git_log"
        upstream.set_tools([changed])
        await gateway.reread("git")
        with pytest.raises(LockMismatch, match=r"locked to git.git_log, which changed since"):
            await gateway.run_script(CODE, locked=lock)
        upstream.set_tools([])
        await gateway.reread("git")
        with pytest.raises(LockMismatch, match="not there any more"):
            await gateway.run_script(CODE, locked=lock)


def test_a_lock_that_is_none_is_a_clear_error() -> None:
    with pytest.raises(ScriptError, match="cannot be read"):
        Lock.load(b"{")
    with pytest.raises(ScriptError, match="version 9"):
        Lock.load(b'{"version": 9}')


def configured(folder: Path) -> list[str]:
    repository = create_repository(folder / "repository")
    server = [str(EXAMPLES / "git_server.py"), str(repository)]
    program, arguments = (msgspec.json.encode(value).decode() for value in (sys.executable, server))
    (folder / "toolfold.toml").write_text(f"[servers.git]\ncommand = {program}\nargs = {arguments}\n")
    command = [*TOOLFOLD, "--config", str(folder / "toolfold.toml"), "--home", str(folder / "home")]
    fork_server.run([*command, "build"], check=True, capture_output=True, timeout=60)
    return command


@pytest.mark.requirement("U-08", "U-11", "U-12")
def test_the_command_line_runs_locks_and_writes_stubs_that_a_type_checker_accepts(tmp_path: Path) -> None:
    command = configured(tmp_path)
    script = tmp_path / "script.py"
    script.write_bytes((EXAMPLES / "agent_script.py").read_bytes())

    def toolfold(*args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = fork_server.run([*command, *args], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    done = toolfold("run", str(script), "--locked")
    assert done.stdout.splitlines()[0] == "Analyzing recent commits..."
    assert msgspec.json.decode(done.stdout.splitlines()[-1])["commit_count"] == 3
    assert "'a tool to get the git commit log' -> git.git_log" in done.stderr
    lock = tmp_path / "script.py.lock"
    assert [entry["tool_id"] for entry in msgspec.json.decode(lock.read_bytes())["needs"]] == [
        "git.git_log",
        "git.git_diff",
    ]
    report = msgspec.json.decode(toolfold("--json", "run", str(script), "--locked").stdout)
    assert report["outcome"] == "finished"
    assert report["calls"][0]["tool_id"] == "git.git_log"
    lock.write_text(lock.read_text().replace('"fingerprint": "', '"fingerprint": "0'))
    assert "LOCK_MISMATCH" in toolfold("--json", "run", str(script), "--locked", code=4).stdout

    (tmp_path / "bad.py").write_text("print('x')\nexit(7)")
    assert toolfold("run", str(tmp_path / "bad.py"), code=7).stdout == "x\n"
    (tmp_path / "bad.py").write_text("use_tools(1)")
    assert "line 1: use_tools takes literal strings only" in toolfold("run", str(tmp_path / "bad.py"), code=4).stderr

    stubs = tmp_path / "stubs"
    toolfold("stubs", "get the git commit log", "git.git_diff", "git.git_status", "--out", str(stubs))
    right = "\n    ".join(
        [
            "log = await git_log(GitLogParams(max_count=5))",
            "sha: str = log.commits[0].sha",
            "await git_diff(commit_a=sha, commit_b=sha)",
        ]
    )
    wrong = "(await git_log(max_count=5)).comits\n    await git_log(max_count='five')"
    for name, body in (("right", right), ("wrong", wrong)):
        (tmp_path / f"{name}.py").write_text(
            "from runtime.discovery import use_tools\nfrom runtime.exceptions import ToolNotFound\n"
            "from servers.git import GitLogParams, git_diff, git_log\n"
            f"async def main() -> None:\n    {body}\n"
        )
    check = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--cache-dir",
        str(tmp_path / "cache"),
        "--follow-imports=silent",
    ]
    files = [str(stubs / "servers"), str(stubs / "runtime")]
    environment = {"MYPYPATH": str(stubs), "PATH": ""}
    fine = subprocess.run(
        [*check, *files, str(tmp_path / "right.py")],
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
        env=environment,
    )
    assert fine.returncode == 0, fine.stdout
    bad = subprocess.run(
        [*check, str(tmp_path / "wrong.py")], capture_output=True, text=True, check=False, timeout=110, env=environment
    )
    assert 'has no attribute "comits"' in bad.stdout
    assert "No overload variant" in bad.stdout


@pytest.mark.requirement("U-12")
def test_stubs_of_a_need_that_nothing_fits_are_an_error_with_candidates(tmp_path: Path) -> None:
    async def main(gateway: Gateway) -> None:
        needs, files = await gateway.scripts.stubs(["get the git commit log"])
        assert needs[0].tool_id == "git.git_log"
        assert "async def git_log(*, max_count: int | None = ...) -> GitLogResult:" in files["servers/git.pyi"]
        with pytest.raises(ToolNotFound):
            await gateway.scripts.stubs(["brew a cup of espresso on the moon"])

    async def run() -> None:
        async with open_gateway(tmp_path, [git()]) as gateway:
            await main(gateway)

    asyncio.run(run())
