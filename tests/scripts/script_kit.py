"""A gateway with tools in memory, for tests of scripts: real search, real processes, a real sandbox."""

import asyncio
import subprocess
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from toolfold import Gateway, Settings
from toolfold.config.sections import Scripts
from toolfold.scripts.runner import ScriptResult
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.upstream.base import Upstream

T = TypeVar("T")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


class Commit(TypedDict):
    sha: str
    author: str


class Log(TypedDict):
    commits: list[Commit]


def git_log(max_count: int = 10) -> Log:
    """Get the git commit log: the latest commits of the repository with hash and author."""
    return {"commits": [{"sha": f"{number:040x}", "author": "Ada"} for number in range(max_count)]}


def git_branch(name: str) -> str:
    """Create a new git branch with a name."""
    return f"created {name}"


def send_mail(to: str, subject: str, body: str = "") -> str:
    """Send an e-mail message to somebody."""
    return f"sent {subject} to {to}"


def git() -> MemoryUpstream:
    return MemoryUpstream("git", [git_log, git_branch])


def mail() -> MemoryUpstream:
    return MemoryUpstream("mail", [send_mail])


@asynccontextmanager
async def open_gateway(
    home: Path, upstreams: Iterable[Upstream] | None = None, scripts: Scripts | None = None, **settings: Any
) -> AsyncIterator[Gateway]:
    chosen = Settings(home=home, scripts=scripts or Scripts(wall_s=20.0, ready=1), **settings)
    async with Gateway(chosen, upstreams=upstreams if upstreams is not None else [git(), mail()]) as gateway:
        await gateway.build()
        yield gateway


def with_tools(home: Path, work: Callable[[Gateway], Awaitable[T]], **options: Any) -> T:
    async def main() -> T:
        async with open_gateway(home, **options) as gateway:
            return await work(gateway)

    return asyncio.run(main())


def run_script(
    home: Path,
    code: str,
    *,
    upstreams: Iterable[Upstream] | None = None,
    scripts: Scripts | None = None,
    **options: Any,
) -> ScriptResult:
    """Runs one script on tools in memory."""

    async def work(gateway: Gateway) -> ScriptResult:
        return await gateway.run_script(textwrap.dedent(code), **options)

    return with_tools(home, work, upstreams=upstreams, scripts=scripts)


def run_scripts(home: Path, codes: Iterable[str], **options: Any) -> list[ScriptResult]:
    """Runs many scripts side by side, a few at a time, on the same tools."""

    async def work(gateway: Gateway) -> list[ScriptResult]:
        gate = asyncio.Semaphore(3)

        async def one(code: str) -> ScriptResult:
            async with gate:
                return await gateway.run_script(textwrap.dedent(code))

        return list(await asyncio.gather(*map(one, codes)))

    return with_tools(home, work, **options)


def create_repository(folder: Path) -> Path:
    """A real repository with three commits."""
    folder.mkdir()

    def run(*args: str) -> None:
        who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *who, *args], cwd=folder, check=True, capture_output=True, timeout=30)

    run("init", "--quiet")
    for number in range(3):
        for name in range(number + 1):
            (folder / f"file{name}.txt").write_text(f"{number} {name}\n")
        run("add", "--all")
        run("commit", "--quiet", "-m", f"commit {number}")
    return folder
