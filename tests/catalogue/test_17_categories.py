"""Categories that mislead are worse than none: where the fit is poor, a tool stands under its server alone."""

import json
from pathlib import Path
from typing import Any

from msgspec import Raw

from toolfold.catalogue.ontology import build_ontology
from toolfold.catalogue.ontology.facets import all_facets
from toolfold.types import Node, ServerInfo, Tool, ToolDefinition
from toolfold.types import Path as NodePath


def tools(server: str, *given: tuple[str, str]) -> list[Tool]:
    return [made(server, {"name": name, "description": text}) for name, text in given]


def made(server: str, entry: dict[str, Any]) -> Tool:
    schema = Raw(json.dumps(entry.get("inputSchema", {"type": "object"})).encode())
    definition = ToolDefinition(
        name=entry["name"], description=entry.get("description", ""), input_schema=schema, raw=Raw(b"{}")
    )
    return Tool(tool_id=f"{server}.{entry['name']}", server=server, definition=definition, fingerprint="")


def places(found: list[Tool], **said: str) -> tuple[dict[str, tuple[NodePath, ...]], tuple[Node, ...]]:
    infos = {server: ServerInfo(instructions=text) for server, text in said.items()}
    ontology = build_ontology(found, infos=infos)
    return ontology.placements, ontology.nodes


LIBRARY = tools(
    "stacks",
    ("list_loans", "List loans, of one reader or of all"),
    ("get_loan", "Get one loan by its number."),
    ("renew_loan", "Prolong a loan so that the reader may keep it longer."),
    ("fines_of_reader", "How much a reader owes in late fees, in euros."),
    ("delete_reader", "Delete a reader with all that belongs to it."),
)
BANK = tools(
    "money",
    ("list_loans", "List the loans of a bank account, with their interest"),
    ("get_balance", "The balance of a bank account"),
    ("list_transactions", "The transactions of an account in a month, by payee"),
    ("set_budget", "Sets the monthly budget of a category of expenses"),
)


def test_17_one_word_is_no_category_where_nothing_else_of_its_server_speaks_for_it() -> None:
    placed, nodes = places(LIBRARY + BANK)
    assert {paths for tool, paths in placed.items() if tool.startswith("stacks.")} == {(("Servers", "stacks"),)}
    assert placed["money.list_loans"][0][0] == "Finance"
    about = {node.path: node.summary for node in nodes}
    assert about["Servers", "stacks"] == "Tools of this server"
    assert about["Servers", "money"] == "Finance"


def test_17_a_server_names_only_categories_that_its_tools_are_shown_in() -> None:
    recorded = tools(
        "disk",
        *((f"read_{kind}_file", f"Reads a {kind} file") for kind in ("text", "small", "large", "old")),
        *((f"write_{kind}_file", f"Writes a {kind} file") for kind in ("text", "small")),
        ("move_file", "Moves or renames a file"),
        ("delete_file", "Deletes a file from a folder"),
    )
    placed, nodes = places(recorded + BANK)
    about = {node.path: node.summary for node in nodes}
    shown = {path[-1] for tool in recorded for path in placed[tool.tool_id] if path[0] != "Servers"}
    assert set(about["Servers", "disk"].replace(" and ", ", ").split(", ")) <= shown


MIXTURE = tools(
    "samples",
    ("toggle-subscriber-updates", "Toggles simulated updates for subscribers"),
    ("get-weather-sample", "A forecast that was made up"),
    ("get-sum", "Returns the sum of two numbers"),
    ("get-links", "Returns up to ten links"),
    ("get-tiny-image", "Returns a tiny logo image"),
    ("get-structured-content", "Returns what it says"),
)
GIT = tools(
    "git",
    ("git_log", "Shows the commit logs"),
    ("git_diff", "Shows differences between branches or commits"),
    ("git_commit", "Records changes to the repository"),
    ("git_branch", "List Git branches"),
)


def test_17_a_tool_that_fits_nowhere_stands_under_its_server_alone() -> None:
    found, nodes = places([*MIXTURE, *GIT])
    for name in ("get-links", "get-structured-content", "toggle-subscriber-updates"):
        assert found[f"samples.{name}"] == (("Servers", "samples"),)
    assert {found[f"git.{name}"][0] for name in ("git_log", "git_diff", "git_commit", "git_branch")} == {("Coding",)}
    assert not [node for node in nodes if node.path[0] in {"Sales", "Other"}]


def test_17_a_mixture_makes_no_category_for_one_tool_that_may_be_meant_otherwise() -> None:
    found, nodes = places([*MIXTURE, *GIT])
    assert found["samples.get-tiny-image"] == (("Servers", "samples"),)
    assert ("Media",) not in {node.path for node in nodes}
    alone, _ = places([*tools("pictures", ("get-tiny-image", "Returns a tiny logo image")), *GIT])
    assert alone["pictures.get-tiny-image"][0] == ("Media",)


def test_17_a_tool_that_says_little_follows_a_server_that_says_what_it_is_for() -> None:
    given = tools("shopdb", ("ping", ""), ("list_tables", "Lists the tables"), ("run_sql", "Runs SQL"), ("x", ""))
    found, _ = places([*given, *GIT], shopdb="A PostgreSQL database: run SQL queries, list tables and schemas")
    assert found["shopdb.x"][0] == ("Databases",)
    assert found["shopdb.ping"][0] == ("Databases",)


def test_17_a_tool_of_a_part_too_small_to_stand_goes_to_another_only_where_it_fits() -> None:
    """`write_file` once stood under "Read & search", since nothing else wrote."""
    readers = [(f"read_file_{n}", "Read the contents of a file") for n in range(14)]
    found, _ = places([*tools("disk", *readers, ("write_file", "Write a file, overwriting it")), *GIT])
    assert found["disk.write_file"][0] == ("Files",)
    assert found["disk.read_file_1"][0][:2] == ("Files", "Read & search")


def test_17_a_word_that_names_a_thing_is_no_action() -> None:
    said = tools("a", ("git_log", "Shows the commit logs"), ("batch_get_files", "Return many files"))
    assert [facets.action for facets in all_facets(said)] == ["Find", "Read"]


def test_17_the_reference_server_is_not_sold(shared_data: Path) -> None:
    record = json.loads((shared_data / "servers" / "everything.json").read_text())
    infos = {"everything": ServerInfo(instructions=record["initialize"]["instructions"])}
    found = [made("everything", entry) for entry in record["tools"]]
    for beside in ([], GIT):
        ontology = build_ontology([*found, *beside], infos=infos)
        assert not [paths for paths in ontology.placements.values() for path in paths if path[0] == "Sales"]
