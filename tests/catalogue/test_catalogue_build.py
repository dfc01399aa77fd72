"""Building: versions, differences, failures, and one server at a time."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from catalogue_kit import Clock, Shelves, by_server_and_verb, catalogue_in, definition, listing, store_in
from msgspec import Raw
from msgspec.structs import replace

from toolfold.catalogue.build import _CatalogueState, build, is_unchanged
from toolfold.catalogue.catalogue import Catalogue
from toolfold.errors import CatalogueError, ToolNotFound
from toolfold.storage.records import _parse_definition, encode_definition
from toolfold.types import Change, ServerInfo, Tool
from toolfold.upstream.definitions import read_definitions

pytestmark = pytest.mark.usefixtures("engine")  # on both engines


def test_a_build_is_the_same_whatever_the_order_of_the_servers() -> None:
    listings = [listing("git", "get_log", "add"), listing("Git", "get_log"), listing("shop", "find_order")]
    one = build(listings, place=by_server_and_verb, at=5.0)
    assert build(reversed(listings), place=by_server_and_verb, at=5.0) == one
    assert [tool.tool_id for tool in one.tools] == sorted((tool.tool_id for tool in one.tools), key=str.casefold)
    assert one.report.warnings == (
        'the tool "get_log" of server "git" has the id git.get_log-4c6899e5, '
        'since the tool "get_log" of server "Git" has Git.get_log',
    )


def test_a_tool_that_a_server_sends_twice_counts_once_and_is_told_of() -> None:
    twice = listing("git", definition("log", description="First."), definition("log", description="Second."), "log")
    made = build([twice], place=by_server_and_verb)
    assert [tool.summary for tool in made.tools] == ["First."]
    assert made.servers[0].warnings == ('server "git" sent the tool "log" more than once; the first one counts',)


def test_what_most_tools_of_a_server_begin_with_is_in_no_summary() -> None:
    opening = "This tool belongs to the shop. It sells books, maps, etc. Tool description: "
    tools = [definition(name, description=f"{opening}{name.title()}s an order.") for name in ("find", "send", "sort")]
    others = [definition("help", description="Shows help."), definition("bare", description=opening)]
    two = build([listing("shop", *tools[:2])], place=by_server_and_verb)
    assert {tool.summary for tool in two.tools} == {"This tool belongs to the shop."}
    before = _CatalogueState(generation=1, tools=two.tools, nodes=two.nodes, servers=two.servers)
    all_of_them = listing("shop", *tools, *others)
    for made in (
        build([all_of_them], before, place=by_server_and_verb),
        build([all_of_them], place=by_server_and_verb),
    ):
        assert {tool.name: tool.summary for tool in made.tools} == {
            "find": "Finds an order.",
            "send": "Sends an order.",
            "sort": "Sorts an order.",
            "help": "Shows help.",
            "bare": "This tool belongs to the shop.",
        }
        assert is_unchanged(all_of_them, made.servers[0], made.tools)


def test_the_report_counts_per_server_and_carries_every_warning() -> None:
    def place(tools: Sequence[Tool], infos: Mapping[str, ServerInfo]) -> Shelves:
        shelves = by_server_and_verb(tools, infos)
        return Shelves(shelves.nodes, shelves.placements, ("an override matches nothing",))

    first = build([listing("a", "x", "y"), listing("b", "z", warnings=("it sent noise",))], place=place)
    before = _CatalogueState(generation=1, tools=first.tools, nodes=first.nodes, servers=first.servers)
    second = build(
        [listing("a", definition("x", description="New."), "w")],
        before,
        place=place,
        failures={"b": "it hung", "c": "no"},
    )
    report = second.report
    assert (report.tools, report.added, report.removed, report.changed, report.unchanged) == (3, 1, 1, 1, 1)
    assert report.warnings == ("an override matches nothing",)
    a, b, c = report.servers
    assert (a.tools, a.added, a.removed, a.changed, a.stale) == (2, 1, 1, 1, False)
    assert (b.tools, b.stale, b.error, b.warnings) == (1, True, "it hung", ("it sent noise",))
    assert (c.tools, c.stale, c.error) == (0, False, "no")


@pytest.mark.requirement("D-13")
def test_a_changed_tool_is_a_new_version_and_an_unchanged_one_is_not(tmp_path: Path) -> None:
    async def main() -> None:
        clock = Clock()
        old = definition("log", description="Old.", annotations={"readOnlyHint": True})
        new = definition("log", description="Old.", annotations={"readOnlyHint": False})
        async with catalogue_in(tmp_path, listing("git", old, "add"), clock=clock) as catalogue:
            clock.now = 2000.0
            changed = await catalogue.rebuild([listing("git", new, "add")])
            before, after = [version.fingerprint for version in await catalogue.versions("git.log")]
            assert changed.changes == (
                Change(tool_id="git.log", kind="changed", before=before, after=after, fields=("annotations",)),
            )
            assert [(v.number, v.first_seen) for v in await catalogue.versions("git.log")] == [(1, 1000.0), (2, 2000.0)]
            assert (await catalogue.tool("git.log")).version == 2
            assert (await catalogue.tool("git.log")).risks == ("destructive",)
            assert (await catalogue.tool("git.add")).version == 1

    asyncio.run(main())


@pytest.mark.requirement("D-13")
def test_a_fingerprint_that_comes_back_has_its_old_number_and_a_fresh_one_a_new_number(tmp_path: Path) -> None:
    texts = ["one", "two", "one", None, "two", "three"]

    async def main() -> list[int]:
        numbers = []
        async with catalogue_in(tmp_path, listing("git", "other")) as catalogue:
            for text in texts:
                tools = [] if text is None else [definition("log", description=text)]
                await catalogue.rebuild([listing("git", "other", *tools)])
                numbers += [] if text is None else [(await catalogue.tool("git.log")).version]
        return numbers

    assert asyncio.run(main()) == [1, 2, 1, 2, 3]


@pytest.mark.requirement("D-13")
def test_key_order_and_white_space_make_no_version_yet_the_bytes_kept_are_the_last_sent(tmp_path: Path) -> None:
    spaced = _parse_definition(b'{ "inputSchema" : {"type": "object"}, "description":"Does log.","name":"log" }')

    async def main() -> None:
        async with catalogue_in(tmp_path, listing("git", "log")) as catalogue:
            made = await catalogue.rebuild([listing("git", spaced)])
            assert made.changes == ()
            assert (await catalogue.tool("git.log")).version == 1
            assert (await catalogue.tool("git.log")).definition == spaced

    asyncio.run(main())


@pytest.mark.requirement("D-13")
def test_any_two_generations_can_be_compared_both_ways(tmp_path: Path) -> None:
    async def main() -> None:
        async with catalogue_in(tmp_path, listing("s", "kept", "goes", "changes")) as catalogue:
            await catalogue.rebuild([listing("s", "kept", definition("changes", description="2"), "passes")])
            last = await catalogue.rebuild(
                [listing("s", "kept", definition("changes", description="3", title="t"), "new")]
            )
            assert last.generation == 3
            assert [(c.tool_id, c.kind) for c in await catalogue.diff()] == [
                ("s.changes", "changed"),
                ("s.new", "added"),
                ("s.passes", "removed"),
            ]
            whole = await catalogue.diff(1, 3)
            assert [(c.tool_id, c.kind, c.fields) for c in whole] == [
                ("s.changes", "changed", ("description", "title")),
                ("s.goes", "removed", ()),
                ("s.new", "added", ()),
            ]
            back = await catalogue.diff(3, 1)
            assert [(c.tool_id, c.kind) for c in back] == [
                ("s.changes", "changed"),
                ("s.goes", "added"),
                ("s.new", "removed"),
            ]
            assert (back[0].before, back[0].after) == (whole[0].after, whole[0].before)
            assert len(await catalogue.diff(0, 3)) == 3
            assert await catalogue.diff(2, 2) == ()
            with pytest.raises(CatalogueError, match="generation 9") as caught:
                await catalogue.diff(1, 9)
            assert caught.value.hints == ("it knows the generations 0 to 3",)

    asyncio.run(main())


def test_a_server_that_fails_keeps_its_tools_until_it_leaves_the_configuration(tmp_path: Path) -> None:
    async def main() -> None:
        async with catalogue_in(tmp_path, listing("git", "log"), listing("shop", "find")) as catalogue:
            failed = await catalogue.rebuild([listing("git", "log")], failures={"shop": "it did not start"})
            assert failed.changes == ()
            assert (await catalogue.tool("shop.find")).version == 1
            shop = (await catalogue.servers())[1]
            assert (shop.stale, shop.error, shop.tools, shop.read_at is not None) == (True, "it did not start", 1, True)
            again = await catalogue.rebuild([listing("git", "log"), listing("shop", "find")])
            assert (again.generation, again.servers[1].stale, again.servers[1].error) == (1, False, "")
            gone = await catalogue.rebuild([listing("git", "log")])
            assert [(c.tool_id, c.kind) for c in gone.changes] == [("shop.find", "removed")]
            with pytest.raises(ToolNotFound):
                await catalogue.tool("shop.find")

    asyncio.run(main())


def test_one_server_read_again_leaves_the_others_alone_and_writes_only_what_changed(tmp_path: Path) -> None:
    async def main() -> None:
        clock = Clock()
        git, shop = listing("git", "get_log", "get_diff"), listing("shop", "get_order")
        async with catalogue_in(tmp_path, git, shop, clock=clock) as catalogue:
            clock.now = 2000.0
            made = await catalogue.update_server(listing("git", "get_log", "get_blame"))
            assert [tool.tool_id for tool in made.update.tools] == ["git.get_blame"]
            assert made.update.removed_tools == ("git.get_diff",)
            assert [server.name for server in made.update.servers] == ["git"]
            assert [server.read_at for server in await catalogue.servers()] == [2000.0, 1000.0]
            failed = await catalogue.mark_failed("shop", "it hung")
            assert (failed.generation, failed.report.tools) == (2, 3)
            assert [server.stale for server in await catalogue.servers()] == [False, True]

    asyncio.run(main())


def test_a_server_that_was_read_again_and_changed_nothing_moves_nothing(tmp_path: Path) -> None:
    placed = []

    def place(tools: Sequence[Tool], infos: Mapping[str, ServerInfo]) -> Shelves:
        placed.append(len(tools))
        return by_server_and_verb(tools, infos)

    async def main() -> None:
        async with catalogue_in(tmp_path, listing("git", "log"), listing("s", "x"), place=place) as catalogue:
            made = await catalogue.update_server(listing("git", "log"))
            assert (made.generation, made.changes, placed) == (1, (), [2])
            assert made.nodes

    asyncio.run(main())


def test_two_processes_that_update_at_once_both_get_in(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            store_in(tmp_path) as one,
            store_in(tmp_path) as other,
        ):
            catalogues = [Catalogue(store, place=by_server_and_verb) for store in (one, other)]
            await catalogues[0].rebuild([listing("base", "x")])
            await asyncio.gather(
                *(catalogues[i % 2].update_server(listing(f"s{i}", "tool_a", "tool_b")) for i in range(4))
            )
            assert [server.name for server in await catalogues[1].servers()] == ["base", "s0", "s1", "s2", "s3"]
            assert (await catalogues[0].tree()).tools == 9

    asyncio.run(main())


def test_a_definition_that_does_not_read_back_from_its_raw_object_is_kept_as_it_was_given(tmp_path: Path) -> None:
    own = replace(definition("log", description="As sent."), description="As read.", raw=Raw(b'{"odd": [1,2'))

    async def main() -> None:
        async with catalogue_in(tmp_path, listing("git", own)) as catalogue:
            assert (await catalogue.tool("git.log")).definition == own

    asyncio.run(main())


def test_every_tool_can_be_reached_from_the_root_of_the_ontology(tmp_path: Path) -> None:
    async def main() -> None:
        async with store_in(tmp_path) as store:
            catalogue = Catalogue(store)
            made = await catalogue.rebuild(
                [
                    listing("git", "git_log", "git_diff", "git_commit"),
                    listing("shop", "find_order", "refund_order"),
                    listing("files", "read_file", "write_file", "search_files"),
                ]
            )
            found: set[str] = set()
            waiting: list[tuple[str, ...]] = [()]
            while waiting:
                path = waiting.pop()
                page = await catalogue.list(path, limit=50)
                assert page.path == path
                assert page.next_cursor is None
                waiting += [node.path for node in page.nodes]
                found |= {tool.tool_id for tool in page.tools}
            assert found == {tool.tool_id for tool in made.tools}

    asyncio.run(main())


def test_every_recorded_tool_is_kept_byte_for_byte(shared_data: Path, tmp_path: Path) -> None:
    sent = {
        file.stem: [json.dumps(tool).encode() for tool in json.loads(file.read_text())["tools"]]
        for file in sorted((shared_data / "servers").glob("*.json"))
    }

    async def main() -> None:
        listings = [listing(name, *read_definitions(map(Raw, tools))[0]) for name, tools in sent.items()]
        assert all(encode_definition(tool) == b"r" + bytes(tool.raw) for one in listings for tool in one.tools)
        async with catalogue_in(tmp_path, *listings) as catalogue, catalogue.snapshot() as view:
            for name, raws in sent.items():
                kept = [bytes(tool.definition.raw) for tool in await view.tools(server=name)]
                assert sorted(kept) == sorted(raws)

    asyncio.run(main())
