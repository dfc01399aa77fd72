"""Tasks on a git repository, which its server only reads: every end state is an answer."""

import asyncio
from typing import Any

from benchmarks.agent.tasks import Tool, answers, load_tasks
from benchmarks.agent.world import World

CORE = "tides/core.py"


async def count(log: Tool) -> Any:
    found = await log(revision="main", limit=1000)
    return len(found.commits)


async def newest(log: Tool) -> Any:
    found = await log(limit=1)
    return found.commits[0].author


async def kiel(log: Tool) -> Any:
    found = await log(limit=100)
    return [commit.sha for commit in found.commits if commit.subject.startswith("Remove Kiel")]


async def reason(log: Tool, show: Tool) -> Any:
    found = await log(path="tides/core.py", limit=1)
    commit = await show(revision=found.commits[0].sha)
    return commit.message


async def period(blame: Tool) -> Any:
    found = await blame(path="tides/core.py", start=7, lines=1)
    lines = found if isinstance(found, list) else found.result
    return lines[0].author


async def by_jonas(log: Tool) -> Any:
    found = await log(author="Jonas", limit=1000)
    return len(found.commits)


async def low_water(log: Tool, show: Tool) -> Any:
    found = await log(limit=100)
    (sha,) = [commit.sha for commit in found.commits if commit.subject == "Compute the next low water"]
    commit = await show(revision=sha)
    return [change.path for change in commit.change.files]


async def added(diff: Tool) -> Any:
    found = await diff(base="HEAD~4", target="HEAD")
    return sum(change.added for change in found.files)


async def definition(search: Tool) -> Any:
    found = await search(pattern="def next_low")
    return found.matches[0].path


async def authors(log: Tool) -> Any:
    names = ["Mara", "Jonas", "Aylin"]
    found = await asyncio.gather(*(log(author=name, path="tides/core.py", limit=1000) for name in names))
    return {name: len(one.commits) for name, one in zip(names, found, strict=True)}


async def branch(status: Tool) -> Any:
    found = await status()
    return [found.branch, *(entry.path for entry in found.entries)]


async def largest(log: Tool, show: Tool) -> Any:
    found = await log(limit=1000)
    shown = await asyncio.gather(*(show(revision=commit.sha) for commit in found.commits))
    sizes = {one.commit.sha: sum(change.added for change in one.change.files) for one in shown}
    return max(sizes, key=lambda sha: sizes[sha])


def _largest(world: World) -> str:
    best, most = "", -1
    for sha in world.git("log", "--format=%H").split():
        stat = world.git("show", "--format=", "--numstat", sha).splitlines()
        lines = sum(int(line.split("\t")[0]) for line in stat if line)
        if lines > most:
            best, most = sha, lines
    return best


def _authors(world: World) -> list[int]:
    names = ("Mara", "Jonas", "Aylin")
    return [int(world.git("rev-list", "--count", f"--author={name}", "HEAD", "--", CORE)) for name in names]


def _added(world: World) -> int:
    return sum(int(line.split("\t")[0]) for line in world.git("diff", "--numstat", "HEAD~4", "HEAD").splitlines())


def _paths(world: World) -> list[str]:
    sha = world.git("log", "--format=%H", "--fixed-strings", "--grep=Compute the next low water")
    return world.git("show", "--format=", "--name-only", sha).splitlines()


CHECKS = {
    "git-count": answers(lambda world: world.git("rev-list", "--count", "main")),
    "git-newest": answers(lambda world: world.git("log", "-1", "--format=%an")),
    "git-find": answers(lambda world: world.git("log", "--format=%H", "--grep=^Remove Kiel")),
    "git-reason": answers(lambda world: world.git("log", "-1", "--format=%b", "--", CORE).split("was ")[1].split()[0]),
    "git-blame": answers(lambda world: world.git("blame", "-L7,7", "--porcelain", CORE).split("\n")[1][7:]),
    "git-author": answers(lambda world: world.git("rev-list", "--count", "--author=Jonas", "HEAD")),
    "git-files": answers(_paths),
    "git-added": answers(_added),
    "git-search": answers(lambda world: world.git("grep", "-l", "def next_low")),
    "git-authors": answers(_authors),
    "git-status": answers(lambda world: [world.git("branch", "--show-current"), "NOTES.md"]),
    "git-largest": answers(_largest),
}

TASKS = load_tasks(__name__, CHECKS)
