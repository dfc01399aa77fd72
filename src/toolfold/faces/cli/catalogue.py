"""`toolfold tree` and `toolfold list`: look around in the catalogue. Both read the store and start no server."""

import argparse
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolfold.faces.cli.parser import split_path
from toolfold.faces.cli.runner import run_with_catalogue
from toolfold.faces.cli.terminal import Output, fit
from toolfold.gateway import Branch, Gateway, Tree
from toolfold.types import Hit, Path, Tool

_ToolsAt = Mapping[Path, Sequence[Tool]]


def tree(arguments: argparse.Namespace, output: Output) -> int:
    path = split_path(arguments.path)

    async def work(gateway: Gateway) -> tuple[Tree, _ToolsAt]:
        found = await gateway.tree(path, depth=arguments.depth)
        return found, _group_by_path(await gateway.tools_below(found.path)) if arguments.tools else {}

    found, tools = run_with_catalogue(arguments, work)
    if output.as_json:
        output.data(
            {"path": found.path, "tools": found.tools, "nodes": [_branch_dict(b, tools) for b in found.branches]}
        )
        return 0
    name = " / ".join(found.path) or "all tools"
    output.line(f"{output.style(name, 'bold')} {output.style(f'({found.tools:,})', 'dim')}")
    room = shutil.get_terminal_size().columns if output.out.isatty() else 10_000
    for line in render_tree(found.branches, tools.get(found.path, ()), tools, output, ""):
        output.line(fit(line, room))
    return 0


def _group_by_path(tools: Sequence[Tool]) -> _ToolsAt:
    places: dict[Path, list[Tool]] = {}
    for tool in tools:
        for path in tool.paths:
            places.setdefault(path, []).append(tool)
    return places


def _branch_dict(branch: Branch, tools: _ToolsAt) -> dict[str, object]:
    node = branch.node
    found: dict[str, object] = {
        "name": node.name,
        "path": node.path,
        "summary": node.summary,
        "tags": node.tags,
        "tools": node.tools,
        "children": node.children,
        "nodes": [_branch_dict(child, tools) for child in branch.children],
    }
    if tools:
        found["tool_ids"] = [tool.tool_id for tool in tools.get(node.path, ())]
    return found


def render_tree(
    branches: Sequence[Branch], own: Sequence[Tool], tools: _ToolsAt, output: Output, indent: str
) -> Iterator[str]:
    """The lines of a tree, nodes before tools."""
    total = len(branches) + len(own)
    for number, branch in enumerate(branches, start=1):
        bend, below = ("└─ ", "   ") if number == total else ("├─ ", "│  ")
        count = output.style(f"({branch.node.tools:,})", "dim")
        summary = output.style(f"  {branch.node.summary}", "dim")
        yield f"{indent}{bend}{output.style(branch.node.name, 'bold')} {count}{summary}"
        yield from render_tree(branch.children, tools.get(branch.node.path, ()), tools, output, indent + below)
    for number, tool in enumerate(own, start=len(branches) + 1):
        bend = "└─ " if number == total else "├─ "
        yield f"{indent}{bend}{output.style(tool.tool_id, 'cyan')}{output.style(f'  {tool.summary}', 'dim')}"


def list_level(arguments: argparse.Namespace, output: Output) -> int:
    path = split_path(arguments.path)

    async def work(gateway: Gateway) -> dict[str, Any]:
        return await gateway.list(
            path, tags=arguments.tag, query=arguments.query, limit=arguments.limit, cursor=arguments.cursor
        )

    page = run_with_catalogue(arguments, work)
    if output.as_json:
        output.data(page)
        return 0
    print_page(page, output)
    return 0


def print_page(page: Mapping[str, Any], output: Output) -> None:
    nodes, tools = page["nodes"], page["tools"]
    rows = [(output.style(f"{node['name']}/", "bold"), "", node["summary"]) for node in nodes]
    rows += [(output.style(tool["tool_id"], "cyan"), " ".join(_risks(tool["tags"])), tool["summary"]) for tool in tools]
    if rows:
        output.table(("name", "risk", "what it does"), rows)
    else:
        output.note("nothing stands here with these tags" if page.get("tags") else "nothing stands here")
    if page["next_cursor"]:
        output.note(f"there is more: --cursor {page['next_cursor']}")


def _risks(tags: Sequence[str]) -> list[str]:
    return [tag.removeprefix("risk:") for tag in tags if tag.startswith("risk:")]


# --- `toolfold search` and `toolfold nodes`: tools or categories for a request in plain words, or that nothing fits


def search(arguments: argparse.Namespace, output: Output) -> int:
    query, path = " ".join(arguments.query), split_path([arguments.within])

    async def work(gateway: Gateway) -> tuple[dict[str, Any], Sequence[Hit]]:
        page = await gateway.search_tool_by_category(query, path, limit=arguments.limit, cursor=arguments.cursor)
        place = tuple(page["category_path"])
        return page, await gateway.scene().finder.hits(query, place, limit=arguments.limit) if arguments.explain else ()

    page, hits = run_with_catalogue(arguments, work)
    reasons = {hit.tool_id: hit for hit in hits}
    if output.as_json:
        output.data({**page, "why": {hit.tool_id: hit.why for hit in hits}} if arguments.explain else page)
        return 0
    rows = [
        (
            _percent(tool["confidence"]),
            output.style(tool["tool_id"], "cyan"),
            " ".join(_risks(tool["tags"])),
            tool["summary"],
        )
        for tool in page["results"]
    ]
    output.table(("fits", "tool", "risk", "what it does"), rows)
    for tool in page["results"]:
        if tool["tool_id"] in reasons:
            output.line(f"{tool['tool_id']}: {_explain(reasons[tool['tool_id']])}")
    if page["next_cursor"]:
        output.note(f"there is more: --cursor {page['next_cursor']}")
    return 0


def _explain(hit: Hit) -> str:
    """Why a tool was found, on one line."""
    why = hit.why
    words = f"words {', '.join(why.words)} ({why.lexical:+.1f})" if why.words else "no word in common"
    part = f', for "{why.part}"' if why.part else ""
    prior = f", chosen before ({why.prior:+.2f})" if why.prior else ""
    return f"{words}; nearness {why.near:.2f} ({why.dense:+.1f}){part}{prior}; score {hit.score:.2f}"


def nodes(arguments: argparse.Namespace, output: Output) -> int:
    async def work(gateway: Gateway) -> dict[str, Any]:
        return await gateway.search_nodes(" ".join(arguments.query), limit=arguments.limit)

    found = run_with_catalogue(arguments, work)
    if output.as_json:
        output.data(found)
        return 0
    rows = [(_percent(node["confidence"]), " / ".join(node["path"]), node["summary"]) for node in found["results"]]
    output.table(("fits", "category", "what it holds"), rows)
    return 0


def _percent(confidence: float) -> str:
    return f"{confidence:.0%}"


# --- `toolfold inspect-output`: what a tool returns, opened where asked. It reads the catalogue and calls nothing.


def inspect_output(arguments: argparse.Namespace, output: Output) -> int:
    async def work(gateway: Gateway) -> dict[str, Any]:
        return await gateway.inspect_tool_output(
            arguments.tool_id, arguments.field_path, max_depth=arguments.depth, max_fields=arguments.fields
        )

    answer = run_with_catalogue(arguments, work)
    if output.as_json:
        output.data(answer)
        return 0
    place = f" at {answer['field_path']}" if answer["field_path"] else ""
    fields = f", {answer['total_child_fields']} fields" if answer["total_child_fields"] else ""
    output.line(f"{output.style(answer['tool_id'], 'bold')}{place}: {answer['node_type']}{fields}")
    for line in answer["flattened_fields"]:
        output.line(f"  {line}")
    if "note" in answer:
        output.note(answer["note"])
    return 0
