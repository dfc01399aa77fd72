"""The commands that read the catalogue: `tree`, `list`, `nodes`, `search`, `expand`, `inspect-output`.

All of them read the store; none starts a server or makes a file.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from toolfold.answers import ExpandedTool, ToolPage
from toolfold.faces.cli.build import _count_leaves, plural, run_with_catalogue
from toolfold.faces.cli.terminal import Output, fit, one_line
from toolfold.faces.surface.instructions import _name_sign_ins
from toolfold.gateway import Branch, Gateway, Tree
from toolfold.schema_walk import Document, Node
from toolfold.text import as_path
from toolfold.types import LOCAL, Hit, Path, Tool
from toolfold.types import Node as Category

# On one page.
_MOST_SHOWN = 50

_ToolsAt = Mapping[Path, Sequence[Tool]]
# Ids of tools that stand beside the parts of a category, and how many are named.
_Named = Mapping[Path, Sequence[str]]
_NAMED = 8

# From which probability on a word is used. docs/search.md says how often each was right.
_FITS = ((0.6, "strong"), (0.3, "fair"), (0.1, "possible"))


def tree(arguments: argparse.Namespace, output: Output) -> None:
    async def work(gateway: Gateway) -> tuple[Tree, _ToolsAt, _Named, str]:
        root = await gateway.tree(as_path("/".join(arguments.path)), depth=arguments.depth)
        title = " / ".join(root.path) or await _title(gateway, root)
        if arguments.tools:
            return root, _group_by_path(await gateway.tools_below(root.path)), {}, title
        async with gateway.view().catalogue.snapshot() as snapshot:
            # What was asked for is shown with all that stands right in it.
            ids = await snapshot.tool_ids_at(root.path) if root.path and not output.as_json else ()
            own = {root.path: await snapshot.tools(ids=ids)} if ids else {}
            beside = [node.path for node in _divided(root.branches) if node.own_tools]
            return root, own, {path: await snapshot.tool_ids_at(path, limit=_NAMED) for path in beside}, title

    root, tools, named, name = run_with_catalogue(arguments, work)
    if output.as_json:
        nodes = [_branch_dict(branch, tools) for branch in root.branches]
        old = {"may_be_old": root.may_be_old} if root.may_be_old else {}
        output.data({"path": root.path, "tools": root.tools, "nodes": nodes, **old})
        return
    output.line(f"{output.style(name, 'bold')} {output.style(f'({root.tools:,})', 'dim')}")
    for line in render_tree(root.branches, tools.get(root.path, ()), tools, output, "", named=named):
        output.line(fit(line, output.width))
    if cut := sum(map(_cut, root.branches)):
        deeper = f"--depth {arguments.depth + 1}, or toolfold tree CATEGORY"
        output.note(f"{plural(cut, 'category', 'categories')} below these, marked +: {deeper}")
    if root.may_be_old:
        output.note(root.may_be_old)


async def _title(gateway: Gateway, root: Tree) -> str:
    _, others = await _count_leaves(gateway, root.tools)
    return "all tools, prompts and resources" if others else "all tools"


def _divided(branches: Sequence[Branch]) -> Iterator[Category]:
    """The categories whose parts are shown."""
    for branch in branches:
        if branch.children:
            yield branch.node
            yield from _divided(branch.children)


def _cut(branch: Branch) -> int:
    """How many categories right below the ones that are shown are not."""
    return sum(map(_cut, branch.children)) if branch.children else branch.node.children


def _group_by_path(tools: Sequence[Tool]) -> _ToolsAt:
    groups: dict[Path, list[Tool]] = {}
    for tool in tools:
        for path in tool.paths:
            groups.setdefault(path, []).append(tool)
    return groups


def _branch_dict(branch: Branch, tools: _ToolsAt) -> dict[str, object]:
    node = branch.node
    keys = ("name", "path", "summary", "tags", "tools", "own_tools", "children")
    data: dict[str, object] = {key: getattr(node, key) for key in keys}
    data["nodes"] = [_branch_dict(child, tools) for child in branch.children]
    if tools:
        data["tool_ids"] = [tool.tool_id for tool in tools.get(node.path, ())]
    return data


def render_tree(
    branches: Sequence[Branch],
    own: Sequence[Tool],
    tools: _ToolsAt,
    output: Output,
    indent: str,
    *,
    named: _Named | None = None,
) -> Iterator[str]:
    """The lines of a tree, nodes before the node's `own` tools; those that are only `named` stand on one line."""
    total = len(branches) + len(own)
    for number, branch in enumerate(branches, start=1):
        bend, below = ("└─ ", "   ") if number == total else ("├─ ", "│  ")
        cut = f", +{_cut(branch)}" if not branch.children and branch.node.children else ""
        count = output.style(f"({branch.node.tools:,}{cut})", "dim")
        summary = output.style(f"  {branch.node.summary}", "dim")
        yield f"{indent}{bend}{output.style(branch.node.name, 'bold')} {count}{summary}"
        yield from render_tree(
            branch.children, tools.get(branch.node.path, ()), tools, output, indent + below, named=named
        )
        if named and (ids := named.get(branch.node.path)):
            more = ", …" if branch.node.own_tools > len(ids) else ""
            beside = f"and {plural(branch.node.own_tools, 'tool')} beside these: {', '.join(ids)}{more}"
            yield f"{indent}{below}   {output.style(beside, 'dim')}"
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


def print_page(page: Mapping[str, Any], output: Output, indent: str = "") -> None:
    rows = [(output.style(f"{node['name']}/", "bold"), "", node["summary"]) for node in page["nodes"]]
    rows += [(_tool_ids(tool, output), _risks(tool), tool["summary"]) for tool in page["tools"]]
    output.table(("name", "risk", "what it does"), rows, indent)
    if not rows:
        output.note("nothing stands here")
    _note_more(page, output)


def _note_more(page: Mapping[str, Any], output: Output) -> None:
    _note_warnings(page, output)
    if "note" in page:
        output.note(output.for_person(page["note"]))
    if page.get("next_cursor"):
        shown = sum(len(page.get(key, ())) for key in ("nodes", "tools", "results"))
        wider = output.err.isatty() and shown < _MOST_SHOWN
        how = f"--limit {min(2 * shown, _MOST_SHOWN)}" if wider else f"--cursor {page['next_cursor']}"
        output.note(f"there is more: {how}")


def fit_text(confidence: float) -> str:
    """How likely a hit fits, as a word and a figure."""
    if confidence >= 1:
        return "by name"
    word = next((word for least, word in _FITS if confidence >= least), "unlikely")
    return f"{word} {confidence:.0%}"


def _tool_ids(tool: Mapping[str, Any], output: Output) -> str:
    """The id of a tool, and those of the same tool at other servers."""
    return " = ".join(output.style(tool_id, "cyan") for tool_id in (tool["tool_id"], *tool.get("same_as", ())))


def _risks(tool: Mapping[str, Any]) -> str:
    return ", ".join(tag.removeprefix("risk:") for tag in tool["tags"] if tag.startswith("risk:"))


def nodes(arguments: argparse.Namespace, output: Output) -> None:
    query = " ".join(arguments.query)
    page = run_with_catalogue(arguments, lambda gateway: gateway.search_nodes(query, limit=arguments.limit))
    if output.as_json:
        output.data(page)
        return
    rows = [(fit_text(node["confidence"]), " / ".join(node["path"]), node["summary"]) for node in page["results"]]
    output.table(("fits", "category", "what it holds"), rows)
    _note_more(page, output)


def search(arguments: argparse.Namespace, output: Output) -> None:
    query, path = " ".join(arguments.query), as_path(arguments.within)

    async def work(gateway: Gateway) -> tuple[ToolPage, Sequence[Hit]]:
        async with _name_sign_ins(gateway, LOCAL):
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
        (fit_text(tool["confidence"]), _tool_ids(tool, output), _risks(tool), tool["summary"])
        for tool in page["results"]
    ]
    output.table(("fits", "tool", "risk", "what it does"), rows)
    by_id = {hit.tool_id: hit for hit in hits}
    for tool in page["results"]:
        if tool["tool_id"] in by_id:
            output.prose(f"{tool['tool_id']}: {_explain(by_id[tool['tool_id']])}")
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
    output.prose(
        f"{output.style(tool['tool_id'], 'bold')}  version {tool['version']}  {one_line(' / '.join(tool['path']))}"
    )
    output.prose(tool["description"] or tool["summary"], 0)
    _print_leaf(tool, output)
    arguments_node = Document(msgspec.json.decode(tool["args_schema"])).root
    if output.out.isatty():
        _print_arguments(arguments_node, output)
        output.line(output.style("returns", "bold"))
    else:
        for name in ("args_schema", "result_schema"):
            if tool[name] is not None:
                output.line(f"{name}: {msgspec.json.format(bytes(tool[name]), indent=2).decode()}")
        output.line("output_fields:")
    _print_fields(tool["output_fields"], tool["tool_id"], output)
    _note_warnings(tool, output)
    if output.out.isatty():
        words = [f"{name}=…" for name in arguments_node.names if name in arguments_node.required]
        output.labelled("next:", "cyan", " ".join(["toolfold call", tool["tool_id"], *words]))
        output.note("the schemas as they are: --json")


def _print_leaf(tool: ExpandedTool, output: Output) -> None:
    """What it is, where it is no tool."""
    if "kind" in tool:
        output.prose(f"{tool['kind']} {one_line(tool['address'])}", 0)
    if named := tool.get("tools_named"):
        output.prose(
            "names " + one_line(", ".join(one.get("tool_id", f"{one['name']} (not here)") for one in named)), 0
        )


def _print_arguments(node: Node, output: Output) -> None:
    """The arguments for a person: each with its type, and what the server says of it."""
    steps = {step.name: step for step in node.steps if step.kind == "key"}
    rows = []
    for name in node.names:
        child = node.child(steps[name])
        if child is not None:
            must = "required" if name in node.required else ""
            text = child.keyword("description")
            rows.append((output.style(name, "cyan"), child.label, must, text if isinstance(text, str) else ""))
    output.table(("argument", "type", "", "what it is"), rows)


def _print_fields(lines: Sequence[str], tool_id: str, output: Output) -> None:
    for line in lines:
        output.prose(f"  {output.for_person(line).replace('inspect-output ID', f'inspect-output {tool_id}')}", 4)


def _note_warnings(answer: Mapping[str, Any], output: Output) -> None:
    for line in answer.get("contradicted", ()):
        output.note(f"results do not fit the declared schema: {line}")
    if "may_be_old" in answer:
        output.note(output.for_person(answer["may_be_old"]))


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
    _print_fields(answer["flattened_fields"], answer["tool_id"], output)
    _note_warnings(answer, output)
    if "note" in answer:
        output.note(output.for_person(answer["note"]))
