"""Tasks that change a git repository, through the reference server (mcp-server-git): commits and branches."""

from typing import Any

from toolfold.bench.agent_tasks import Task, Tool, both, holds
from toolfold.bench.agent_tasks_sqlite import QUERY
from toolfold.bench.agent_world import World

ADD = "add files to the staging area of a repository"
COMMIT = "record changes to the repository with a message"


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


TASKS = (
    Task(
        name="repo-commit",
        text="Commit NOTES.md, and nothing else, in the repository $FOLDER/repository with the message: Add notes",
        needs={"repo.git_add": ADD, "repo.git_commit": COMMIT},
        plan=commit_notes,
        check=both(
            holds("the newest commit holds NOTES.md", _committed),
            holds("its message is right", lambda world: world.git("log", "-1", "--format=%s") == "Add notes"),
        ),
    ),
    Task(
        name="repo-branch",
        text="Make a branch winter in the repository $FOLDER/repository that begins where json-output is.",
        needs={"repo.git_create_branch": "create a new branch in a repository"},
        plan=winter,
        check=holds(
            "winter is where json-output is",
            lambda world: world.branches().get("winter") == world.branches()["json-output"],
        ),
    ),
    Task(
        name="repo-counted",
        text=(
            "Commit NOTES.md in the repository $FOLDER/repository with the message 'Notes of a day with N open "
            "orders', N being the number of open orders in the shop's database."
        ),
        needs={"sqlite.query": QUERY, "repo.git_add": ADD, "repo.git_commit": COMMIT},
        plan=counted_commit,
        check=both(holds("the newest commit holds NOTES.md", _committed), holds("its message is right", _counted)),
    ),
)
