"""What a script gets of a tool that returns a list, and is told of an argument that it misspelt."""

from pathlib import Path

import pytest
from script_kit import Commit, run_script

from toolfold.testing.memory_upstream import MemoryUpstream


def list_commits(max_count: int, author: str = "") -> list[Commit]:
    """List the latest commits of the repository."""
    return [{"sha": f"{number:040x}", "author": author or "Ada"} for number in range(max_count)]


def upstream() -> MemoryUpstream:
    return MemoryUpstream("git", [list_commits])


def test_17_a_script_gets_a_list_as_a_list(tmp_path: Path) -> None:
    code = """
        commits = use_tools("git.list_commits")
        found = await commits(max_count=3)
        print(type(found).__mro__[1].__name__, len(found), found[0].author, [commit.sha[-1] for commit in found])
        print(found.result == found, found == found.raw, commits.signature)
    """
    result = run_script(tmp_path, code, upstreams=[upstream()])
    assert result.ok, result
    first, second = result.stdout.splitlines()
    assert first == "list 3 Ada ['0', '1', '2']"
    assert second == ("True True list_commits(*, max_count: int, author: str = '') -> list[ListCommitsCommit]")


@pytest.mark.parametrize(
    "call", ["commits(max_cuont=3)", 'commits({"max_cuont": 3})', "commits(max_cuont=3, author=4)"]
)
def test_17_a_misspelt_argument_is_named_with_the_nearest(tmp_path: Path, call: str) -> None:
    result = run_script(tmp_path, f'commits = use_tools("git.list_commits")\nawait {call}', upstreams=[upstream()])
    assert not result.ok
    assert "max_cuont: there is no such argument; did you mean max_count?" in str(result.error)
