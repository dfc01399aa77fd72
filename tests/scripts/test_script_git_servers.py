"""The siblings of the example run on public git servers as they are, where those are installed.

They pin libraries of their own, so they live in environments of their own: name the programs in the variables below.
"""

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from script_kit import EXAMPLES, create_repository

from toolfold import Gateway, Settings
from toolfold.scripts import report
from toolfold.scripts.runner import ScriptResult
from toolfold.types import ServerSpec

SERVERS = {
    "mcp_server_git.py": ("TOOLFOLD_TEST_MCP_SERVER_GIT", "mcp-server-git", ("--repository", "{repository}")),
    "cyanheads_git.py": ("TOOLFOLD_TEST_CYANHEADS_GIT", "git-mcp-server", ()),
}


@pytest.mark.requirement("U-02")
@pytest.mark.parametrize("script", list(SERVERS))
def test_a_sibling_of_the_example_runs_on_a_public_server(tmp_path: Path, script: str) -> None:
    variable, name, arguments = SERVERS[script]
    program = os.environ.get(variable) or shutil.which(name)
    if not program:
        pytest.skip(f"{name} is not installed: put its program into {variable}")
    repository = create_repository(tmp_path / "repository")
    server = ServerSpec(
        name="git",
        transport="stdio",
        command=program,
        args=tuple(argument.format(repository=repository) for argument in arguments),
        env={"MCP_TRANSPORT_TYPE": "stdio"},
    )

    async def main() -> ScriptResult:
        async with Gateway(Settings(servers=(server,), home=tmp_path / "home")) as gateway:
            await gateway.build()
            return await gateway.run_script((EXAMPLES / script).read_bytes(), args=[str(repository)])

    result = asyncio.run(main())
    summary = {"commit_count": 3, "latest_commit_author": "Ada", "files_changed_in_last_commit": 3}
    assert result.answer == summary, report.as_text(result)
    assert [need.tool_id for need in result.needs] == ["git.git_log", "git.git_diff"]
    assert not result.warnings
