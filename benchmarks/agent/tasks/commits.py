"""Tasks that change a git repository, through the reference server (mcp-server-git): commits and branches."""

from typing import Any

from benchmarks.agent.tasks import Tool, both, holds, load_tasks
from benchmarks.agent.world import World


async def commit_notes(add: Tool, commit: Tool) -> Any:
    await add(repo_path="$FOLDER/repository", files=["NOTES.md"])
    await commit(repo_path="$FOLDER/repository", message="Add notes")
    return "Committed."


async def winter(create: Tool) -> Any:
    await create(repo_path="$FOLDER/repository", branch_name="winter", base_branch="json-output")
    return "Made."


async def counted_commit(query: Tool, add: Tool, commit: Tool) -> Any:
    found = await query(sql="SELECT count(*) FROM orders WHERE status = 'open'")
    await add(repo_path="$FOLDER/repository", files=["NOTES.md"])
    await commit(repo_path="$FOLDER/repository", message=f"Notes of a day with {found.rows[0][0]} open orders")
    return "Committed."


def _committed(world: World) -> bool:
    return world.git("show", "--format=", "--name-only", "HEAD") == "NOTES.md"


def _counted(world: World) -> bool:
    number = world.value("SELECT sum(status = 'open') FROM orders")
    return world.git("log", "-1", "--format=%s") == f"Notes of a day with {number} open orders"


CHECKS = {
    "repo-commit": both(
        holds("the newest commit holds NOTES.md", _committed),
        holds("its message is right", lambda world: world.git("log", "-1", "--format=%s") == "Add notes"),
    ),
    "repo-branch": holds(
        "winter is where json-output is",
        lambda world: world.branches().get("winter") == world.branches()["json-output"],
    ),
    "repo-counted": both(
        holds("the newest commit holds NOTES.md", _committed), holds("its message is right", _counted)
    ),
}

TASKS = load_tasks(__name__, CHECKS)
