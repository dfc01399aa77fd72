"""`toolfold tree` and `toolfold list`: look around in the catalogue. Both read the store and start no server."""

import argparse
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolfold.faces.cli.output import Output, fit
from toolfold.faces.cli.parser import path_of
from toolfold.faces.cli.running import with_catalogue
from toolfold.gateway import Branch, Gateway, Tree
from toolfold.types import Path, Tool

ToolsAt = Mapping[Path, Sequence[Tool]]


def tree(arguments: argparse.Namespace, output: Output) -> int:
    path = path_of(arguments.path)

    async def work(gateway: Gateway) -> tuple[Tree, ToolsAt]:
        found = await gateway.tree(path, depth=arguments.depth)
        return found, by_place(await gateway.tools_below(found.path)) if arguments.tools else {}

    found, tools = with_catalogue(arguments, work)
    if output.as_json:
        output.data({"path": found.path, "tools": found.tools, "nodes": [as_dict(b, tools) for b in found.branches]})
        return 0
    name = " / ".join(found.path) or "all tools"
    output.line(f"{output.style(name, 'bold')} {output.style(f'({found.tools:,})', 'dim')}")
    room = shutil.get_terminal_size().columns if output.out.isatty() else 10_000
    for line in drawn(found.branches, tools.get(found.path, ()), tools, output, ""):
        output.line(fit(line, room))
    return 0


def by_place(tools: Sequence[Tool]) -> ToolsAt:
    places: dict[Path, list[Tool]] = {}
    for tool in tools:
        for path in tool.paths:
            places.setdefault(path, []).append(tool)
    return places


def as_dict(branch: Branch, tools: ToolsAt) -> dict[str, object]:
    node = branch.node
    found: dict[str, object] = {
        "name": node.name,
        "path": node.path,
        "summary": node.summary,
        "tags": node.tags,
        "tools": node.tools,
        "children": node.children,
        "nodes": [as_dict(child, tools) for child in branch.children],
    }
    if tools:
        found["tool_ids"] = [tool.tool_id for tool in tools.get(node.path, ())]
    return found


def drawn(
    branches: Sequence[Branch], own: Sequence[Tool], tools: ToolsAt, output: Output, indent: str
) -> Iterator[str]:
    """The lines of a tree, nodes before tools."""
    total = len(branches) + len(own)
    for number, branch in enumerate(branches, start=1):
        bend, below = ("└─ ", "   ") if number == total else ("├─ ", "│  ")
        count = output.style(f"({branch.node.tools:,})", "dim")
        summary = output.style(f"  {branch.node.summary}", "dim")
        yield f"{indent}{bend}{output.style(branch.node.name, 'bold')} {count}{summary}"
        yield from drawn(branch.children, tools.get(branch.node.path, ()), tools, output, indent + below)
    for number, tool in enumerate(own, start=len(branches) + 1):
        bend = "└─ " if number == total else "├─ "
        yield f"{indent}{bend}{output.style(tool.tool_id, 'cyan')}{output.style(f'  {tool.summary}', 'dim')}"


def list_level(arguments: argparse.Namespace, output: Output) -> int:
    path = path_of(arguments.path)

    async def work(gateway: Gateway) -> dict[str, Any]:
        return await gateway.list(
            path, tags=arguments.tag, query=arguments.query, limit=arguments.limit, cursor=arguments.cursor
        )

    page = with_catalogue(arguments, work)
    if output.as_json:
        output.data(page)
        return 0
    show_page(page, output)
    return 0


def show_page(page: Mapping[str, Any], output: Output) -> None:
    nodes, tools = page["nodes"], page["tools"]
    rows = [(output.style(f"{node['name']}/", "bold"), "", node["summary"]) for node in nodes]
    rows += [
        (output.style(tool["tool_id"], "cyan"), " ".join(risk_of(tool["tags"])), tool["summary"]) for tool in tools
    ]
    if rows:
        output.table(("name", "risk", "what it does"), rows)
    else:
        output.note("nothing stands here with these tags" if page.get("tags") else "nothing stands here")
    if page["next_cursor"]:
        output.note(f"there is more: --cursor {page['next_cursor']}")


def risk_of(tags: Sequence[str]) -> list[str]:
    return [tag.removeprefix("risk:") for tag in tags if tag.startswith("risk:")]
