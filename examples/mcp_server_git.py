# The same analysis for the public `mcp-server-git`, which answers in text and wants the repository with each call.
# toolfold run examples/mcp_server_git.py --args /path/to/repository
import asyncio
import re
import sys

from runtime.discovery import use_tools
from runtime.exceptions import ToolNotFound

try:
    use_tools("a tool to get the git commit log", "show differences between commits")
    from servers.git import git_diff, git_log
except ToolNotFound as error:
    print(f"Could not find a tool for: {error.query}")
    exit(1)


async def main():
    """Analyses the last five commits."""
    repository = sys.argv[1]
    log = await git_log(repo_path=repository, max_count=5)
    commits = re.findall(r"^Commit: (\w+)\nAuthor: (.*)$", log.text, re.MULTILINE)
    if len(commits) < 2:
        print("Not enough commits to compare.")
        return None
    diff = await git_diff(repo_path=repository, target=commits[1][0])
    return {
        "commit_count": len(commits),
        "latest_commit_author": commits[0][1],
        "files_changed_in_last_commit": diff.count("\ndiff --git "),
    }


if __name__ == "__main__":
    asyncio.run(main())
