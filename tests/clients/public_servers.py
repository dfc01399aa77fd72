"""Many real servers behind one toolfold: it is built, and a tool of each is found, expanded and called.

Run in the environment of the official SDK, as the scripts of clients are. The job names the calls: for each server a
request in plain words, the tool, its arguments, and a text that the result must hold.
"""

import asyncio
import json
import subprocess
import sys
from functools import partial
from typing import Any

from client_scenario import Act, Connection, Target, expect, job, perform
from with_mcp import connect

BUILD_S = 90.0


async def built() -> None:
    """The command that a person gives, and what it says in the end."""
    build: list[str] = job()["build"]
    run = partial(subprocess.run, build, capture_output=True, text=True, timeout=BUILD_S, check=False)
    done = await asyncio.to_thread(run)
    servers = len(job()["calls"])
    expect(done.returncode == 0 and f"of {servers} servers ({servers} working)" in done.stdout, done)


async def called(connection: Connection, wanted: dict[str, Any]) -> bool:
    """Expanded and called. Tells whether a search for it in plain words had it among the five best."""
    hits = await connection.call("search_tool_by_category", {"query": wanted["query"]})
    whole = await connection.call("expand_tool", {"tool_id": wanted["tool"]})
    expect(not whole.failed and "args_schema" in json.loads(whole.text), whole)
    result = await connection.call("call_tool", {"tool_id": wanted["tool"], "args": wanted["args"]})
    expect(not result.failed and wanted["result"] in result.text, result)
    return not hits.failed and wanted["tool"] in {hit["tool_id"] for hit in json.loads(hits.text)["results"]}


async def all_called() -> None:
    async with connect(Target(command=job()["serve"])) as connection:
        missed = [wanted["tool"] for wanted in job()["calls"] if not await called(connection, wanted)]
    expect(len(missed) * 4 <= len(job()["calls"]), f"not found by a search: {missed}")
    if missed:
        sys.stdout.write(f"not found by a search: {', '.join(missed)}\n")


if __name__ == "__main__":
    acts: dict[str, Act] = {"build": built, "a call of each": all_called}
    perform(acts)
