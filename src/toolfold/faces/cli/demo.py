"""`toolfold demo`: the five ideas on real local servers, in one minute, with nothing to configure.

It finds a tool and calls it, folds an output schema, stores a result that is too large, runs a script for a chain of
calls and looks into live Python; each with the tokens that a model reads, beside those of the full way. Everything it
makes lies in a temporary folder that goes when it ends, unless `--keep` names one. With `--serve` the console follows,
with the traces of the walk in it.
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
from msgspec import Struct
from msgspec.structs import replace

from toolfold import tokens
from toolfold.config import Settings
from toolfold.config.acceptance import _Acceptances
from toolfold.demo.data import demo_servers, make_demo_data
from toolfold.errors import ConfigError, LiveError, NoMatchInCategory, SandboxError, ScriptError, ToolfoldError
from toolfold.faces.cli.build import Cost, plural, print_failure, print_servers, read_servers
from toolfold.faces.cli.catalogue import fit_text, render_tree
from toolfold.faces.cli.console import _serve_console
from toolfold.faces.cli.runner import load_settings, run_with_gateway
from toolfold.faces.cli.terminal import Output, fit
from toolfold.faces.mcp_server.profiles import client_tokens
from toolfold.gateway import Gateway, Tree
from toolfold.types import LOCAL, ServerSpec

QUERIES = ("who wrote this line of code, and when", "which customers ordered most", "order a taxi to the airport")
FOLDED = "git.show"
SQL = "SELECT o.id, c.name, c.email, o.ordered_on, o.status FROM orders o JOIN customers c ON c.id = o.customer_id"
REQUEST = "rows[3]"
COUNT = "Counter(row[4] for row in rows)"

SCRIPT = """\
import asyncio
from collections import Counter

log, show = use_tools(
    "list the latest commits of the repository",
    "show one commit with its patch",
)


async def main():
    commits = (await log(limit=50)).commits
    every = await asyncio.gather(*(show(revision=each.sha) for each in commits))
    lines = Counter()
    for one in every:
        for file in one.change.files:
            lines[one.commit.author] += file.added or 0
    return dict(lines.most_common())


asyncio.run(main())
"""


class _Idea(Struct, frozen=True):
    """What one idea came to: what a model reads without it and with it, in tokens; `None` where none can be counted."""

    idea: str
    read: str
    full_tokens: int | None = None
    read_tokens: int | None = None


def _count(*parts: Any) -> int | None:
    """The tokens of texts, and of answers as a model reads them."""
    texts = [part if isinstance(part, str) else msgspec.json.encode(part).decode() for part in parts]
    try:
        return sum(map(tokens.count, texts))
    except ConfigError:  # there are no token tables for this Python
        return None


# Under this session the console shows the walk.
_WALK = replace(LOCAL, session="demo")


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
        _print_heading("Real tool servers, started for this", output)
        for spec in servers:
            output.line(fit(f"   {spec.name}: {output.style(output.short_path(spec.shown()), 'dim')}", output.width))
    # The console follows the file, and writes into it what is hidden there.
    arguments.config, arguments.home = str(folder / "toolfold.toml"), str(folder / "home")
    _write_configuration(servers, Path(arguments.config), accept=bool(arguments.keep))

    async def work(gateway: Gateway) -> int:
        report = await _walk(gateway, servers, output)
        if output.as_json:
            output.data(report)
        else:
            _print_next_steps(folder if arguments.keep else None, output, serves=arguments.serve)
        if arguments.serve:
            await _serve_console(gateway, arguments, output)
        return 3 if report["failed"] else 0

    settings = Settings(servers=tuple(servers), home=Path(arguments.home))
    return run_with_gateway(load_settings(arguments) if arguments.serve else settings, work, fast=True)


async def _walk(gateway: Gateway, servers: Sequence[ServerSpec], output: Output) -> dict[str, Any]:
    """The five ideas, one after the other, as a model would use them. Each needs its servers; the walk goes on without
    those that failed."""
    result, failed = await read_servers(gateway, None, output)
    cost = await Cost.count(gateway)
    states = await gateway.servers()
    if not output.as_json:
        for name, error in failed.items():
            print_failure(name, error, output)
        print_servers(states, output, "   ")
    working = {spec.name for spec in servers} - failed.keys()
    searches, ideas = await _catalogue(gateway, cost, result.report.nodes, output)
    large: dict[str, Any] | None = None
    script: dict[str, Any] | None = None
    if "git" in working:
        ideas.append(await _schema(gateway, output))
    if "sqlite" in working:
        large, idea = await _large_result(gateway, output)
        ideas.append(idea)
    if "git" in working:
        script, idea = await _script(gateway, output)
        ideas.append(idea)
    if large is not None:
        ideas.append(await _live(gateway, large, output))
    _print_ideas(ideas, output)
    return {
        "servers": [{"name": state.name, "tools": state.tools, "status": state.status} for state in states],
        "tools": result.report.tools,
        **cost.as_dict(),
        "nodes": result.report.nodes,
        "searches": searches,
        "large_result": large,
        "script": script,
        "ideas": ideas,
        "failed": {name: error.as_dict() for name, error in failed.items()},
    }


async def _catalogue(
    gateway: Gateway, cost: Cost, nodes: int, output: Output
) -> tuple[list[dict[str, Any]], list[_Idea]]:
    """Searches, the first of them up to the call of what it found."""
    tree = await gateway.tree(depth=2, caller=_WALK)
    searches = [await _search(gateway, query) for query in QUERIES]
    read = [searches[0], await _call_first(gateway, searches[0])]
    if not output.as_json:
        _print_catalogue(tree, nodes, searches, cost, output)
    asked = _count(*read)
    surface = None if asked is None else await client_tokens(gateway, "discovery")
    total = None if asked is None or surface is None else surface + asked
    told = f"the operations, a search{', a tool' if read[1] else ''}; not all {tree.tools}"
    return searches, [_Idea("catalogue", told, cost.definition_tokens, total)]


async def _call_first(gateway: Gateway, search: dict[str, Any]) -> dict[str, Any]:
    """Expands the first hit and calls it, and returns what a model read of both."""
    if not search["results"] or search["results"][0]["tool_id"] != "git.blame":
        return {}
    expanded = await gateway.expand_tool("git.blame", caller=_WALK)
    outcome = await gateway.call_tool("git.blame", {"path": "tides/core.py", "start": 7, "lines": 1}, caller=_WALK)
    return {"expanded": expanded, "result": outcome.data}


async def _search(gateway: Gateway, query: str) -> dict[str, Any]:
    try:
        page = await gateway.search_tool_by_category(query, limit=2, caller=_WALK)
    except NoMatchInCategory as error:
        return {"query": query, "results": [], "error": error.as_dict()}
    return {"query": query, **page}


async def _schema(gateway: Gateway, output: Output) -> _Idea:
    """The output schema of a tool, folded."""
    tool = await gateway.tool(FOLDED, _WALK)
    whole = msgspec.json.decode(tool.definition.raw)["outputSchema"]
    answer = await gateway.inspect_tool_output(FOLDED, max_fields=30, caller=_WALK)
    if not output.as_json:
        _print_heading("2. An output schema becomes a list of fields; larger ones fold, branch by branch", output)
        _print_step("inspect_tool_output", FOLDED, output)
        _print_indented("\n".join(answer["flattened_fields"]), output)
        output.line()
    return _Idea("output schema", f"the fields of {FOLDED}, not their schema", _count(whole), _count(answer))


async def _large_result(gateway: Gateway, output: Output) -> tuple[dict[str, Any], _Idea]:
    """A call whose answer does not fit, and one question to what was stored of it."""
    outcome = await gateway.call_tool("sqlite.query", {"sql": SQL, "limit": 1000}, caller=_WALK)
    message = msgspec.json.decode(outcome.raw)["content"][0]["text"]
    answer, handle, full = "", "", None
    if outcome.stored is not None:
        handle, full = outcome.stored.handle, outcome.stored.tokens
        answer = await gateway.tool_output(handle, REQUEST, caller=_WALK)
    if not output.as_json:
        _print_heading("3. A result that would flood the context becomes a handle that answers questions", output)
        _print_step("call", "sqlite.query", output)
        _print_indented(message, output)
        _print_step("tool_output", REQUEST, output)
        _print_indented(answer, output)
        output.line()
    idea = _Idea("large result", "a message and an answer, not 300 rows", full, _count(message, answer))
    report = {"tool_id": "sqlite.query", "message": message, "handle": handle, "request": REQUEST, "answer": answer}
    return report, idea


async def _script(gateway: Gateway, output: Output) -> tuple[dict[str, Any], _Idea]:
    """Many calls in one turn, where scripts can be confined; and the same calls one by one."""
    from toolfold.scripts import report

    if not output.as_json:
        _print_heading("4. Many calls in one turn: a script says in English which tools it needs", output)
        for line in SCRIPT.partition("\n\n")[2].replace("\n\n\n", "\n\n").splitlines():
            output.line(fit(f"      {line}".rstrip(), output.width))
    try:
        result = await gateway.run_script(SCRIPT, caller=_WALK)
    except (SandboxError, ScriptError) as error:
        _print_problem(error, output)
        return {"code": SCRIPT, "error": error.as_dict()}, _Idea("script", "not run here")
    texts = await _one_by_one(gateway)
    if not output.as_json:
        for need in result.needs:
            output.prose(f"   {output.style('resolved', 'cyan')} {need.query} → {need.tool_id}", 6)
        answer = msgspec.json.encode(result.answer).decode() if result.error is None else result.error.message
        ran = f"{len(result.calls)} calls in {result.seconds:.2f} s, confined: {answer}"
        output.prose(f"   {output.style('ran', 'cyan')} {ran}", 6)
        output.line()
    idea = _Idea(
        "script",
        f"a script and its answer, not {len(texts)} results",
        _count(*texts),
        _count(SCRIPT, report.as_text(result)),
    )
    return {"code": SCRIPT, **report.as_dict(result)}, idea


async def _one_by_one(gateway: Gateway) -> list[str]:
    """What a model would read of the script's calls, had it made them itself. They are not part of the walk, so they
    are not recorded."""
    silent = replace(gateway.settings, audit=replace(gateway.settings.audit, enabled=False))
    async with Gateway(silent) as alone:
        log = await alone.call_tool("git.log", {"limit": 50}, whole=True)
        shas = [commit["sha"] for commit in log.data["commits"]]
        shown = [await alone.call_tool("git.show", {"revision": sha}, whole=True) for sha in shas]
    return [one.text for one in (log, *shown)]


async def _live(gateway: Gateway, large: dict[str, Any], output: Output) -> _Idea:
    """The stored result in a Python session, looked into."""
    if not output.as_json:
        _print_heading("5. Live Python is looked into, not printed: here the stored rows, counted", output)
    try:
        async with gateway.live(caller=_WALK) as session:
            code = f"from collections import Counter\nrows = open_output({large['handle']!r}).json()['rows']"
            await session.execute(code)
            answers = [await session.list_globals(), await session.eval_expr(COUNT)]
            whole = await session.eval_expr("print(rows)")
    except (SandboxError, LiveError) as error:
        _print_problem(error, output)
        return _Idea("live Python", "not run here")
    if not output.as_json:
        for name, answer in zip(("list_globals", f"eval_expr {COUNT}"), answers, strict=True):
            _print_step(*name.partition(" ")[::2], output)
            _print_indented(_told(answer), output)
        output.line()
    told = "two looks at a variable, not the variable"
    return _Idea("live Python", told, _count(whole["result"]["stdout"]) if whole["ok"] else None, _count(*answers))


def _told(answer: dict[str, Any]) -> str:
    """An answer of a live session in a line."""
    if not answer["ok"]:
        return str(answer["error"]["message"])
    result = answer["result"]
    if "globals" in result:
        return ", ".join(f"{one['name']}: {one['type_name']}" for one in result["globals"])
    return str(result["value_repr"])


def _print_heading(text: str, output: Output) -> None:
    output.prose(output.style(text, "bold"), 3)


def _print_step(operation: str, about: str, output: Output) -> None:
    output.prose(f"   {output.style(operation, 'cyan')} {about}".rstrip(), 6)


def _print_problem(error: ToolfoldError, output: Output) -> None:
    if not output.as_json:
        output.prose(f"   {output.style(error.code or 'failed', 'yellow')}: {error.message}", 6)
        output.line()


def _print_catalogue(tree: Tree, nodes: int, searches: Sequence[dict[str, Any]], cost: Cost, output: Output) -> None:
    cost.print(output, "   ")
    output.line()
    categories = plural(nodes, "category", "categories")
    _print_heading(f"1. One tree of {plural(tree.tools, 'tool')} in {categories}, and a search that can say no", output)
    for line in render_tree(tree.branches, (), {}, output, "   "):
        output.line(fit(line, output.width))
    for search in searches:
        _print_step("search", search["query"], output)
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


def _print_ideas(ideas: Sequence[_Idea], output: Output) -> None:
    """What a model reads, the full way and folded."""
    if output.as_json or all(idea.full_tokens is None for idea in ideas):
        return
    _print_heading("What a model read of it, in tokens", output)
    headers = ("idea", "full way", "read", "what was read")
    rows = [
        (
            idea.idea,
            "" if idea.full_tokens is None else f"{idea.full_tokens:>8,}",
            "" if idea.read_tokens is None else output.style(f"{idea.read_tokens:>5,}", "green"),
            idea.read,
        )
        for idea in ideas
    ]
    output.table(headers, rows, "   ")
    output.line()


def _print_indented(text: str, output: Output) -> None:
    for line in text.strip().splitlines():
        output.prose(f"      {line}" if line else "", 8)


def _print_next_steps(folder: Path | None, output: Output, *, serves: bool) -> None:
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
    output.line()
    output.prose(
        "This walk, in the console:"
        if serves
        else "To see this walk in your browser, step by step: toolfold demo --serve"
    )


def _write_configuration(servers: Sequence[ServerSpec], file: Path, *, accept: bool) -> None:
    """The servers as a `toolfold.toml`, for the console, and for whoever looks at what was kept."""
    # A list or text of JSON is one of TOML, too.
    tables = [
        f"[servers.{spec.name}]\ncommand = {json.dumps(spec.command)}\nargs = {json.dumps(spec.args)}\n"
        for spec in servers
    ]
    text = "\n".join(tables)
    file.write_text(text, encoding="utf-8")
    if accept:
        _Acceptances.of_person().accept_text(file, text)
