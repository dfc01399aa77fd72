"""The demo servers on real data, seen by the official client in both eras."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it ships no types; only `validate` is used
import pytest
from mcp import Client, StdioServerParameters

from toolfold.demo.data import _DemoData, demo_servers, make_demo_data
from toolfold.types import ServerSpec

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
ERAS = ["legacy", "2026-07-28", "auto"]

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="the git program is not installed")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> _DemoData:
    return make_demo_data(tmp_path_factory.mktemp("demo"))


def server(data: _DemoData, name: str) -> ServerSpec:
    return {spec.name: spec for spec in demo_servers(data)}[name]


def play(spec: ServerSpec, scene: Callable[[Client], Awaitable[Any]], mode: str = "auto") -> Any:
    """Runs a scene with the official client, connected to a demo server."""

    async def main() -> Any:
        parameters = StdioServerParameters(command=spec.command, args=list(spec.args))
        async with asyncio.timeout(60), Client(parameters, mode=mode) as client:
            return await scene(client)

    return asyncio.run(main())


def ask(spec: ServerSpec, calls: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """Structured results of calls, each checked against its tool's output schema; for errors the text."""

    async def scene(client: Client) -> list[Any]:
        schemas = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
        results: list[Any] = []
        for name, arguments in calls:
            result = await client.call_tool(name, arguments)
            if result.is_error:
                results.append(result.content[0].text)  # type: ignore[union-attr]  # these servers answer with text
                continue
            jsonschema.validate(result.structured_content, schemas[name])
            results.append(result.structured_content)
        return results

    answers: list[Any] = play(spec, scene)
    return answers


@needs_git
@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(
    ("name", "tools"),
    [
        ("git", ["log", "show", "diff", "status", "branches", "blame", "search"]),
        ("files", ["list", "read", "search", "stat", "tree", "write"]),
        ("sqlite", ["list_tables", "describe", "query", "execute"]),
    ],
)
def test_the_official_client_lists_the_tools_in_each_era(
    data: _DemoData, name: str, tools: list[str], mode: str
) -> None:
    async def scene(client: Client) -> Any:
        listed = await client.list_tools()
        if mode == "legacy":
            with pytest.warns(match="ping is removed"):
                await client.send_ping()
        return listed.tools, client.protocol_version, client.server_info

    listed, version, info = play(server(data, name), scene, mode)
    assert [tool.name for tool in listed] == tools
    assert version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
    # A client that takes the version as given asks for nothing but the tools.
    assert (info.name if info is not None else None) == (None if mode == "2026-07-28" else f"demo-{name}")
    for tool in listed:
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        assert tool.description
        assert tool.title
        assert tool.output_schema is not None
        assert tool.output_schema["type"] == "object"
        assert tool.annotations.read_only_hint is (tool.name not in {"write", "execute"})
        assert all("description" in part for part in tool.input_schema["properties"].values())


@needs_git
def test_git_reads_a_real_repository(data: _DemoData) -> None:
    log, more, by_author, show, diff, branches, blame, found, nothing, status = ask(
        server(data, "git"),
        [
            ("log", {"limit": 3}),
            ("log", {"path": "tides/core.py", "limit": 50}),
            ("log", {"author": "aylin", "limit": 50}),
            ("show", {"revision": "HEAD~3"}),
            ("diff", {"base": "HEAD~1", "target": "HEAD"}),
            ("branches", {}),
            ("blame", {"path": "tides/core.py", "start": 7, "lines": 2}),
            ("search", {"pattern": "period = timedelta"}),
            ("search", {"pattern": "no such text anywhere"}),
            ("status", {}),
        ],
    )
    assert log["commits"][0]["subject"] == "Explain the accuracy in the readme"
    assert (len(log["commits"]), log["more"]) == (3, True)
    assert (len(more["commits"]), more["more"]) == (4, False)
    assert {commit["author"] for commit in by_author["commits"]} == {"Aylin Kaya"}
    assert "14 seconds short" in show["message"]
    assert show["change"]["files"] == [{"path": "tides/core.py", "added": 2, "deleted": 2}]
    assert "+PERIOD = timedelta(hours=12, minutes=25, seconds=14)" in show["change"]["patch"]
    assert diff["files"][0]["path"] == "README.md"
    assert {(branch["name"], branch["current"]) for branch in branches["result"]} == {
        ("main", True),
        ("json-output", False),
    }
    assert [line["author"] for line in blame["result"]] == ["Mara Brandt", "Mara Brandt"]
    assert [(match["path"], match["line"]) for match in found["matches"]] == [("tides/core.py", 7)]
    assert nothing == {"matches": [], "truncated": False}
    assert (status["branch"], status["clean"]) == ("main", True)


@needs_git
def test_git_sees_what_changed_in_the_working_tree(tmp_path: Path) -> None:
    data = make_demo_data(tmp_path)
    assert data.repository is not None
    (data.repository / "README.md").write_text("changed\n")
    (data.repository / "new file.txt").write_text("new\n")
    status, diff = ask(server(data, "git"), [("status", {}), ("diff", {"path": "README.md"})])
    assert {(entry["path"], entry["worktree"]) for entry in status["entries"]} == {
        ("README.md", "M"),
        ("new file.txt", "?"),
    }
    assert "+changed" in diff["patch"]


@needs_git
def test_git_takes_no_argument_for_an_option_and_runs_no_program_of_the_repository(tmp_path: Path) -> None:
    data = make_demo_data(tmp_path)
    assert data.repository is not None
    trap = tmp_path / "trap"
    with (data.repository / ".git" / "config").open("a") as config:
        config.write(
            f'[diff "x"]\n\ttextconv = touch {trap}\n\tcommand = touch {trap}\n[core]\n\tfsmonitor = touch {trap}\n'
            f"\tpager = touch {trap}\n"
        )
    (data.repository / ".gitattributes").write_text("*.md diff=x\n")
    (data.repository / "README.md").write_text("changed\n")
    spec = server(data, "git")
    output = tmp_path / "output"
    *good, first, second, third = ask(
        spec,
        [
            ("diff", {}),
            ("show", {"revision": "HEAD"}),
            ("status", {}),
            ("log", {}),
            ("show", {"revision": f"--output={output}"}),
            ("show", {"revision": "no-such-branch"}),
            ("log", {"path": ":(exclude)README.md"}),
        ],
    )
    assert all(isinstance(result, dict) for result in good)
    assert "is no revision" in first
    assert "no-such-branch" in second
    assert third == {"commits": [], "more": False}
    assert not trap.exists()
    assert not output.exists()


def test_files_are_listed_read_searched_drawn_and_written(tmp_path: Path) -> None:
    data = make_demo_data(tmp_path)
    listed, text, part, found, stat, tree, written, refused, replaced = ask(
        server(data, "files"),
        [
            ("list", {}),
            ("read", {"path": "notes/suppliers.md"}),
            ("read", {"path": "logs/till.log", "start": 3, "lines": 2}),
            ("search", {"text": "todo", "pattern": "*.md"}),
            ("stat", {"path": "prices.csv"}),
            ("tree", {"depth": 1}),
            ("write", {"path": "new/folder/a.txt", "text": "grün"}),
            ("write", {"path": "new/folder/a.txt", "text": "other"}),
            ("write", {"path": "new/folder/a.txt", "text": "new", "overwrite": True}),
        ],
    )
    assert [entry["name"] for entry in listed["entries"]] == ["README.md", "config", "logs", "notes", "prices.csv"]
    assert text["text"].startswith("# Suppliers")
    assert (part["first_line"], part["lines"], part["total_lines"], part["truncated"]) == (3, 2, 336, True)
    assert len(found["matches"]) == 2
    assert (stat["kind"], stat["size"]) == ("file", (data.files / "prices.csv").stat().st_size)
    assert "├── README.md\n" in tree["text"]
    assert written == {"path": "new/folder/a.txt", "bytes": 5, "created": True}
    assert "set overwrite to replace it" in refused
    assert replaced["created"] is False
    assert (data.files / "new/folder/a.txt").read_text() == "new"


def test_files_never_leave_their_folder(tmp_path: Path) -> None:
    data = make_demo_data(tmp_path)
    secret = tmp_path / "secret.txt"
    secret.write_text("secret words")
    (data.files / "link.txt").symlink_to(secret)
    (data.files / "out").symlink_to(tmp_path)
    (data.files / "inside.txt").symlink_to(data.files / "README.md")
    os.mkfifo(data.files / "pipe")
    *refused, found, tree, inside, pipe, written = ask(
        server(data, "files"),
        [
            ("read", {"path": "../secret.txt"}),
            ("read", {"path": str(secret)}),
            ("read", {"path": "link.txt"}),
            ("read", {"path": "out/secret.txt"}),
            ("list", {"path": "out"}),
            ("tree", {"path": ".."}),
            ("stat", {"path": "out/secret.txt"}),
            ("search", {"text": "secret", "path": "out"}),
            ("write", {"path": "../new.txt", "text": "x"}),
            ("write", {"path": "out/new.txt", "text": "x"}),
            ("write", {"path": "link.txt", "text": "x", "overwrite": True}),
            ("search", {"text": "secret"}),
            ("tree", {}),
            ("read", {"path": "inside.txt"}),
            ("read", {"path": "pipe"}),
            ("write", {"path": "pipe", "text": "x", "overwrite": True}),
        ],
    )
    assert all("is outside the served folder" in text for text in refused), refused
    assert found["matches"] == []
    assert "secret.txt" not in tree["text"]
    assert inside["text"].startswith("# Harbour Books")
    assert "is no file" in pipe
    assert "is no file" in written
    assert secret.read_text() == "secret words"
    assert not (tmp_path / "new.txt").exists()


def test_sqlite_describes_queries_and_changes(tmp_path: Path) -> None:
    data = make_demo_data(tmp_path)
    tables, table, missing, rows, cut, changed, after = ask(
        server(data, "sqlite"),
        [
            ("list_tables", {}),
            ("describe", {"table": "order_items"}),
            ("describe", {"table": "nothing"}),
            ("query", {"sql": "SELECT count(*) AS n FROM orders WHERE status = ?", "parameters": ["open"]}),
            ("query", {"sql": "SELECT * FROM orders", "limit": 2}),
            ("execute", {"sql": "UPDATE orders SET status = 'paid' WHERE status = 'open'"}),
            ("query", {"sql": "SELECT count(*) AS n FROM orders WHERE status = 'open'"}),
        ],
    )
    assert {(table["name"], table["rows"]) for table in tables["result"]} >= {("orders", 300), ("revenue", None)}
    assert {key["table"] for key in table["foreign_keys"]} == {"orders", "products"}
    assert "there are: customers, order_items, orders, products" in missing
    assert rows["columns"] == ["n"]
    assert (len(cut["rows"]), cut["truncated"]) == (2, True)
    assert changed["rows_changed"] == rows["rows"][0][0] > 0
    assert after["rows"] == [[0]]


def test_sqlite_reads_only_and_reaches_no_other_file(tmp_path: Path) -> None:
    data = make_demo_data(tmp_path)
    other = tmp_path / "other.db"
    results = ask(
        server(data, "sqlite"),
        [
            ("query", {"sql": "DELETE FROM orders"}),
            ("query", {"sql": f"ATTACH '{other}' AS other"}),
            ("execute", {"sql": f"ATTACH '{other}' AS other"}),
            ("execute", {"sql": f"VACUUM INTO '{other}'"}),
            ("query", {"sql": "PRAGMA writable_schema = 1"}),
            ("query", {"sql": "SELECT 1; DROP TABLE orders"}),
            ("query", {"sql": "SELECT load_extension('/tmp/x.so')"}),
            ("query", {"sql": "SELEC"}),
        ],
    )
    assert all(isinstance(result, str) for result in results), results
    assert not other.exists()
    (count,) = ask(server(data, "sqlite"), [("query", {"sql": "SELECT count(*) FROM orders"})])
    assert count["rows"] == [[300]]


def test_a_query_without_end_is_stopped(tmp_path: Path) -> None:
    from toolfold.demo import sqlite as demo_sqlite

    data = make_demo_data(tmp_path)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo_sqlite, "TIMEOUT_S", 0.05)
        with pytest.raises(TimeoutError, match="ask for less"):
            demo_sqlite._SqliteTools(data.database).query(endless)


def test_wrong_arguments_are_told_by_name(data: _DemoData) -> None:
    wrong, limit = ask(server(data, "files"), [("read", {"paths": 1}), ("list", {"limit": 0})])
    assert "`path` is missing" in wrong
    assert "`paths` is no argument" in wrong
    assert "`limit`: expected `int` >= 1" in limit


@pytest.mark.parametrize("name", ["git", "files", "sqlite"])
def test_a_server_on_something_that_is_not_there_says_how_it_is_used(name: str, tmp_path: Path) -> None:
    import sys

    done = subprocess.run(
        [sys.executable, "-m", f"toolfold.demo.{name}", str(tmp_path / "nothing")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert f"Usage: python -m toolfold.demo.{name}" in done.stderr


def test_a_server_starts_without_what_it_does_not_need(data: _DemoData) -> None:
    spec = server(data, "files")
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2024-11-05"}},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list", "_meta": META}},
    ]
    done = subprocess.run(
        [spec.command, "-X", "importtime", *spec.args],
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert answers[1]["result"]["protocolVersion"] == "2024-11-05"
    assert answers[2]["result"]["structuredContent"]["entries"]
    loaded = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert not loaded & {"httpx2", "uvloop", "sqlite3", "pydantic", "mcp", "rich"}
