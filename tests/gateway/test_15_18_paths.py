"""A category may be named by its steps or by one text: every method that takes a path reads both the same way."""

from pathlib import Path

import pytest

from toolfold import Gateway, Settings
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.text import as_path

pytestmark = pytest.mark.usefixtures("engine")  # on both engines

TOOLS = [
    {"name": "query", "description": "Runs a SQL query on a database table.", "inputSchema": {"type": "object"}},
    {"name": "read_file", "description": "Reads a file from disk.", "inputSchema": {"type": "object"}},
]


@pytest.mark.parametrize(
    ("written", "steps"),
    [
        ("Databases", ("Databases",)),
        ("Storage / Files", ("Storage", "Files")),
        ("Storage/Files/", ("Storage", "Files")),
        ("Storage > Files", ("Storage", "Files")),
        ("", ()),
        (["Storage", "Files"], ("Storage", "Files")),
        (("CI/CD",), ("CI/CD",)),
        ([], ()),
    ],
)
def test_15_18_a_path_is_its_steps_or_one_text(written: str | list[str], steps: tuple[str, ...]) -> None:
    assert as_path(written) == steps


async def test_15_18_every_method_that_takes_a_path_reads_a_text(tmp_path: Path) -> None:
    async with Gateway(Settings(home=tmp_path), upstreams=[MemoryUpstream("data", TOOLS)]) as gateway:
        await gateway.build()
        root = (await gateway.list())["nodes"][0]["path"][:1]
        name = root[0]
        assert await gateway.list(name) == await gateway.list(root)
        assert await gateway.tree(name) == await gateway.tree(root)
        assert await gateway.tools_below(name) == await gateway.tools_below(root)
        query = "run a SQL query"
        everywhere = await gateway.search_tool_by_category(query, "")
        assert everywhere["results"]
        path = everywhere["results"][0]["path"]
        inside = await gateway.search_tool_by_category(query, " / ".join(path))
        assert inside["results"] == (await gateway.search_tool_by_category(query, path))["results"]
        assert await gateway.available_tools(query, " / ".join(path)) == await gateway.available_tools(query, path)
