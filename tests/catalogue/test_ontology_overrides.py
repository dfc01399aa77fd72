"""A person's `ontology.toml` wins over the automatic placement, and says what is wrong with itself."""

import asyncio
from functools import partial
from pathlib import Path

import pytest
from catalogue_kit import catalogue_in, listing
from msgspec import Raw

from toolfold.catalogue.build import place_by_capability
from toolfold.catalogue.ontology import Ontology, Overrides, build_ontology
from toolfold.errors import ConfigError
from toolfold.types import Tool, ToolDefinition

TOOLS = [
    Tool(
        tool_id=f"{server}.{name}",
        server=server,
        definition=ToolDefinition(name=name, description=text, raw=Raw(b"{}")),
        fingerprint="",
    )
    for server, name, text in (
        ("files", "read_file", "Read a file"),
        ("files", "write_file", "Write a file"),
        ("files", "delete_file", "Delete a file"),
        ("git", "git_status", "Show the git status"),
        ("git", "git_commit", "Commit with git"),
        ("git", "git_log", "Show the git log"),
    )
]


def built(folder: Path, rules: str) -> Ontology:
    file = folder / "ontology.toml"
    file.write_text(rules, encoding="utf-8")
    return build_ontology(TOOLS, overrides=Overrides.load(file))


@pytest.mark.requirement("D-10")
def test_a_category_is_renamed_with_everything_below(tmp_path: Path) -> None:
    ontology = built(tmp_path, '[[rename]]\npath = ["Files"]\nto = "My documents"\nsummary = "What I wrote"\n')
    assert ontology.placements["files.read_file"][0] == ("My documents",)
    node = next(node for node in ontology.nodes if node.path == ("My documents",))
    assert (node.summary, node.tools) == ("What I wrote", 3)
    assert ontology.warnings == ()


@pytest.mark.requirement("D-10")
def test_tools_are_moved_by_glob_and_by_id_and_keep_their_server(tmp_path: Path) -> None:
    ontology = built(tmp_path, '[[move]]\ntools = ["git.git_*"]\nto = ["Work", "History"]\nsummary = "My history"\n')
    assert ontology.placements["git.git_log"] == (("Work", "History"), ("Servers", "git"))
    assert all(node.path != ("Coding",) for node in ontology.nodes)
    assert [(node.tools, node.own_tools) for node in ontology.nodes if node.path[0] == "Work"] == [(3, 0), (3, 3)]


@pytest.mark.requirement("D-10")
def test_a_moved_tool_that_fitted_nowhere_keeps_its_place_under_its_server(tmp_path: Path) -> None:
    odd = [
        Tool(
            tool_id=f"odd.{name}",
            server="odd",
            definition=ToolDefinition(name=name, description="Qux.", raw=Raw(b"{}")),
            fingerprint="",
        )
        for name in ("xss", "yss", "zss")
    ]
    file = tmp_path / "ontology.toml"
    file.write_text('[[move]]\ntools = ["odd.xss"]\nto = ["Productivity"]\n', encoding="utf-8")
    before = build_ontology([*TOOLS, *odd]).placements["odd.xss"]
    assert before == (("Servers", "odd"),)
    after = build_ontology([*TOOLS, *odd], overrides=Overrides.load(file)).placements["odd.xss"]
    assert after == (("Productivity",), *before)


@pytest.mark.requirement("D-10")
def test_a_category_is_moved_below_another(tmp_path: Path) -> None:
    ontology = built(tmp_path, '[[move]]\npath = ["Files"]\nto = ["Coding", "Sources"]\n')
    assert ontology.placements["files.read_file"][0] == ("Coding", "Sources")
    assert next(node for node in ontology.nodes if node.path == ("Coding",)).tools == 6


@pytest.mark.requirement("D-10")
def test_a_tool_and_a_category_get_a_further_place(tmp_path: Path) -> None:
    ontology = built(
        tmp_path,
        '[[add]]\ntools = ["files.read_file"]\nto = ["Favourites"]\n[[add]]\npath = ["Files"]\nto = ["Coding"]\n',
    )
    assert ontology.placements["files.read_file"][0] == ("Files",)
    assert ("Favourites",) in ontology.placements["files.read_file"]
    by_path = {node.path: node for node in ontology.nodes}
    assert by_path["Files",].parents == (("Coding",),)
    assert (by_path["Coding",].children, by_path["Coding",].tools) == (1, 6)


@pytest.mark.requirement("D-10")
def test_hidden_tools_and_categories_are_not_shown(tmp_path: Path) -> None:
    ontology = built(tmp_path, '[[hide]]\ntools = ["files.*"]\n[[hide]]\npath = ["Servers"]\n')
    assert ontology.placements["files.read_file"] == ()
    assert [node.path for node in ontology.nodes] == [("Coding",)]


@pytest.mark.requirement("D-10")
@pytest.mark.parametrize(
    "rules",
    [
        '[[move]]\ntools = ["files.*"]\nto = ["coding"]\nsummary = "Mine"\n',
        '[[move]]\npath = ["files"]\nto = ["coding"]\nsummary = "Mine"\n',
        '[[rename]]\npath = ["FILES"]\nto = "CODING"\nsummary = "Mine"\n',
        '[[add]]\ntools = ["files.*"]\nto = ["coding"]\nsummary = "Mine"\n[[hide]]\npath = ["fileS"]\n',
    ],
)
def test_letter_case_does_not_count_in_a_path(tmp_path: Path, rules: str) -> None:
    ontology = built(tmp_path, rules)
    assert [(node.path, node.tools, node.summary) for node in ontology.nodes if len(node.path) == 1] == [
        (("Coding",), 6, "Mine"),
        (("Servers",), 6, "All tools by the server they come from"),
    ]
    assert ontology.warnings == ()


@pytest.mark.requirement("D-10")
def test_a_category_is_renamed_to_other_letters_and_its_parts_join_those_of_the_same_name(tmp_path: Path) -> None:
    ontology = built(
        tmp_path,
        '[[rename]]\npath = ["servers", "git"]\nto = "GIT"\n[[rename]]\npath = ["coding"]\nto = "CODING"\n'
        '[[move]]\ntools = ["files.*"]\nto = ["Work", "git"]\n[[move]]\npath = ["Servers"]\nto = ["work"]\n',
    )
    assert ontology.placements["git.git_log"] == (("CODING",), ("Work", "git"))
    assert [node.path for node in ontology.nodes] == [("CODING",), ("Work",), ("Work", "files"), ("Work", "git")]


@pytest.mark.requirement("D-10")
def test_a_rule_that_fits_nothing_is_a_warning_with_its_place(tmp_path: Path) -> None:
    ontology = built(tmp_path, '\n[[move]]\ntools = ["nobody.*"]\nto = ["X"]\n[[rename]]\npath = ["Nope"]\nto = "Y"\n')
    assert len(ontology.warnings) == 2
    assert "ontology.toml:5: [[rename]] fits no category: ['Nope']" in ontology.warnings[0]
    assert "ontology.toml:2: [[move]] fits no tool: nobody.*" in ontology.warnings[1]


def test_tools_moved_into_one_category_are_divided_where_they_are_too_many(tmp_path: Path) -> None:
    file = tmp_path / "ontology.toml"
    file.write_text('[[move]]\ntools = ["*"]\nto = ["Mine"]\n', encoding="utf-8")
    tools = [
        Tool(
            tool_id=f"s.{verb}_{thing}_{n}",
            server="s",
            definition=ToolDefinition(name=f"{verb}_{thing}_{n}", raw=Raw(b"{}")),
            fingerprint="",
        )
        for verb in ("get", "create", "delete")
        for thing in ("invoice", "customer", "label")
        for n in range(10)
    ]
    ontology = build_ontology(tools, overrides=Overrides.load(file))
    assert {path[0] for paths in ontology.placements.values() for path in paths} == {"Mine"}
    assert max(node.own_tools + node.children for node in ontology.nodes) <= 50


@pytest.mark.parametrize(
    ("rules", "said", "fix"),
    [
        ('[[rename]]\npath = ["A"]\n', "the new name is missing", 'to = "New name"'),
        ('[[move]]\nto = ["A"]\n', "about tools or about one category", "tools"),
        ('[[move]]\ntools = ["a"]\n', "the path to put it at is missing", "to ="),
        ('[[moves]]\ntools = ["a"]\n', "unknown key", "move"),
        ('[[hide]]\ntool = ["a"]\ntools = ["b"]\n', "unknown key", "tools"),
        ("[[hide]]\ntools = [1]\n", "expected a list of texts", "tools ="),
        ("move = 3\n", "expected tables", "[[move]]"),
        ("[[move\n", "", "syntax"),
    ],
)
def test_a_mistake_names_the_file_the_place_and_the_fix(tmp_path: Path, rules: str, said: str, fix: str) -> None:
    with pytest.raises(ConfigError) as caught:
        built(tmp_path, rules)
    assert "ontology.toml" in caught.value.message
    assert said in caught.value.message
    assert fix in f"{caught.value.message} {caught.value.next_action}"


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        Overrides.load(tmp_path / "none.toml")


@pytest.mark.requirement("D-10")
def test_a_path_in_other_letters_makes_one_category_and_no_news_at_the_next_build(tmp_path: Path) -> None:
    file = tmp_path / "ontology.toml"
    file.write_text(
        '[[move]]\ntools = ["files.*"]\nto = ["coding", "mine"]\n[[rename]]\npath = ["servers"]\nto = "SERVERS"\n'
    )
    listings = [listing("git", "git_log", "git_status"), listing("files", "read_file", "write_file")]

    async def main() -> None:
        async with catalogue_in(tmp_path, *listings, place=place_by_capability) as catalogue:
            pass
        place = partial(place_by_capability, ontology_file=file)
        async with catalogue_in(tmp_path, *listings, place=place) as catalogue:
            assert [branch.node.path for branch in (await catalogue.tree(depth=1)).branches] == [
                ("Coding",),
                ("SERVERS",),
            ]
            generations = await catalogue.generations()
            await catalogue.rebuild(listings)
            assert await catalogue.generations() == generations

    asyncio.run(main())
