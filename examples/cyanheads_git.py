# The same analysis for the public `@cyanheads/git-mcp-server`, which declares what it returns.
# toolfold run examples/cyanheads_git.py --args /path/to/repository
import asyncio
import sys

from runtime.discovery import use_tools
from runtime.exceptions import ToolNotFound

try:
    use_tools("a tool to get the git commit log", "view differences between two commits")
    from servers.git import GitLogParams, git_diff, git_log
except ToolNotFound as error:
    print(f"Could not find a tool for: {error.query}")
    exit(1)


async def main():
    """Analyses the last five commits."""
    repository = sys.argv[1]
    log = await git_log(GitLogParams(path=repository, maxCount=5))
    if len(log.commits) < 2:
        print("Not enough commits to compare.")
        return None
    diff = await git_diff(path=repository, source=log.commits[1].hash, target=log.commits[0].hash)
    return {
        "commit_count": len(log.commits),
        "latest_commit_author": log.commits[0].author,
        "files_changed_in_last_commit": diff.filesChanged,
    }


if __name__ == "__main__":
    asyncio.run(main())
