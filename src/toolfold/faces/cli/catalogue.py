"""The commands that read the catalogue: `tree`, `list`, `nodes`, `search`, `expand`, `inspect-output`.

All of them read the store; none starts a server or makes a file.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from toolfold.answers import ToolPage
from toolfold.faces.cli.runner import run_with_catalogue
from toolfold.faces.cli.terminal import Output, fit
from toolfold.gateway import Branch, Gateway, Tree
from toolfold.text import as_path
from toolfold.types import Hit, Path, Tool

_ToolsAt = Mapping[Path, Sequence[Tool]]


def tree(arguments: argparse.Namespace, output: Output) -> None:
    async def work(gateway: Gateway) -> tuple[Tree, _ToolsAt]:
        root = await gateway.tree(as_path("/".join(arguments.path)), depth=arguments.depth)
        return root, _group_by_path(await gateway.tools_below(root.path)) if arguments.tools else {}

    root, tools = run_with_catalogue(arguments, work)
    if output.as_json:
        nodes = [_branch_dict(branch, tools) for branch in root.branches]
        output.data({"path": root.path, "tools": root.tools, "nodes": nodes})
        return
    name = " / ".join(root.path) or "all tools"
    output.line(f"{output.style(name, 'bold')} {output.style(f'({root.tools:,})', 'dim')}")
    for line in render_tree(root.branches, tools.get(root.path, ()), tools, output, ""):
        output.line(fit(line, output.width))


def _group_by_path(tools: Sequence[Tool]) -> _ToolsAt:
    groups: dict[Path, list[Tool]] = {}
    for tool in tools:
        for path in tool.paths:
            groups.setdefault(path, []).append(tool)
    return groups


def _branch_dict(branch: Branch, tools: _ToolsAt) -> dict[str, object]:
    node = branch.node
    keys = ("name", "path", "summary", "tags", "tools", "children")
    data: dict[str, object] = {key: getattr(node, key) for key in keys}
    data["nodes"] = [_branch_dict(child, tools) for child in branch.children]
    if tools:
        data["tool_ids"] = [tool.tool_id for tool in tools.get(node.path, ())]
    return data


def render_tree(
    branches: Sequence[Branch], own: Sequence[Tool], tools: _ToolsAt, output: Output, indent: str
) -> Iterator[str]:
    """The lines of a tree, nodes before the node's `own` tools."""
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


def list_level(arguments: argparse.Namespace, output: Output) -> None:
    page = run_with_catalogue(
        arguments,
        lambda gateway: gateway.list(
            as_path("/".join(arguments.path)),
            tags=arguments.tag,
            query=arguments.query,
            limit=arguments.limit,
            cursor=arguments.cursor,
        ),
    )
    if output.as_json:
        output.data(page)
    else:
        print_page(page, output)


def print_page(page: Mapping[str, Any], output: Output) -> None:
    rows = [(output.style(f"{node['name']}/", "bold"), "", node["summary"]) for node in page["nodes"]]
    rows += [(_tool_ids(tool, output), _risks(tool), tool["summary"]) for tool in page["tools"]]
    output.table(("name", "risk", "what it does"), rows)
    if not rows:
        output.note("nothing stands here")
    _note_more(page, output)


def _note_more(page: Mapping[str, Any], output: Output) -> None:
    if "note" in page:
        output.note(page["note"])
    if page.get("next_cursor"):
        output.note(f"there is more: --cursor {page['next_cursor']}")


def _tool_ids(tool: Mapping[str, Any], output: Output) -> str:
    """The id of a tool, and those of the same tool at other servers."""
    return " = ".join(output.style(tool_id, "cyan") for tool_id in (tool["tool_id"], *tool.get("same_as", ())))


def _risks(tool: Mapping[str, Any]) -> str:
    return " ".join(tag.removeprefix("risk:") for tag in tool["tags"] if tag.startswith("risk:"))


def nodes(arguments: argparse.Namespace, output: Output) -> None:
    query = " ".join(arguments.query)
    page = run_with_catalogue(arguments, lambda gateway: gateway.search_nodes(query, limit=arguments.limit))
    if output.as_json:
        output.data(page)
        return
    rows = [(f"{node['confidence']:.0%}", " / ".join(node["path"]), node["summary"]) for node in page["results"]]
    output.table(("fits", "category", "what it holds"), rows)
    _note_more(page, output)


def search(arguments: argparse.Namespace, output: Output) -> None:
    query, path = " ".join(arguments.query), as_path(arguments.within)

    async def work(gateway: Gateway) -> tuple[ToolPage, Sequence[Hit]]:
        page = await gateway.search_tool_by_category(query, path, limit=arguments.limit, cursor=arguments.cursor)
        if not arguments.explain:
            return page, ()
        # The page holds what a model reads, which has no scores; its path is spelt as the catalogue spells it.
        category = tuple(page["category_path"])
        return page, await gateway.search.hits(gateway.view(), query, category, limit=arguments.limit)

    page, hits = run_with_catalogue(arguments, work)
    if output.as_json:
        output.data({**page, "why": {hit.tool_id: hit.why for hit in hits}} if arguments.explain else page)
        return
    rows = [
        (f"{tool['confidence']:.0%}", _tool_ids(tool, output), _risks(tool), tool["summary"])
        for tool in page["results"]
    ]
    output.table(("fits", "tool", "risk", "what it does"), rows)
    by_id = {hit.tool_id: hit for hit in hits}
    for tool in page["results"]:
        if tool["tool_id"] in by_id:
            output.line(f"{tool['tool_id']}: {_explain(by_id[tool['tool_id']])}")
    _note_more(page, output)


def _explain(hit: Hit) -> str:
    """Why a tool matches, on one line."""
    why = hit.why
    words = f"words {', '.join(why.words)} ({why.lexical:+.1f})" if why.words else "no word in common"
    part = f', for "{why.part}"' if why.part else ""
    prior = f", chosen before ({why.prior:+.2f})" if why.prior else ""
    return f"{words}; nearness {why.near:.2f} ({why.dense:+.1f}){part}{prior}; score {hit.score:.2f}"


def expand(arguments: argparse.Namespace, output: Output) -> None:
    tool = run_with_catalogue(arguments, lambda gateway: gateway.expand_tool(arguments.tool_id))
    if output.as_json:
        output.data(tool)
        return
    output.line(f"{output.style(tool['tool_id'], 'bold')}  version {tool['version']}  {' / '.join(tool['path'])}")
    output.line(tool["description"] or tool["summary"])
    for name, schema in (("args_schema", tool["args_schema"]), ("result_schema", tool["result_schema"])):
        if schema is not None:
            text = msgspec.json.format(bytes(schema), indent=2).decode()
            output.line(f"{output.style(name, 'cyan')}: {text}")
    output.line(f"{output.style('output_fields', 'cyan')}:")
    for line in tool["output_fields"]:
        output.line(f"  {line}")
    _note_warnings(tool, output)


def _note_warnings(answer: Mapping[str, Any], output: Output) -> None:
    for line in answer.get("contradicted", ()):
        output.note(f"results do not fit the declared schema: {line}")
    if "may_be_old" in answer:
        output.note(answer["may_be_old"])


def inspect_output(arguments: argparse.Namespace, output: Output) -> None:
    answer = run_with_catalogue(
        arguments,
        lambda gateway: gateway.inspect_tool_output(
            arguments.tool_id, arguments.field_path, max_depth=arguments.depth, max_fields=arguments.fields
        ),
    )
    if output.as_json:
        output.data(answer)
        return
    place = f" at {answer['field_path']}" if answer["field_path"] else ""
    fields = f", {answer['total_child_fields']} fields" if answer["total_child_fields"] else ""
    output.line(f"{output.style(answer['tool_id'], 'bold')}{place}: {answer['node_type']}{fields}")
    for line in answer["flattened_fields"]:
        output.line(f"  {line}")
    _note_warnings(answer, output)
    if "note" in answer:
        output.note(answer["note"])
