"""`toolfold demo`: the whole idea on real local servers, in one minute, with nothing to configure.

It builds a catalogue, walks from the root to a tool, searches, stores a result that is too large and runs a script.
Everything it makes lies in a temporary folder that goes when it ends, unless `--keep` names one.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from toolfold.answers import ToolList
from toolfold.config import Settings
from toolfold.config.acceptance import _Acceptances
from toolfold.demo.data import demo_servers, make_demo_data
from toolfold.errors import NoMatchInCategory, SandboxError, ScriptError
from toolfold.faces.cli.build import Cost, plural, print_failure, print_servers, read_servers
from toolfold.faces.cli.catalogue import fit_text, print_page, render_tree
from toolfold.faces.cli.runner import run_with_gateway
from toolfold.faces.cli.terminal import Output, fit
from toolfold.gateway import Gateway, Tree
from toolfold.types import ServerSpec

QUERIES = ("who wrote this line of code, and when", "which customers ordered most", "order a taxi to the airport")
SQL = "SELECT o.id, c.name, c.email, o.ordered_on, o.status FROM orders o JOIN customers c ON c.id = o.customer_id"
REQUEST = "rows[3]"

SCRIPT = """\
import asyncio
from runtime.discovery import use_tools

use_tools("list the latest commits of the repository")
use_tools("run a SELECT on the database")
from servers.git import log
from servers.sqlite import query


async def main():
    commits = (await log(limit=50)).commits
    sql = "SELECT count(*) FROM orders WHERE status = ?"
    counts = await asyncio.gather(*(query(sql=sql, parameters=[status]) for status in ("open", "paid", "returned")))
    return {"commits": len(commits), "open, paid, returned": [count.rows[0][0] for count in counts]}


asyncio.run(main())
"""


def demo(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.keep:
        folder = Path(arguments.keep).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        return _run(folder, arguments, output)
    with tempfile.TemporaryDirectory(prefix="toolfold-demo-") as temporary:
        return _run(Path(temporary), arguments, output)


def _run(folder: Path, arguments: argparse.Namespace, output: Output) -> int:
    data = make_demo_data(folder / "data")
    for note in data.notes:
        output.note(note)
    servers = list(demo_servers(data))
    if arguments.more:
        from toolfold.demo.public_servers import install_public_servers

        servers += install_public_servers(folder, report=output.note)
    if not output.as_json:
        _print_heading("1. Starting real tool servers", output)
        for spec in servers:
            output.line(fit(f"   {spec.name}: {output.style(output.short_path(spec.shown()), 'dim')}", output.width))
    if arguments.keep:
        _write_configuration(servers, folder / "toolfold.toml")
    settings = Settings(servers=tuple(servers), home=folder / "home")
    report = run_with_gateway(settings, lambda gateway: _walk(gateway, servers, output), fast=True)
    if output.as_json:
        output.data(report)
    else:
        _print_next_steps(folder if arguments.keep else None, output)
    return 3 if report["failed"] else 0


async def _walk(gateway: Gateway, servers: Sequence[ServerSpec], output: Output) -> dict[str, Any]:
    """Builds, then goes from the root to one tool as a model would."""
    result, failed = await read_servers(gateway, None, output)
    cost = await Cost.count(gateway)
    states = await gateway.servers()
    tree = await gateway.tree(depth=2)
    pages = await _descend(gateway)
    searches = [await _search(gateway, query) for query in QUERIES]
    # Each part needs its servers; the demo goes on without those that failed.
    working = {spec.name for spec in servers} - failed.keys()
    large = await _large_result(gateway) if "sqlite" in working else None
    script = await _script(gateway) if {"sqlite", "git"} <= working else None
    if not output.as_json:
        for name, error in failed.items():
            print_failure(name, error, output)
        print_servers(states, output, "   ")
        cost.print(output, "   ")
        output.line()
        _print_walk(tree, pages, result.report.nodes, output)
        _print_searches(searches, output)
        if large is not None:
            _print_large(large, output)
        if script is not None:
            _print_script(script, output)
    return {
        "servers": [{"name": state.name, "tools": state.tools, "status": state.status} for state in states],
        "tools": result.report.tools,
        **cost.as_dict(),
        "nodes": result.report.nodes,
        "pages": pages,
        "searches": searches,
        "large_result": large,
        "script": script,
        "failed": {name: error.as_dict() for name, error in failed.items()},
    }


async def _descend(gateway: Gateway) -> list[ToolList]:
    """The listings from the root down to the first tools, always through the first node."""
    pages = [await gateway.list(limit=20)]
    while pages[-1]["nodes"] and not pages[-1]["tools"]:
        pages.append(await gateway.list(pages[-1]["nodes"][0]["path"], limit=20))
    return pages


async def _search(gateway: Gateway, query: str) -> dict[str, Any]:
    try:
        page = await gateway.search_tool_by_category(query, limit=2)
    except NoMatchInCategory as error:
        return {"query": query, "results": [], "error": error.as_dict()}
    return {"query": query, **page}


async def _large_result(gateway: Gateway) -> dict[str, Any]:
    """A call whose answer does not fit, and one question to what was stored of it."""
    outcome = await gateway.call_tool("sqlite.query", {"sql": SQL, "limit": 1000})
    message = msgspec.json.decode(outcome.raw)["content"][0]["text"]
    answer = ""
    if outcome.stored is not None:
        answer = await gateway.tool_output(outcome.stored.handle, REQUEST)
    return {"tool_id": "sqlite.query", "message": message, "request": REQUEST, "answer": answer}


async def _script(gateway: Gateway) -> dict[str, Any]:
    """Many calls in one turn, where scripts can be confined."""
    try:
        result = await gateway.run_script(SCRIPT)
    except (SandboxError, ScriptError) as error:
        return {"code": SCRIPT, "error": error.as_dict()}
    from toolfold.scripts import report

    return {"code": SCRIPT, **report.as_dict(result)}


def _print_heading(text: str, output: Output) -> None:
    output.prose(output.style(text, "bold"), 3)


def _print_walk(tree: Tree, pages: Sequence[ToolList], nodes: int, output: Output) -> None:
    categories = plural(nodes, "category", "categories")
    _print_heading(f"2. One tree of {plural(tree.tools, 'tool')} in {categories}", output)
    for line in render_tree(tree.branches, (), {}, output, "   "):
        output.line(fit(line, output.width))
    output.line()
    _print_heading("3. A few tools a model sees as they are; to one of many it walks, level by level", output)
    for page in pages:
        path = " / ".join(page["path"]) or "the root"
        output.line(f"   {output.style('list', 'cyan')} {path}")
        # The hint about the next page would name an option that the demo does not have.
        print_page({**page, "next_cursor": None}, output, "   ")
        output.line()


def _print_searches(searches: Sequence[dict[str, Any]], output: Output) -> None:
    _print_heading("4. Or it asks in plain words, and hears it when nothing fits", output)
    for search in searches:
        output.prose(f"   {output.style('search', 'cyan')} {search['query']}", 6)
        for tool in search["results"]:
            shown = (
                f"      {fit_text(tool['confidence']):13} {output.style(tool['tool_id'], 'cyan')}  {tool['summary']}"
            )
            output.line(fit(shown, output.width))
        if "note" in search:
            output.prose(f"      {output.style(output.for_person(search['note']), 'yellow')}", 6)
        if "error" in search:
            output.prose(f"      {output.style(search['error']['code'], 'yellow')}: {search['error']['message']}", 6)
    output.line()


def _print_large(large: dict[str, Any], output: Output) -> None:
    _print_heading("5. A result that would flood the context becomes one line, and answers questions", output)
    output.line(f"   {output.style('call', 'cyan')} {large['tool_id']}")
    _print_indented(large["message"], output)
    output.line(f"   {output.style('tool_output', 'cyan')} {large['request']}")
    _print_indented(large["answer"], output)
    output.line()


def _print_script(script: dict[str, Any], output: Output) -> None:
    _print_heading("6. Many calls in one turn: a script says in English which tools it needs", output)
    # The imports and the needs: what a reader should see of it.
    _print_indented(script["code"].partition("\n\n\nasync")[0].split("\n\n", 1)[1], output)
    if "error" in script and not script.get("ok"):
        error = script["error"]
        output.prose(f"   {output.style(error.get('code', 'failed'), 'yellow')}: {error['message']}", 6)
    else:
        for need in script["needs"]:
            output.prose(f"   {output.style('resolved', 'cyan')} {need['need']} → {need['tool_id']}", 6)
        calls = sum(call["calls"] for call in script["calls"])
        answer = msgspec.json.encode(script["answer"]).decode()
        ran = f"{calls} calls in {script['seconds']:.2f} s, confined: {answer}"
        output.prose(f"   {output.style('ran', 'cyan')} {ran}", 6)
    output.line()


def _print_indented(text: str, output: Output) -> None:
    for line in text.strip().splitlines():
        output.prose(f"      {line}" if line else "", 8)


def _print_next_steps(folder: Path | None, output: Output) -> None:
    _print_heading("Now with your own servers", output)
    output.prose("   toolfold import    take over what Claude, Cursor, VS Code or Codex have", 22)
    output.prose("   toolfold build     connect to all of them; then: tree, search, call", 22)
    output.prose("   toolfold serve     be the one MCP server of your client; --http for many", 22)
    program = Path(sys.argv[0]).absolute()
    if shutil.which("toolfold") is None and program.name == "toolfold":
        output.line(f"   so that `toolfold` is found: export PATH={output.short_path(program.parent)}:$PATH")
    if folder is not None:
        output.line()
        kept = output.short_path(folder)
        output.prose(f"kept: {kept}; look around there: cd {kept}; toolfold tree")


def _write_configuration(servers: Sequence[ServerSpec], file: Path) -> None:
    """The servers as a `toolfold.toml`, for whoever looks at what was kept."""
    # A list or text of JSON is one of TOML, too.
    tables = [
        f"[servers.{spec.name}]\ncommand = {json.dumps(spec.command)}\nargs = {json.dumps(spec.args)}\n"
        for spec in servers
    ]
    text = "\n".join(tables)
    file.write_text(text, encoding="utf-8")
    _Acceptances.of_person().accept_text(file, text)
