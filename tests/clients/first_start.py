"""`toolfold serve` where nothing was ever built: its first client finds tools at once, with no further step."""

import tempfile
from typing import Any

from client_scenario import Act, Target, expect, job, perform
from with_mcp import connect

FIRST = {"discovery": "search_tool_by_category", "direct": "files_read", "auto": "files_read"}


def begun(profile: str, arguments: dict[str, Any], wanted: str) -> Act:
    async def acted() -> None:
        with tempfile.TemporaryDirectory(prefix="toolfold-first-") as home:
            target = Target(command=[*job()["serve"], "--home", home, "--profile", profile])
            async with connect(target) as connection:
                if profile == "direct":
                    names = [tool["name"] for tool in await connection.tools()]
                    expect("git_log" in names, names)
                answer = await connection.call(FIRST[profile], arguments)
                expect(not answer.failed and wanted in answer.text, answer)
                told = await connection.instructions()
                expect("has to build" not in told, told)

    return acted


if __name__ == "__main__":
    perform(
        {
            "discovery": begun("discovery", {"query": "who changed a line of a file last"}, "git.blame"),
            "direct": begun("direct", {"path": "config/shop.json"}, "currency"),
            "auto": begun("auto", {"path": "config/shop.json"}, "currency"),
        }
    )
