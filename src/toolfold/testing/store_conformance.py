"""A conformance kit for stores: checks that every engine must pass, free of any test framework.

Each check takes a function that opens the same, at first empty, store as often as it likes. A check returns, or raises
`AssertionError` with what is wrong. With pytest: `@pytest.mark.parametrize("check", CHECKS)`.
"""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Raw
from msgspec.json import encode
from msgspec.structs import replace

from toolfold.errors import StoreChanged, StoreError
from toolfold.storage.base import MAX_VERSIONS, AuditRow, ServerRecord, Snapshot, Update
from toolfold.testing.part_conformance import OpenStore, _expect, _parts_are_kept_for_a_while
from toolfold.types import Annotations, Change, Node, Path, ServerInfo, Tool, ToolDefinition

Check = Callable[[OpenStore], Awaitable[None]]

__all__ = ["CHECKS", "Check", "OpenStore", "assert_one_generation", "sample_tool", "stamped_update"]


def _row(number: int, *, caller: str = "alice", session: str = "s1", selection: str = "") -> AuditRow:
    record = f"record {number} \u2713".encode()
    return AuditRow(at=float(number), caller=caller, session=session, selection=selection, record=record)


async def _the_audit_log_keeps_its_order(open_store: OpenStore) -> None:
    async with open_store() as store:
        _expect(await store.audit_rows(), [], "an empty store has no audit rows")
        await store.append_audit([_row(1), _row(2, session="s2", selection="x")], keep=100)
        await store.append_audit([_row(3, caller="bob"), _row(4, selection="x")], keep=100)
    async with open_store() as store:
        rows = await store.audit_rows()
        _expect([row.at for row in rows], [1.0, 2.0, 3.0, 4.0], "lines stand in the order they were added")
        _expect(rows[3].record, "record 4 \u2713".encode(), "records are kept exactly")
        numbers = [row.number for row in rows]
        _expect(numbers, sorted(set(numbers)), "numbers rise")
        _expect([row.at for row in await store.audit_rows(session="s1")], [1.0, 3.0, 4.0], "by session")
        _expect([row.at for row in await store.audit_rows(session="s1", caller="alice")], [1.0, 4.0], "by caller, too")
        _expect([row.selection for row in rows], ["", "x", "", "x"], "selections are kept")
        _expect([row.at for row in await store.audit_rows(after=rows[1].number)], [3.0, 4.0], "after a number")
        _expect([row.at for row in await store.audit_rows(last=2)], [3.0, 4.0], "the last ones, in order")
        first = await store.audit_rows(after=rows[0].number, first=2)
        _expect([row.at for row in first], [2.0, 3.0], "the first ones after a number, in order")
        async with store.snapshot() as view:
            _expect(view.generation, 0, "the audit log makes no generation")


async def _the_audit_log_is_bounded_and_reuses_no_number(open_store: OpenStore) -> None:
    async with open_store() as store:
        for start in range(0, 100, 10):
            await store.append_audit([_row(start + one) for one in range(10)], keep=25)
        rows = await store.audit_rows()
        _expect([row.at for row in rows], [float(at) for at in range(75, 100)], "the newest lines stay")
        await store.append_audit([_row(100)], keep=25, oldest=98.0)
        rows = await store.audit_rows()
        _expect([row.at for row in rows], [98.0, 99.0, 100.0], "old lines go")
        highest = rows[-1].number
        await store.append_audit([], keep=25, oldest=1000.0)
        _expect(await store.audit_rows(), [], "nothing is younger")
        await store.append_audit([_row(2000)], keep=25)
        _expect((await store.audit_rows())[0].number > highest, True, "a number is never given twice")


def sample_tool(
    tool_id: str = "shop.find_order",
    *,
    description: str = "Finds an order.",
    version: int = 1,
    tags: tuple[str, ...] = (),
    paths: tuple[Path, ...] = (("Shop",),),
) -> Tool:
    """A small tool whose definition reads back from its raw object."""
    server, _, name = tool_id.partition(".")
    sent = {"name": name, "description": description, "inputSchema": {"type": "object"}}
    return Tool(
        tool_id=tool_id,
        server=server,
        definition=ToolDefinition(
            name=name, raw=Raw(encode(sent)), description=description, input_schema=Raw(b'{"type":"object"}')
        ),
        fingerprint=f"print of {description}",
        version=version,
        summary=description,
        tags=tags,
        paths=paths,
    )


def stamped_update(number: int, *, tools: int = 40) -> Update:
    """The update that makes generation `number`; every part of it carries the number."""
    text = f"stamp {number}"
    return Update(
        based_on=number - 1,
        at=float(number),
        tools=tuple(
            sample_tool(
                f"stamped.tool{i:03}", description=text, version=number, tags=(text,), paths=(("Stamped", text),)
            )
            for i in range(tools)
        ),
        nodes=(Node(path=("Stamped",), summary=text), Node(path=("Stamped", text), summary=text)),
        removed_nodes=(("Stamped", f"stamp {number - 1}"),) if number > 1 else (),
        servers=(ServerRecord(name="stamped", info=ServerInfo(version=text)),),
        changes=(Change(tool_id="stamped.tool000", kind="changed", after=text),),
    )


async def assert_one_generation(view: Snapshot, *, tools: int = 40) -> None:
    """That a view shows one stamped generation and nothing of any other."""
    number = view.generation
    text = f"stamp {number}"
    if not number:
        return
    _expect({tool.summary for tool in await view.tools()}, {text}, "the tools are of one generation")
    _expect(len(await view.tool_ids()), tools, "all tools are there")
    _expect({node.summary for node in await view.nodes()}, {text}, "the nodes are of that generation")
    _expect(len(await view.tool_ids_at(("Stamped", text))), tools, "the placements are of that generation")
    _expect(len(await view.tool_ids_at((), below=True, tags=[text])), tools, "the tags are of that generation")
    _expect([server.info.version for server in await view.servers()], [text], "the servers are of that generation")
    _expect((await view.versions("stamped.tool000"))[-1].number, number, "the versions are of that generation")
    _expect((await view.generations())[-1].number, number, "the generation is listed")


async def _an_empty_store_is_generation_zero(open_store: OpenStore) -> None:
    async with open_store() as store, store.snapshot() as view:
        _expect(view.generation, 0, "nothing was committed")
        _expect(await view.tools(), [], "there are no tools")
        _expect(await view.tool("a.b"), None, "no tool is found")
        _expect(await view.node(("A",)), None, "no node is found")
        _expect(await view.children(()), [], "the root has no children")
        _expect(await view.servers(), [], "there are no servers")
        _expect(await view.generations(), [], "there are no generations")


async def _a_commit_reads_back_exactly(open_store: OpenStore) -> None:
    odd = ToolDefinition(
        name="größe/✓",
        raw=Raw(b'{ "name": "gr\xc3\xb6\xc3\x9fe/\\u2713", "x": 1.10, "x": 12345678901234567890123 }'),
        title="Größe \U0001f4cf",
        description="Says „how big“.\n\tNothing \x00 else.",
        input_schema=Raw(b'{ "type" : "object" }'),
        output_schema=Raw(b"true"),
        annotations=Annotations(read_only=True, open_world=False),
    )
    big = sample_tool("big.tool", description="long " * 1_000_000)
    tools = (
        big,
        replace(
            sample_tool("odd.tool"),
            definition=odd,
            risks=("read-only",),
            tags=("risk:read-only", "Maße"),
            cost=0.25,
            access=("staff",),
            paths=(("Größen", "Länge"), ("Shop",)),
        ),
        sample_tool(),
    )
    server = ServerRecord(
        name="odd", info=ServerInfo(name="Ödd", era="modern"), read_at=12.5, ttl_ms=0, tools=1, warnings=("a", "b")
    )
    node = Node(path=("Größen", "Länge"), summary="Längen", tags=("maß",), tools=1, own_tools=1, parents=(("Shop",),))
    async with open_store() as store:
        _expect(
            await store.commit(Update(based_on=0, at=1.0, tools=tools, nodes=(node,), servers=(server,))),
            1,
            "the first commit makes generation 1",
        )
    async with open_store() as store, store.snapshot() as view:
        _expect(view.generation, 1, "another opening sees the commit")
        _expect(await view.tools() == list(tools), True, "the tools are the same, in the order of their ids")
        _expect(await view.nodes(), [node], "the node is the same")
        _expect(await view.servers(), [server], "the server is the same")


async def _a_snapshot_holds_still_while_others_commit(open_store: OpenStore) -> None:
    async with open_store() as store, open_store() as other:
        await store.commit(stamped_update(1))
        async with store.snapshot() as view:
            await store.commit(stamped_update(2))
            await other.commit(stamped_update(3))
            _expect(view.generation, 1, "the snapshot keeps its generation")
            await assert_one_generation(view)
            async with store.snapshot() as later:
                _expect(later.generation, 3, "a later snapshot sees the last commit")
                await assert_one_generation(later)


async def _a_failed_commit_changes_nothing(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.commit(stamped_update(1))
        update = stamped_update(2)
        half = "\ud800"  # half a letter, which no engine can write
        for bad in (
            replace(update, tools=(*update.tools, replace(sample_tool("z.last"), summary=half))),
            replace(update, nodes=(*update.nodes, Node(path=("Z",), summary=half))),
            replace(update, servers=(*update.servers, ServerRecord(name="z", error=half))),
            replace(update, changes=(*update.changes, Change(tool_id=half, kind="added"))),
        ):
            try:
                await store.commit(bad)
            except (ValueError, StoreError):
                pass
            else:
                raise AssertionError("an update that cannot be written was accepted")
            async with store.snapshot() as view:
                _expect(view.generation, 1, "the generation stays")
                await assert_one_generation(view)
        await store.commit(update)


async def _the_slower_of_two_writers_gets_an_error(open_store: OpenStore) -> None:
    async with open_store() as one, open_store() as other:
        await one.commit(stamped_update(1))
        await one.commit(stamped_update(2))
        try:
            await other.commit(stamped_update(2))
        except StoreChanged as error:
            _expect(bool(error.next_action), True, "the error says what to do")
        else:
            raise AssertionError("an update of an old generation was accepted")
        async with other.snapshot() as view:
            _expect(view.generation, 2, "the first writer's commit stands")
            await assert_one_generation(view)


async def _readers_never_see_a_torn_catalogue(open_store: OpenStore) -> None:
    done = asyncio.Event()

    async def read() -> None:
        async with open_store() as store:
            while not done.is_set():
                async with store.snapshot() as view:
                    await assert_one_generation(view, tools=300)

    async def write() -> None:
        try:
            async with open_store() as store:
                for number in range(1, 16):
                    await store.commit(stamped_update(number, tools=300))
        finally:
            done.set()

    async with open_store():
        await asyncio.gather(write(), read(), read())


async def _a_cancelled_reader_leaves_the_store_usable(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.commit(stamped_update(1))

        async def read() -> None:
            async with store.snapshot() as view:
                while True:
                    await view.tools()

        tasks = [asyncio.create_task(read()) for _ in range(8)]
        for _ in range(20):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await store.commit(stamped_update(2))
        async with store.snapshot() as view:
            await assert_one_generation(view)


async def _lookups_ignore_letter_case(open_store: OpenStore) -> None:
    async with open_store() as store:
        tool = sample_tool("Git.Log", tags=("Risk:Read-Only",), paths=(("Code", "Straße"),))
        nodes = (Node(path=("Code",), summary="c"), Node(path=("Code", "Straße"), summary="s", tags=("Road",)))
        await store.commit(Update(based_on=0, at=0, tools=(tool,), nodes=nodes))
        async with store.snapshot() as view:
            _expect(await view.tool("gIT.lOG"), tool, "an id is found in any case and given as stored")
            _expect(await view.node(("CODE", "STRASSE")), nodes[1], "and a path")
            _expect(await view.tool_ids_at(("code", "strasse"), tags=["RISK:read-only"]), ["Git.Log"], "and a tag")
            _expect(await view.children(("cOdE",), tags=["ROAD"]), [nodes[1]], "and the tag of a node")
            _expect(len(await view.versions("git.log")), 1, "and the versions of a tool")


async def _a_node_may_have_several_parents(open_store: OpenStore) -> None:
    async with open_store() as store:
        nodes = (
            Node(path=("A",), summary="a"),
            Node(path=("A", "Deep"), summary="d"),
            Node(path=("A", "Deep", "Shared"), summary="s", parents=(("B",),)),
            Node(path=("B",), summary="b"),
            Node(path=("B", "Other"), summary="o"),
        )
        shared = sample_tool("s.shared", paths=(("A", "Deep", "Shared"), ("B", "Other")), tags=("x",))
        other = sample_tool("s.other", paths=(("B", "Other"),))
        await store.commit(Update(based_on=0, at=0, tools=(shared, other), nodes=nodes))
        async with store.snapshot() as view:
            _expect(
                [n.path for n in await view.children(("B",))], [("B", "Other"), ("A", "Deep", "Shared")], "children"
            )
            _expect(await view.nodes(under=("A",), depth=1), [nodes[1]], "one step down")
            _expect(await view.nodes(under=("B",)), [nodes[2], nodes[4]], "all the way down, each once")
            _expect(await view.nodes(depth=1), [nodes[0], nodes[3]], "one step from the root")
            _expect(await view.tool_ids_at(("B",)), [], "no tool right there")
            _expect(await view.tool_ids_at(("B",), below=True), ["s.other", "s.shared"], "each tool below once")
            _expect(await view.children((), tags=["x"]), [nodes[0], nodes[3]], "nodes that hold a tagged tool")
            _expect(await view.children((), tags=["x", "y"]), [], "all tags must be there")


async def _tools_come_in_pages(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.commit(stamped_update(1, tools=7))
        async with store.snapshot() as view:
            ids = await view.tool_ids()
            _expect([t.tool_id for t in await view.tools(limit=3)], ids[:3], "the first page")
            _expect([t.tool_id for t in await view.tools(after=ids[2], limit=3)], ids[3:6], "the second page")
            _expect([t.tool_id for t in await view.tools(ids=[ids[5], "no.such", ids[1]])], [ids[1], ids[5]], "by id")
            _expect(await view.tools(ids=[]), [], "no ids, no tools")
            _expect(len(await view.tools(server="stamped")), 7, "by server")
            _expect(await view.tools(server="other"), [], "by another server")
            _expect(await view.tool_ids_at(("Stamped", "stamp 1"), after=ids[4], limit=9), ids[5:], "at a path")


async def _removal_keeps_only_the_versions(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.commit(stamped_update(1, tools=2))
        gone = Update(
            based_on=1,
            at=2.0,
            removed_tools=("stamped.tool000",),
            removed_nodes=(("Stamped", "stamp 1"),),
            removed_servers=("stamped",),
            changes=(Change(tool_id="stamped.tool000", kind="removed", before="x"),),
        )
        _expect(await store.commit(gone), 2, "a removal makes a generation")
        async with store.snapshot() as view:
            _expect(await view.tool_ids(), ["stamped.tool001"], "the tool is gone")
            _expect(await view.tool_ids_at(("Stamped", "stamp 1")), ["stamped.tool001"], "its placement is gone")
            _expect(await view.tool_ids_at((), below=True, tags=["stamp 1"]), ["stamped.tool001"], "its tags are gone")
            _expect([node.path for node in await view.nodes()], [("Stamped",)], "the node is gone")
            _expect(await view.children(("Stamped",)), [], "its place under its parent is gone")
            _expect(await view.servers(), [], "the server is gone")
            _expect([v.number for v in await view.versions("stamped.tool000")], [1], "the version is kept")
            _expect([(n, c.kind) for n, c in await view.changes(2, 2)], [(2, "removed")], "the change is told")
            _expect(
                [(g.number, g.tools, g.removed) for g in await view.generations()], [(1, 2, 0), (2, 1, 1)], "figures"
            )


async def _versions_are_kept_and_bounded(open_store: OpenStore) -> None:
    async with open_store() as store:
        last = MAX_VERSIONS + 5
        for number in range(1, last + 1):
            tool = sample_tool("a.b", description=f"text {number}", version=number)
            await store.commit(Update(based_on=number - 1, at=float(number), tools=(tool,)))
        back = sample_tool("a.b", description=f"text {last - 1}", version=last - 1)
        await store.commit(Update(based_on=last, at=99.0, tools=(back,)))
        async with store.snapshot() as view:
            kept = await view.versions("a.b")
            _expect([v.number for v in kept], list(range(6, last + 1)), "the newest versions are kept")
            _expect({v.first_seen == float(v.number) for v in kept}, {True}, "each knows when it was first seen")
            _expect({v.definition.description == f"text {v.number}" for v in kept}, {True}, "and its definition")
            _expect((await view.tool("a.b")), back, "a tool may go back to an earlier version")
            numbers = (await view.version_numbers())["a.b"]
            _expect(numbers[back.fingerprint], last - 1, "fingerprints lead to numbers")


async def _news_of_a_server_alone_makes_no_generation(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.commit(stamped_update(1))
        news = ServerRecord(name="stamped", error="it did not answer", stale=True)
        _expect(await store.commit(Update(based_on=1, at=2.0, servers=(news,))), 1, "the generation stays")
        async with store.snapshot() as view:
            _expect(await view.servers(), [news], "the news is there")
    async with open_store() as store:
        _expect(await store.commit(Update(based_on=1, at=3.0, removed_servers=("stamped",))), 2, "a removal counts")


async def _state_is_kept_by_namespace(open_store: OpenStore) -> None:
    big = bytes(range(256)) * 40_000
    async with open_store() as store:
        await store.put("era", "git", b"legacy")
        await store.put("era", "größe", b"")
        await store.put("other", "git", big)
        await store.put("era", "git", b"modern")
        await store.put("era", "gone", b"x")
        await store.delete("era", "gone")
        await store.delete("era", "never")
    async with open_store() as store:
        _expect(await store.get("era", "git"), b"modern", "the last value counts")
        _expect(await store.get("other", "git") == big, True, "a namespace has its own keys, values may be large")
        _expect(await store.get("era", "GIT"), None, "keys are exact")
        _expect(dict(await store.items("era")), {"git": b"modern", "größe": b""}, "all of a namespace")
        _expect(dict(await store.items("none")), {}, "an empty namespace")
        async with store.snapshot() as view:
            _expect(view.generation, 0, "state makes no generation")


async def _any_text_is_a_key(open_store: OpenStore) -> None:
    odd = ("", "nul \x00 inside", "größe ✓ \U0001f4cf", "long " * 2000, "long " * 1999 + "other")
    async with open_store() as store:
        for number, text in enumerate(odd):
            await store.put("odd", text, b"%d" % number)
            await store.put(text, "odd", b"%d" % number)
            _expect(await store.swap("odd swaps", text, None, b"x"), True, "swaps know them")
            _expect(await store.increment("odd", text, 1, for_s=60), 1.0, "counters know them")
            _expect(await store.take_lease(text, text, for_s=60), True, "leases know them")
        rows = [AuditRow(at=1.0, caller=text, session=text, selection=text, record=b"{}") for text in odd]
        await store.append_audit(rows, keep=100)
    async with open_store() as store:
        _expect(dict(await store.items("odd")), {text: b"%d" % n for n, text in enumerate(odd)}, "they read back")
        for number, text in enumerate(odd):
            _expect(await store.get(text, "odd"), b"%d" % number, "and tell namespaces apart")
            found = await store.audit_rows(caller=text, session=text)
            _expect([(row.caller, row.session, row.selection) for row in found], [(text,) * 3], "and audit lines")


async def _ids_come_in_the_order_of_their_bytes(open_store: OpenStore) -> None:
    names = ("a-b", "a.b", "a_b", "aB", "ab", "A0", "a b", "ä", "z", "Z1", "~", "é", "e\u0301", "\U0001f4cf", "\uffee")
    ids = [f"s.{name}" for name in names]
    expected = sorted(ids[:3] + ids[4:], key=lambda name: name.casefold().encode())
    async with open_store() as store:
        await store.commit(Update(based_on=0, at=0, tools=tuple(sample_tool(name) for name in expected[::-1])))
        async with store.snapshot() as view:
            _expect(await view.tool_ids(), expected, "all ids")
            _expect([t.tool_id for t in await view.tools(after=expected[4])], expected[5:], "those after one")
            _expect(await view.tool_ids_at((), below=True, limit=5), expected[:5], "the first of them")


async def _one_of_many_swaps_wins(open_store: OpenStore) -> None:
    async with open_store() as one, open_store() as other:
        made = await asyncio.gather(*(s.swap("key", "k", None, b"%d" % n) for n, s in enumerate((one, other) * 10)))
        _expect(made.count(True), 1, "one writer is the first")
        _expect(await other.get("key", "k"), b"%d" % made.index(True), "and its value stands")
        _expect(await other.swap("key", "k", b"other", b"x"), False, "what does not stand there is not replaced")
        _expect(await other.swap("key", "k", b"%d" % made.index(True), b"x"), True, "what stands there is")
        _expect(await one.get("key", "k"), b"x", "for all")


async def _counters_are_shared(open_store: OpenStore) -> None:
    async with open_store() as one, open_store() as other:
        sums = await asyncio.gather(*(s.increment("rate", "alice", 1, for_s=60) for s in (one, other) * 20))
        _expect(sorted(sums), [float(n) for n in range(1, 41)], "no step is lost, and none counted twice")
        _expect(await one.increment("rate", "bob", 2.5, for_s=60), 2.5, "each has its own")
        _expect(await one.increment("rate", "alice", -40, for_s=60), 0.0, "it can be taken back")
        await one.increment("rate", "brief", 7, for_s=0.05)
        await asyncio.sleep(0.1)
        _expect(await other.increment("rate", "brief", 1, for_s=60), 1.0, "one that is over begins anew")


async def _a_lease_has_one_holder(open_store: OpenStore) -> None:
    async with open_store() as one, open_store() as other:
        _expect(await one.take_lease("git", "one", for_s=60), True, "nobody holds it")
        _expect(await other.take_lease("git", "other", for_s=60), False, "one holds it")
        _expect(await other.take_lease("files", "other", for_s=60), True, "each has its own holder")
        await other.release_lease("git", "other")
        _expect(await other.take_lease("git", "other", for_s=60), False, "only its holder gives it back")
        _expect(await one.take_lease("git", "one", for_s=0.1), True, "its holder may set it anew")
        await asyncio.sleep(0.2)
        _expect(await other.take_lease("git", "other", for_s=60), True, "a lease that ran out is free")
        await other.release_lease("git", "other")
        _expect(await one.take_lease("git", "one", for_s=60), True, "so is one that was given back")


async def _others_are_told_of_changes(open_store: OpenStore) -> None:
    async with open_store() as one, open_store() as other:

        async def follow(value: bytes) -> None:
            while await other.get("era", "git") != value:
                await other.wait_changed()

        for value in (b"legacy", b"modern"):
            following = asyncio.ensure_future(follow(value))
            await asyncio.sleep(0.1)  # so that it waits
            await one.put("era", "git", value)
            await asyncio.wait_for(following, 30)
        generation = await one.commit(stamped_update(1))
        async with asyncio.timeout(30):
            while True:
                await other.wait_changed()
                async with other.snapshot() as view:
                    if view.generation == generation:
                        return


CHECKS: tuple[Check, ...] = (
    _an_empty_store_is_generation_zero,
    _a_commit_reads_back_exactly,
    _a_snapshot_holds_still_while_others_commit,
    _a_failed_commit_changes_nothing,
    _the_slower_of_two_writers_gets_an_error,
    _readers_never_see_a_torn_catalogue,
    _a_cancelled_reader_leaves_the_store_usable,
    _lookups_ignore_letter_case,
    _a_node_may_have_several_parents,
    _tools_come_in_pages,
    _removal_keeps_only_the_versions,
    _versions_are_kept_and_bounded,
    _news_of_a_server_alone_makes_no_generation,
    _state_is_kept_by_namespace,
    _any_text_is_a_key,
    _ids_come_in_the_order_of_their_bytes,
    _one_of_many_swaps_wins,
    _counters_are_shared,
    _a_lease_has_one_holder,
    _parts_are_kept_for_a_while,
    _others_are_told_of_changes,
    _the_audit_log_keeps_its_order,
    _the_audit_log_is_bounded_and_reuses_no_number,
)
