"""Looking around: tree, list and its cursors, errors that name what is really there."""

import asyncio
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pytest
from catalogue_kit import Shelves, by_server_and_verb, catalogue_in, definition, listing, store_in
from hypothesis import given, settings
from hypothesis import strategies as st

from toolfold.catalogue.catalogue import Branch, Catalogue, Page
from toolfold.catalogue.cursor import Position, decode_cursor, encode_cursor
from toolfold.catalogue.suggestions import _edit_distance, closest_words
from toolfold.errors import BadCursor, NotBuilt, ToolNotFound, UnknownPath
from toolfold.policy.view import CatalogueView, VisibleCatalogue
from toolfold.storage.base import Snapshot
from toolfold.storage.sqlite import SqliteStore
from toolfold.types import Node, ServerInfo, Tool

pytestmark = pytest.mark.usefixtures("engine")  # on both engines


def names(branches: Collection[Branch]) -> dict[str, object]:
    return {branch.node.name: names(branch.children) for branch in branches}


async def pages(catalogue: Catalogue, path: tuple[str, ...], *, limit: int, tags: Sequence[str] = ()) -> list[Page]:
    found = [await catalogue.list(path, limit=limit, tags=tags)]
    while (cursor := found[-1].next_cursor) is not None:
        found.append(await catalogue.list(path, limit=limit, tags=tags, cursor=cursor))
    return found


def test_the_tree_shows_nodes_down_to_the_depth_asked_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with catalogue_in(
            tmp_path, listing("git", "get_log"), listing("shop", "get_order", "add_order")
        ) as catalogue:
            tree = await catalogue.tree()
            assert names(tree.branches) == {"By server": {"git": {}, "shop": {}}, "By verb": {"Add": {}, "Get": {}}}
            assert (tree.path, tree.tools, tree.generation) == ((), 3, 1)
            assert names((await catalogue.tree(depth=1)).branches) == {"By server": {}, "By verb": {}}
            part = await catalogue.tree(("BY VERB",))
            assert (part.path, part.tools, names(part.branches)) == (("By verb",), 3, {"Add": {}, "Get": {}})

    asyncio.run(main())


def test_a_node_with_two_parents_stands_under_both_in_tree_and_list(tmp_path: Path) -> None:
    def place(tools: Sequence[Tool], infos: Mapping[str, ServerInfo]) -> Shelves:
        nodes = (
            Node(path=("A",), summary="a", parents=(("A", "S"),)),  # a loop, as a careless file of overrides may make
            Node(path=("A", "S"), summary="s", parents=(("B",),)),
            Node(path=("B",), summary="b"),
        )
        return Shelves(nodes, {tool.tool_id: (("A", "S"),) for tool in tools})

    async def main() -> None:
        async with catalogue_in(tmp_path, listing("x", "t"), place=place) as catalogue:
            assert names((await catalogue.tree()).branches) == {"A": {"S": {}}, "B": {"S": {"A": {}}}}
            assert [node.path for node in (await catalogue.list(("b",))).nodes] == [("A", "S")]

    asyncio.run(main())


def test_list_gives_nodes_then_tools_ten_at_a_time_and_fifty_at_most(tmp_path: Path) -> None:
    tools = [f"get_{i:03}" for i in range(120)]

    async def main() -> None:
        async with catalogue_in(tmp_path, listing("big", *tools)) as catalogue:
            root = await catalogue.list()
            assert [node.name for node in root.nodes] == ["By server", "By verb"]
            assert (root.tools, root.next_cursor) == ((), None)
            place = ("By server", "big")
            assert len((await catalogue.list(place)).tools) == 10
            assert len((await catalogue.list(place, limit=1000)).tools) == 50
            assert len((await catalogue.list(place, limit=-3)).tools) == 1
            for limit in (7, 40, 50):
                found = await pages(catalogue, place, limit=limit)
                assert [tool.name for page in found for tool in page.tools] == tools
                assert len(found) == -(-120 // limit)

    asyncio.run(main())


def test_a_page_may_hold_the_last_nodes_and_the_first_tools(tmp_path: Path) -> None:
    def place(tools: Sequence[Tool], infos: Mapping[str, ServerInfo]) -> Shelves:
        nodes = tuple(Node(path=(name,), summary=name) for name in ("a", "B", "c"))
        return Shelves(nodes, {tool.tool_id: ((),) for tool in tools})

    async def main() -> None:
        async with catalogue_in(tmp_path, listing("s", "x", "y"), place=place) as catalogue:
            found = await pages(catalogue, (), limit=2)
            assert [[node.name for node in page.nodes] for page in found] == [["a", "B"], ["c"], []]
            assert [[tool.name for tool in page.tools] for page in found] == [[], ["x"], ["y"]]
            exact = await pages(catalogue, (), limit=5)
            assert len(exact) == 1
            only_nodes_fit = await catalogue.list((), limit=3)
            assert only_nodes_fit.next_cursor is not None

    asyncio.run(main())


def test_tags_must_all_be_there_and_lead_down_to_the_tools_that_have_them(tmp_path: Path) -> None:
    async def main() -> None:
        reads = definition("get_log", annotations={"readOnlyHint": True, "openWorldHint": True})
        other = definition("get_all", annotations={"readOnlyHint": True})
        async with catalogue_in(tmp_path, listing("git", reads, other), listing("shop", "add_order")) as catalogue:
            both = ["risk:read-only", "RISK:open-world"]
            assert [tool.name for tool in (await catalogue.list(("By verb", "Get"), tags=both)).tools] == ["get_log"]
            assert [node.name for node in (await catalogue.list(("By server",), tags=both)).nodes] == ["git"]
            assert (await catalogue.list((), tags=["no such tag"])).nodes == ()
            found = await pages(catalogue, ("By verb", "Get"), limit=1, tags=["risk:read-only"])
            assert [tool.name for page in found for tool in page.tools] == ["get_all", "get_log"]

    asyncio.run(main())


def test_a_tool_looked_up_again_is_as_our_own_commit_left_it_and_another_process_is_seen_soon(tmp_path: Path) -> None:
    async def main() -> None:
        now = [1000.0]
        async with store_in(tmp_path) as store:
            ours = Catalogue(store, place=by_server_and_verb, clock=lambda: now[0])
            theirs = Catalogue(store, place=by_server_and_verb, clock=lambda: now[0])
            await ours.rebuild([listing("s", definition("t", description="one"))])
            assert (await ours.tool("S.T")).version == 1
            await ours.update_server(listing("s", definition("t", description="two")))
            assert (await ours.tool("s.t")).version == 2
            await theirs.update_server(listing("s", definition("t", description="three")))
            now[0] += 2
            assert (await ours.tool("s.t")).version == 3

    asyncio.run(main())


def test_a_cursor_stays_good_while_the_catalogue_changes(tmp_path: Path) -> None:
    async def main() -> None:
        place = ("By server", "s")
        async with catalogue_in(tmp_path, listing("s", "b", "d", "f", "h")) as catalogue:
            first = await catalogue.list(place, limit=2)
            await catalogue.update_server(listing("s", "a", "b", "e", "f", "h"))
            second = await catalogue.list(place, limit=9, cursor=first.next_cursor)
            assert [tool.name for tool in first.tools] == ["b", "d"]
            assert [tool.name for tool in second.tools] == ["e", "f", "h"]

    asyncio.run(main())


def test_a_cursor_among_categories_is_refused_when_their_order_changed_before_it(tmp_path: Path) -> None:
    ranks = {"a": 0, "b": 1, "c": 2, "d": 3}

    def place(tools: Sequence[Tool], infos: Mapping[str, ServerInfo]) -> Shelves:
        nodes = tuple(Node(path=(name,), summary=name, rank=rank) for name, rank in sorted(ranks.items()))
        return Shelves(nodes, {tool.tool_id: (("a",),) for tool in tools})

    async def names(catalogue: Catalogue, cursor: str | None) -> list[str]:
        return [node.name for node in (await catalogue.list((), limit=9, cursor=cursor)).nodes]

    async def main() -> None:
        async with catalogue_in(tmp_path, listing("s", "x"), place=place) as catalogue:
            cursor = (await catalogue.list((), limit=2)).next_cursor
            assert await names(catalogue, cursor) == ["c", "d"]
            ranks["e"] = 4
            await catalogue.update_server(listing("s", "x", "y"))
            assert await names(catalogue, cursor) == ["c", "d", "e"]
            ranks["d"] = -1
            await catalogue.update_server(listing("s", "x", "y", "z"))
            with pytest.raises(BadCursor, match="changed"):
                await names(catalogue, cursor)

    asyncio.run(main())


def test_a_cursor_for_another_question_is_refused_with_what_to_do(tmp_path: Path) -> None:
    async def main() -> None:
        async with catalogue_in(tmp_path, listing("s", "a", "b", "c")) as catalogue:
            cursor = (await catalogue.list(("By server", "s"), limit=1)).next_cursor
            assert cursor is not None
            assert (await catalogue.list(("BY SERVER", "S"), limit=1, cursor=cursor)).tools[0].name == "b"
            for path, tags, given in [
                (("By verb",), (), cursor),
                (("By server", "s"), ("x",), cursor),
                (("By server", "s"), (), cursor[:-2]),
                (("By server", "s"), (), "10"),
                (("By server", "s"), (), "ünlesbar"),
            ]:
                with pytest.raises(BadCursor) as caught:
                    await catalogue.list(path, tags=tags, cursor=given)
                assert "without a cursor" in caught.value.next_action

    asyncio.run(main())


@settings(deadline=None)
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]))).map(tuple),
    st.sets(st.text(st.characters(exclude_categories=["Cs"]))),
    st.builds(Position, st.sampled_from(["node", "tool"]), st.text(st.characters(exclude_categories=["Cs"]))),
)
def test_a_cursor_gives_back_its_position_and_is_plain_text(
    path: tuple[str, ...], tags: set[str], position: Position
) -> None:
    cursor = encode_cursor(path, tags, position)
    assert decode_cursor(cursor, path, sorted(tags, reverse=True)) == position
    assert cursor.isascii()
    assert cursor.replace("-", "").replace("_", "").isalnum()


@settings(deadline=None)
@given(st.text())
def test_no_text_but_a_cursor_is_taken_for_one(text: str) -> None:
    with pytest.raises(BadCursor):
        decode_cursor(text, (), ())


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        (("By servr",), ["By server"]),
        (("By server", "gti"), ["By server", "git"]),
        (("git",), ["By server", "git"]),
        (("By server", "git", "deeper"), ["By server", "git"]),
        (("Nothing like it", "get"), ["By verb", "Get"]),
    ],
)
def test_an_unknown_path_is_answered_with_the_closest_real_ones(
    asked: tuple[str, ...], hint: list[str], tmp_path: Path
) -> None:
    async def main() -> None:
        async with catalogue_in(tmp_path, listing("git", "get_log"), listing("shop", "add_order")) as catalogue:
            for question in (catalogue.list(asked), catalogue.tree(asked)):
                with pytest.raises(UnknownPath) as caught:
                    await question
                assert caught.value.hints[0] == hint
                assert "hints" in caught.value.next_action

    asyncio.run(main())


def test_an_unknown_tool_is_answered_with_the_nearest_ids(tmp_path: Path) -> None:
    async def main() -> None:
        async with catalogue_in(tmp_path, listing("git", "git_log", "git_diff"), listing("shop", "find")) as catalogue:
            assert (await catalogue.tool("GIT.git_LOG")).tool_id == "git.git_log"
            for question in (catalogue.tool("git.gitlog"), catalogue.versions("git.gitlog")):
                with pytest.raises(ToolNotFound) as caught:
                    await question
                assert caught.value.hints[0] == "git.git_log"
                assert caught.value.next_action

    asyncio.run(main())


def test_a_catalogue_that_was_never_built_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with catalogue_in(tmp_path) as catalogue:
            for question in (catalogue.tree(), catalogue.list(), catalogue.tool("a.b"), catalogue.diff()):
                with pytest.raises(NotBuilt) as caught:
                    await question
                assert "toolfold build" in caught.value.next_action
            assert await catalogue.servers() == ()
            await catalogue.rebuild([])
            assert (await catalogue.tree()).branches == ()

    asyncio.run(main())


@pytest.mark.requirement("G-05")
def test_who_sees_a_part_of_the_catalogue_is_told_of_no_other_server_count_or_warning(tmp_path: Path) -> None:
    async def only_the_log(snapshot: Snapshot) -> VisibleCatalogue:
        tools = [tool for tool in await snapshot.tools() if tool.tool_id == "git.log"]
        return VisibleCatalogue(tools, await snapshot.nodes())

    async def main() -> None:
        async with catalogue_in(tmp_path) as whole:
            seen = CatalogueView(whole, only_the_log).catalogue
            assert (await seen.servers(), await seen.generations()) == ((), ())
            await whole.rebuild([listing("git", "log", "push", "push"), listing("bank", "pay")])
            assert [(one.name, one.tools, bool(one.warnings)) for one in await whole.servers()] == [
                ("bank", 1, False),
                ("git", 2, True),
            ]
            assert [(one.name, one.tools, one.warnings) for one in await seen.servers()] == [("git", 1, ())]
            assert [one.tools for one in await whole.generations()] == [3]
            assert [(one.tools, one.servers) for one in await seen.generations()] == [(1, 1)]

    asyncio.run(main())


def test_looking_at_a_catalogue_loads_nothing_of_building_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with SqliteStore(tmp_path / "toolfold.sqlite") as store:
            await Catalogue(store, place=by_server_and_verb).rebuild([listing("git", "get_log")])

    asyncio.run(main())
    script = (
        "import asyncio, sys\n"
        "from toolfold.catalogue.catalogue import Catalogue\n"
        "from pathlib import Path\n"
        "from toolfold.config import Settings\n"
        "from toolfold.storage.factory import open_store\n"
        "async def main():\n"
        "    async with open_store(Settings(home=Path(sys.argv[1])), False) as store:\n"
        "        await Catalogue(store).tree()\n"
        "        await Catalogue(store).list(('By verb',))\n"
        "asyncio.run(main())\n"
        "print(*sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, check=True, timeout=60)
    heavy = {
        "psycopg",
        "toolfold.catalogue.build",
        "toolfold.catalogue.metadata",
        "httpx2",
        "rich",
        "uvloop",
        "mcp",
        "yaml",
        "hashlib",
    }
    assert not heavy & set(ran.stdout.decode().split())


words = st.text("abc.", max_size=6)


@settings(deadline=None)
@given(words, words, words)
def test_the_edit_distance_is_a_distance(one: str, other: str, third: str) -> None:
    assert _edit_distance(one, one) == 0
    assert _edit_distance(one, other) == _edit_distance(other, one)
    assert _edit_distance(one, third) <= _edit_distance(one, other) + _edit_distance(other, third)
    assert abs(len(one) - len(other)) <= _edit_distance(one, other) <= max(len(one), len(other))
    assert _edit_distance(one, other) == _by_the_table(one, other)


def _by_the_table(one: str, other: str) -> int:
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, against in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (letter != against))
    return row[-1]


def test_the_nearest_words_come_best_first_and_strangers_not_at_all() -> None:
    known = ["git.log", "git.blog", "shop.find", "Git.Logs"]
    assert closest_words("git.log", known, limit=3) == ["git.log", "Git.Logs", "git.blog"]
    assert closest_words("zzz", known) == []
    assert closest_words("", known) == []
