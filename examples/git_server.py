"""A small real MCP server for one git repository, with the signatures that `agent_script.py` expects.

Run it over stdio: `python examples/git_server.py DIRECTORY`. It stands on toolfold's own demo server, which runs the
`git` program and only reads.
"""

import sys
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from toolfold.demo.git import Commit, FileChange, GitTools
from toolfold.demo.server import serve
from toolfold.upstream.function_tool import tool

Count = Annotated[int, Meta(ge=1, le=1000)]


class GitLog(Struct):
    """Commits, newest first."""

    commits: list[Commit]


class GitDiff(Struct):
    """What differs between two commits."""

    files: list[FileChange]
    patch: str


class Server:
    """The tools, for one repository."""

    def __init__(self, directory: Path) -> None:
        self._git = GitTools(directory)

    @tool(title="Git log", read_only=True, open_world=False)
    def git_log(self, max_count: Count = 10) -> GitLog:
        """Get the git commit log: the latest commits with hash, author, date and subject.

        Args:
            max_count: How many commits at most.
        """
        return GitLog(self._git.log(limit=max_count).commits)

    @tool(title="Git diff", read_only=True, open_world=False)
    def git_diff(self, commit_a: str, commit_b: str) -> GitDiff:
        """See the file changes between two commits.

        Args:
            commit_a: The earlier commit.
            commit_b: The later commit.
        """
        diff = self._git.diff(base=commit_a, target=commit_b)
        return GitDiff(diff.files, diff.patch)

    @tool(title="Git status", read_only=True, open_world=False)
    def git_status(self) -> str:
        """Tell the current branch and whether the working tree is clean."""
        status = self._git.status()
        return f"on {status.branch}, {'clean' if status.clean else f'{len(status.entries)} files differ'}"


def main() -> None:
    server = Server(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    serve("example-git", [server.git_log, server.git_diff, server.git_status], instructions="Reads one git repository.")


if __name__ == "__main__":
    main()
