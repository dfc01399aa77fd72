"""The ontology as its users see it: where tools stand, what categories say, and that nothing moves without need."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw, json

from benchmarks.ontology import synthetic_set
from benchmarks.recorded import RecordedTools, recorded_servers, retrieval_tools
from toolfold.catalogue.ontology import Ontology, build_ontology
from toolfold.types import Node, ServerInfo, Tool, ToolDefinition

MOST_CHILDREN = 50


def tool(name: str, description: str = "", server: str = "one", parameters: Sequence[str] = ()) -> Tool:
    schema = Raw(json.encode({"type": "object", "properties": {key: {} for key in parameters}}))
    definition = ToolDefinition(name=name, description=description, raw=Raw(b"{}"), input_schema=schema)
    return Tool(tool_id=f"{server}.{name}", server=server, definition=definition, fingerprint="")


def primary(ontology: Ontology, tool_id: str) -> tuple[str, ...]:
    return ontology.placements[tool_id][0]


def check(ontology: Ontology, tools: Sequence[Tool]) -> None:
    """What must hold of every ontology."""
    assert set(ontology.placements) == {one.tool_id for one in tools}
    nodes = {node.path: node for node in ontology.nodes}
    assert [node.path for node in ontology.nodes] == sorted(nodes)
    own: dict[tuple[str, ...], set[str]] = {path: set() for path in nodes}
    below: dict[tuple[str, ...], set[str]] = {path: set() for path in nodes}
    for tool_id, paths in ontology.placements.items():
        assert paths
        assert len(set(paths)) == len(paths)
        for path in paths:
            own[path].add(tool_id)
            for end in range(1, len(path) + 1):
                below[path[:end]].add(tool_id)
    children: dict[tuple[str, ...], set[tuple[str, ...]]] = {path: set() for path in ((), *nodes)}
    for node in ontology.nodes:
        for parent in (node.path[:-1], *node.parents):
            children[parent].add(node.path)
        for parent in node.parents:
            for end in range(1, len(parent) + 1):
                below[parent[:end]] |= below[node.path]
    assert len(children[()]) <= MOST_CHILDREN
    for node in ontology.nodes:
        assert node.own_tools == len(own[node.path])
        assert node.children == len(children[node.path])
        assert node.tools == len(below[node.path]) > 0
        assert node.own_tools + node.children <= MOST_CHILDREN
        assert node.summary
        assert node.tags
        names = [child[-1].casefold() for child in children[node.path] if child[:-1] == node.path]
        assert len(names) == len(set(names))


@pytest.mark.requirement("D-10")
@pytest.mark.parametrize(
    ("made", "top"),
    [
        (tool("read_text_file", "Read the complete contents of a file"), "Files"),
        (tool("execute_sql", "Run a query against the database"), "Databases"),
        (tool("create_pull_request", "Open a pull request"), "Coding"),
        (tool("get_stock_price", "The latest quote of a ticker"), "Finance"),
        (tool("browser_click", "Click an element on the page"), "Browser"),
        (tool("send_email", "Send an email"), "Communication"),
        (tool("get_forecast", "Weather forecast for a place"), "Travel & weather"),
        (tool("list_pods", "List Kubernetes pods in a namespace"), "Cloud"),
        (tool("t1", "查询指定城市的天气预报"), "Travel & weather"),
        (tool("x", parameters=("sql_query", "database")), "Databases"),
    ],
)
def test_a_tool_is_placed_by_what_it_can_do(made: Tool, top: str) -> None:
    assert primary(build_ontology([made]), made.tool_id)[0] == top


@pytest.mark.requirement("D-10")
def test_a_tool_that_says_little_is_placed_by_its_server() -> None:
    tools = [tool("search", server="a"), tool("get_item", server="b"), tool("run", server="c")]
    infos = {
        "a": ServerInfo(name="arxiv", instructions="Find academic papers and preprints"),
        "b": ServerInfo(instructions="Your shop: products, orders and payments"),
    }
    ontology = build_ontology(tools, infos=infos)
    assert primary(ontology, "a.search")[0] == "Research"
    assert primary(ontology, "b.get_item")[0] == "Commerce"
    assert ontology.placements["c.run"]


@pytest.mark.requirement("D-10")
def test_a_tool_stands_under_its_server_too_and_under_a_second_capability() -> None:
    tools = [
        tool("read_file", "Read a file", "files"),
        tool("write_file", "Write a file", "files"),
        tool("delete_file", "Delete a file", "files"),
        tool("list_emails", "List email messages", "mail"),
        tool("send_email", "Send an email", "mail"),
        tool("read_email", "Read an email message from the inbox", "mail"),
        tool("email_pdf", "Send a PDF by email", "mail"),
    ]
    paths = build_ontology(tools).placements["mail.email_pdf"]
    assert {path[0] for path in paths} == {"Communication", "Files", "Servers"}
    assert ("Servers", "mail") in paths
    assert paths[-1][0] == "Servers"


@pytest.mark.requirement("D-10")
def test_a_node_may_stand_under_several_parents(shared_data: Path) -> None:
    recorded = recorded_servers(shared_data / "servers")
    issues = next(
        node for node in build_ontology(recorded.tools, infos=recorded.infos).nodes if node.path == ("Coding", "Issues")
    )
    assert issues.parents == (("Productivity",),)


def test_three_small_servers_make_a_shallow_tree() -> None:
    tools = [tool(f"git_{verb}", f"Git {verb}", "git") for verb in ("status", "diff", "commit", "log", "branch")]
    tools += [tool(f"{verb}_file", f"{verb} a file", "files") for verb in ("read", "write", "move", "delete")]
    tools += [tool(f"{verb}_table", f"{verb} a database table", "db") for verb in ("create", "describe", "list")]
    ontology = build_ontology(tools)
    check(ontology, tools)
    assert [node.path for node in ontology.nodes if node.path[0] != "Servers"] == [
        ("Coding",),
        ("Databases",),
        ("Files",),
    ]
    assert [node.name for node in ontology.nodes if len(node.path) == 2] == ["db", "files", "git"]


def test_one_server_needs_no_view_by_server() -> None:
    assert all(node.path[0] != "Servers" for node in build_ontology([tool("read_file", "Read a file")]).nodes)


def test_no_tools_make_no_tree() -> None:
    assert build_ontology([]) == Ontology((), {}, ())


def test_what_fits_nowhere_is_gathered_and_divided() -> None:
    tools = [tool(f"zq{number}", server=f"q{number}x") for number in range(120)]
    ontology = build_ontology(tools)
    check(ontology, tools)
    assert {primary(ontology, one.tool_id)[0] for one in tools} == {"Servers"}
    alone = [tool(f"zq{number}", server="q") for number in range(120)]
    assert {primary(build_ontology(alone), one.tool_id)[0] for one in alone} == {"Other"}


@pytest.mark.requirement("D-10")
def test_the_order_of_tools_does_not_matter() -> None:
    recorded = synthetic_set()
    shuffled = list(recorded.tools)
    random.Random(3).shuffle(shuffled)
    assert build_ontology(shuffled, infos=recorded.infos) == build_ontology(recorded.tools, infos=recorded.infos)


def test_a_thousand_tools_with_the_same_words_still_fit_fifty_a_listing() -> None:
    tools = [tool("get_weather", "Current weather", f"server{number}") for number in range(1000)]
    check(build_ontology(tools), tools)


def test_servers_whose_names_differ_in_letter_case_only_stay_apart() -> None:
    tools = [tool(f"read_{n}_file", "Read a file", server) for server in ("Git", "git") for n in range(3)]
    names = [node.name for node in build_ontology(tools).nodes if node.path[0] == "Servers" and len(node.path) == 2]
    assert names == ["Git", "git (2)"]


WORDS = ("get", "list", "create", "issue", "file", "price", "weather", "zzz", "文件", "🚀", "sql", "run", "user")
words = st.sampled_from(WORDS)
names = st.lists(words, min_size=1, max_size=4).map("_".join)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(names, names, st.sampled_from("abc")), max_size=150))
def test_any_catalogue_gives_a_sound_tree(entries: list[tuple[str, str, str]]) -> None:
    tools = [tool(f"{name}{n}", text.replace("_", " "), server) for n, (name, text, server) in enumerate(entries)]
    check(build_ontology(tools), tools)


@given(st.text(max_size=60), st.text(max_size=120), st.binary(max_size=40))
@settings(max_examples=60, deadline=None)
def test_no_text_and_no_schema_breaks_the_placing(name: str, text: str, schema: bytes) -> None:
    definition = ToolDefinition(name=name, description=text, raw=Raw(b"{}"), input_schema=Raw(schema))
    one = Tool(tool_id="s.t", server="s", definition=definition, fingerprint="")
    check(build_ontology([one]), [one])


def _kept(recorded: RecordedTools, seed: int) -> float:
    before = build_ontology(recorded.tools, infos=recorded.infos).placements
    choice = random.Random(seed)
    kept = [one for one in recorded.tools if choice.random() >= 0.05]
    after = build_ontology(kept, infos=recorded.infos).placements
    return sum(after[one.tool_id][0] == before[one.tool_id][0] for one in kept) / len(kept)


@pytest.mark.requirement("D-10")
def test_paths_stay_when_a_few_tools_go() -> None:
    assert _kept(synthetic_set(), seed=1) >= 0.95


@pytest.mark.requirement("D-10")
def test_paths_of_real_servers_stay_when_a_few_tools_go(shared_data: Path) -> None:
    recorded = recorded_servers(shared_data / "servers")
    assert sum(_kept(recorded, seed) for seed in (1, 2, 3, 4)) / 4 >= 0.98


@pytest.mark.requirement("D-10")
def test_real_servers_make_a_sound_tree(shared_data: Path) -> None:
    recorded = recorded_servers(shared_data / "servers")
    ontology = build_ontology(recorded.tools, infos=recorded.infos)
    check(ontology, recorded.tools)
    assert _share_other(ontology) < 0.02
    by_path: dict[tuple[str, ...], Node] = {node.path: node for node in ontology.nodes}
    assert by_path["Cloud",].tools > by_path["Crypto",].tools


@pytest.mark.requirement("D-10")
def test_fifteen_thousand_tools_of_two_thousand_servers_make_a_sound_tree(shared_data: Path) -> None:
    recorded = retrieval_tools(shared_data / "retrieval" / "mcpflow_toucan")
    ontology = build_ontology(recorded.tools, infos=recorded.infos)
    check(ontology, recorded.tools)
    assert _share_other(ontology) < 0.02


def _share_other(ontology: Ontology) -> float:
    return sum(paths[0][0] == "Other" for paths in ontology.placements.values()) / len(ontology.placements)
