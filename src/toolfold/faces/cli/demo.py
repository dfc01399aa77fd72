"""`toolfold demo`: the whole idea on real local servers, in one minute, with nothing to configure.

Everything it makes lies in a temporary folder that goes when it ends, unless `--keep` names one.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolfold.config import Settings
from toolfold.demo.data import demo_servers, make_demo_data
from toolfold.errors import NoMatchInCategory
from toolfold.faces.cli.browsing import drawn, show_page
from toolfold.faces.cli.building import counted, read_servers, show_servers, tell_failure
from toolfold.faces.cli.demo_more import large_result, script, show_large, show_script
from toolfold.faces.cli.output import Output
from toolfold.faces.cli.running import with_gateway
from toolfold.gateway import Gateway, Tree
from toolfold.types import ServerSpec, ServerState

QUESTIONS = ("who wrote this line of code, and when", "which customers ordered most", "order a taxi to the airport")


def demo(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.keep:
        folder = Path(arguments.keep)
        folder.mkdir(parents=True, exist_ok=True)
        return show(folder, arguments, output)
    with tempfile.TemporaryDirectory(prefix="toolfold-demo-") as made:
        return show(Path(made), arguments, output)


def show(folder: Path, arguments: argparse.Namespace, output: Output) -> int:
    data = make_demo_data(folder / "data")
    for note in data.notes:
        output.note(note)
    servers = list(demo_servers(data))
    if arguments.more:
        from toolfold.demo.more import public_servers

        servers += public_servers(folder, tell=output.note)
    say_what_starts(servers, output)
    settings = Settings(servers=tuple(servers), home=folder / "home")

    async def work(gateway: Gateway) -> dict[str, Any]:
        return await walk(gateway, servers, output)

    found = with_gateway(settings, work, fast=True)
    if output.as_json:
        output.data(found)
    else:
        say_what_is_next(arguments, folder, output)
    return 3 if found["failed"] else 0


def say_what_starts(servers: Sequence[ServerSpec], output: Output) -> None:
    if output.as_json:
        return
    output.line(heading("1. Starting real tool servers", output))
    for spec in servers:
        output.line(f"   {spec.name}: {output.style(spec.shown(), 'dim')}")


async def walk(gateway: Gateway, servers: Sequence[ServerSpec], output: Output) -> dict[str, Any]:
    """Builds, then goes from the root to one tool as a model would."""
    made, failed = await read_servers(gateway, None, len(servers), output)
    states = await gateway.servers()
    tree = await gateway.tree(depth=2)
    pages = await descent(gateway)
    answers = [await answer(gateway, query) for query in QUESTIONS]
    large = await large_result(gateway) if "sqlite" not in failed else None
    many = await script(gateway) if not {"sqlite", "git"} & set(failed) else None
    if not output.as_json:
        for name, error in failed.items():
            tell_failure(name, error, output)
        show_walk(states, tree, pages, made.report.nodes, output)
        show_answers(answers, output)
        if large is not None:
            show_large(large, output)
        if many is not None:
            show_script(many, output)
    return {
        "servers": [{"name": state.name, "tools": state.tools, "status": state.status} for state in states],
        "tools": made.report.tools,
        "nodes": made.report.nodes,
        "pages": pages,
        "searches": answers,
        "large_result": large,
        "script": many,
        "failed": {name: error.as_dict() for name, error in failed.items()},
    }


async def answer(gateway: Gateway, query: str) -> dict[str, Any]:
    try:
        found = await gateway.search_tool_by_category(query, limit=2)
    except NoMatchInCategory as error:
        return {"query": query, "results": [], "error": error.as_dict()}
    return {"query": query, "results": found["results"]}


async def descent(gateway: Gateway) -> list[dict[str, Any]]:
    """The listings from the root down to the first tools, always through the first node."""
    pages = [await gateway.list(limit=20)]
    while pages[-1]["nodes"] and not pages[-1]["tools"]:
        pages.append(await gateway.list(pages[-1]["nodes"][0]["path"], limit=20))
    return pages


def show_walk(
    states: Sequence[ServerState], tree: Tree, pages: Sequence[dict[str, Any]], nodes: int, output: Output
) -> None:
    show_servers(states, output)
    output.line()
    output.line(
        heading(f"2. One tree of {counted(tree.tools, 'tool')} in {counted(nodes, 'category', 'categories')}", output)
    )
    for line in drawn(tree.branches, (), {}, output, "   "):
        output.line(line)
    output.line()
    output.line(heading("3. What a model reads on its way to a tool, level by level", output))
    for page in pages:
        path = " / ".join(page["path"]) or "the root"
        output.line(f"   {output.style('list', 'cyan')} {path}")
        show_page({**page, "next_cursor": None}, output)
        output.line()


def show_answers(answers: Sequence[dict[str, Any]], output: Output) -> None:
    output.line(heading("4. Or it asks in plain words, and hears it when nothing fits", output))
    for found in answers:
        output.line(f"   {output.style('search', 'cyan')} {found['query']}")
        for tool in found["results"]:
            output.line(f"      {tool['confidence']:.0%} {output.style(tool['tool_id'], 'cyan')}  {tool['summary']}")
        if not found["results"]:
            output.line(f"      {output.style(found['error']['code'], 'yellow')}: {found['error']['message']}")
    output.line()


def heading(text: str, output: Output) -> str:
    return output.style(text, "bold")


def say_what_is_next(arguments: argparse.Namespace, folder: Path, output: Output) -> None:
    output.line(heading("Now with your own servers", output))
    output.line("   toolfold import    take over what Claude, Cursor, VS Code, Codex or Gemini CLI have configured")
    output.line("   toolfold serve     be the one MCP server of your client; --http for many clients")
    output.line("   toolfold build     connect to all of them and build the catalogue; then: tree, search, call")
    if arguments.keep:
        output.line()
        output.line(f"kept: {folder}; look around with: toolfold tree --home {folder / 'home'}")
