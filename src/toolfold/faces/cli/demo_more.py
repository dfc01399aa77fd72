"""The second half of `toolfold demo`: a result that is too large, and a script instead of many calls."""

from typing import Any

import msgspec

from toolfold.errors import SandboxError, ScriptError
from toolfold.faces.cli.output import Output
from toolfold.gateway import Gateway

SQL = "SELECT o.id, c.name, c.email, o.ordered_on, o.status FROM orders o JOIN customers c ON c.id = o.customer_id"
REQUEST = "rows[3]"

SCRIPT = """\
import asyncio
from runtime.discovery import use_tools

use_tools("list the latest commits of the repository", "run a SELECT on the database")
from servers.git import log
from servers.sqlite import query


async def main():
    commits = (await log(limit=50)).commits
    sql = "SELECT count(*) FROM orders WHERE status = ?"
    found = await asyncio.gather(*(query(sql=sql, parameters=[one]) for one in ("open", "paid", "returned")))
    return {"commits": len(commits), "open, paid, returned": [one.rows[0][0] for one in found]}


asyncio.run(main())
"""


async def large_result(gateway: Gateway) -> dict[str, Any]:
    """A call whose answer does not fit, and one question to what was stored of it."""
    outcome = await gateway.call_tool("sqlite.query", {"sql": SQL, "limit": 1000})
    message = msgspec.json.decode(outcome.result)["content"][0]["text"]
    found = {"tool_id": "sqlite.query", "message": message, "request": REQUEST, "answer": ""}
    if outcome.stored is not None:
        found["answer"] = await gateway.tool_output(outcome.stored.handle, REQUEST)
    return found


async def script(gateway: Gateway) -> dict[str, Any]:
    """Many calls in one turn, where scripts can be confined."""
    try:
        result = await gateway.run_script(SCRIPT)
    except (SandboxError, ScriptError) as error:
        return {"code": SCRIPT, "error": error.as_dict()}
    from toolfold.gateway.scripting import reports

    return {"code": SCRIPT, **reports.as_dict(result)}


def show_large(found: dict[str, Any], output: Output) -> None:
    output.line(
        output.style("5. A result that would flood the context becomes one line, and answers questions", "bold")
    )
    output.line(f"   {output.style('call', 'cyan')} {found['tool_id']}")
    _indented(found["message"], output)
    output.line(f"   {output.style('tool_output', 'cyan')} {found['request']}")
    _indented(found["answer"], output)
    output.line()


def show_script(found: dict[str, Any], output: Output) -> None:
    output.line(output.style("6. Many calls in one turn: a script says in English which tools it needs", "bold"))
    _indented(found["code"].partition("\n\n\nasync")[0].split("\n\n", 1)[1], output)
    if "error" in found and not found.get("ok"):
        error = found["error"]
        output.line(f"   {output.style(error.get('code', 'failed'), 'yellow')}: {error['message']}")
    else:
        for need in found["needs"]:
            output.line(f"   {output.style('resolved', 'cyan')} {need['need']} → {need['tool_id']}")
        calls = sum(one["calls"] for one in found["calls"])
        answer = msgspec.json.encode(found["answer"]).decode()
        output.line(f"   {output.style('ran', 'cyan')} {calls} calls in {found['seconds']:.2f} s, confined: {answer}")
    output.line()


def _indented(text: str, output: Output) -> None:
    for line in text.strip().splitlines():
        output.line(f"      {line}" if line else "")
