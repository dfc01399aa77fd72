"""Tasks on a git repository, which its server only reads: every end state is an answer."""

import asyncio
from typing import Any

from toolfold.bench.agent_tasks import Task, Tool, answers
from toolfold.bench.agent_world import World

LOG = "list the commits of a branch"
SHOW = "show one commit with its message and patch"
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


TASKS = (
    Task(
        name="git-count",
        text="How many commits has the branch main of the repository?",
        needs={"git.log": LOG},
        plan=count,
        check=answers(lambda world: world.git("rev-list", "--count", "main")),
    ),
    Task(
        name="git-newest",
        text="Who wrote the newest commit of the repository? Answer with the full name.",
        needs={"git.log": LOG},
        plan=newest,
        check=answers(lambda world: world.git("log", "-1", "--format=%an")),
    ),
    Task(
        name="git-find",
        text="Which commit removed Kiel? Answer with its full hash.",
        needs={"git.log": LOG},
        plan=kiel,
        check=answers(lambda world: world.git("log", "--format=%H", "--grep=^Remove Kiel")),
    ),
    Task(
        name="git-reason",
        text="By how many seconds was the mean period too short before the last change of tides/core.py?",
        needs={"git.log": LOG, "git.show": SHOW},
        plan=reason,
        check=answers(lambda world: world.git("log", "-1", "--format=%b", "--", CORE).split("was ")[1].split()[0]),
    ),
    Task(
        name="git-blame",
        text="Who last changed line 7 of tides/core.py, which sets the period? Answer with the full name.",
        needs={"git.blame": "tell who last changed each line of a file"},
        plan=period,
        check=answers(lambda world: world.git("blame", "-L7,7", "--porcelain", CORE).split("\n")[1][7:]),
    ),
    Task(
        name="git-author",
        text="How many commits on the current branch of the repository did Jonas write?",
        needs={"git.log": LOG},
        plan=by_jonas,
        check=answers(lambda world: world.git("rev-list", "--count", "--author=Jonas", "HEAD")),
    ),
    Task(
        name="git-files",
        text="Which files did the commit 'Compute the next low water' change? Name all paths.",
        needs={"git.log": LOG, "git.show": SHOW},
        plan=low_water,
        check=answers(_paths),
    ),
    Task(
        name="git-added",
        text="How many lines were added in all between HEAD~4 and HEAD of the repository?",
        needs={"git.diff": "compare two commits"},
        plan=added,
        check=answers(_added),
    ),
    Task(
        name="git-search",
        text="In which file of the repository is next_low defined? Answer with its path.",
        needs={"git.search": "search the repository's files for a text"},
        plan=definition,
        check=answers(lambda world: world.git("grep", "-l", "def next_low")),
    ),
    Task(
        name="git-authors",
        text="How many commits that touch tides/core.py did Mara, Jonas and Aylin write, each?",
        needs={"git.log": LOG},
        plan=authors,
        check=answers(_authors),
    ),
    Task(
        name="git-status",
        text="On which branch is the repository, and which file in it is not committed yet?",
        needs={"git.status": "tell the current branch and the state of the working tree"},
        plan=branch,
        check=answers(lambda world: [world.git("branch", "--show-current"), "NOTES.md"]),
    ),
    Task(
        name="git-largest",
        text="Look at each commit of the current branch: which one added most lines? Answer with its full hash.",
        needs={"git.log": LOG, "git.show": SHOW},
        plan=largest,
        extracts={
            "git.log": tuple(f"commits[{number}].sha" for number in range(15)),
        },
        check=answers(_largest),
    ),
)
