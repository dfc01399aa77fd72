"""What a caller may not see is not there: every operation answers as it would if the tool did not exist.

The oracle is a second gateway, over a store from which the hidden tools are really gone, its counts worked out here by
brute force. The same requests go to both.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from toolfold import Gateway, Settings
from toolfold.catalogue.ontology.draft import rank_of
from toolfold.config import MetadataRule, Policy
from toolfold.errors import ToolfoldError
from toolfold.storage.base import Update, fold_path
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import Caller, Node, Tool

POLICIES = (
    Policy(name="no-bank", deny=("bank.*",)),
    Policy(name="readers", allow=("risk:read-only",)),
    Policy(name="shop", allow=("server:shop",), deny=("risk:destructive",)),
    Policy(name="nobody", allow=()),
)
RULES = (MetadataRule("files.delete_*", access=("admins",)),)
NAMES = (
    *("shop.find_order", "shop.list_orders", "shop.delete_order", "shop.create_invoice", "shop.refund_order"),
    *("bank.send_payment", "bank.read_balance", "bank.list_payments"),
    *("files.read_file", "files.delete_file", "files.delete_folder", "files.search_files"),
)
QUERIES = ("delete a file", "send a payment", "bank account balance", "find an order", "delete order", "zebra quantum")


def definition(tool_id: str) -> dict[str, Any]:
    server, _, name = tool_id.partition(".")
    words = name.replace("_", " ")
    reads = name.split("_")[0] in {"find", "list", "read", "search"}
    return {
        "name": name,
        "description": f"{words.capitalize()} of the {server}.",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True} if reads else {"destructiveHint": True},
    }


def own(server: str, names: Iterable[str]) -> list[dict[str, Any]]:
    return [definition(name) for name in names if name.startswith(f"{server}.")]


class Pair:
    """A gateway that hides, asked as one caller, and one in which the hidden tools never were."""

    def __init__(self, policy: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="toolfold-sight-"))
        self.caller = Caller(name="alice", policy=policy)
        self.loop = asyncio.new_event_loop()
        self.hidden: set[str] = set()
        self.paths: list[tuple[str, ...]] = [(), ("Nothing",), ("Finance", "Nothing")]
        servers = [MemoryUpstream(name, own(name, NAMES)) for name in ("shop", "bank", "files")]
        # Without the hidden tools: a server that lists them would bring them back.
        self.plain_servers = [MemoryUpstream(server.spec.name) for server in servers]
        self.hiding = Gateway(Settings(home=self.folder / "hiding", policies=POLICIES, rules=RULES), upstreams=servers)
        self.plain = Gateway(Settings(home=self.folder / "plain"), upstreams=self.plain_servers)
        self.do(self._open())

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, 60))

    async def _open(self) -> None:
        await self.hiding.__aenter__()
        await self.plain.__aenter__()
        await self.hiding.build()
        rules = self.hiding.access._rules[self.caller.policy]
        async with self.hiding.catalogue.snapshot() as view:
            tools = await view.tools()
            nodes, records = await view.nodes(), await view.servers()
        self.paths += [node.path for node in nodes]
        seen = [tool for tool in tools if rules.allows(tool, ())]
        self.hidden = {tool.tool_id for tool in tools} - {tool.tool_id for tool in seen}
        update = Update(based_on=0, at=1.0, tools=tuple(seen), nodes=tuple(left(nodes, seen)), servers=tuple(records))
        await self.plain.store.commit(update)
        await self.plain.search.sync()
        for server in self.plain_servers:
            server.set_tools(own(server.spec.name, [tool.tool_id for tool in seen]))

    def close(self) -> None:
        self.do(self.hiding.aclose())
        self.do(self.plain.aclose())
        self.loop.close()
        shutil.rmtree(self.folder)

    def both(self, operation: str, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        found = self.do(answer(getattr(self.hiding, operation)(*args, caller=self.caller, **kwargs)))
        wanted = self.do(answer(getattr(self.plain, operation)(*args, **kwargs)))
        return found, wanted


def left(nodes: list[Node], tools: list[Tool]) -> list[Node]:
    """The nodes that hold one of these tools, counted one by one."""

    def below(node: Node) -> set[str]:
        keys, grown = {fold_path(node.path)}, True
        while grown:
            more = {fold_path(n.path) for n in nodes if {fold_path(n.path[:-1]), *map(fold_path, n.parents)} & keys}
            grown = not more <= keys
            keys |= more
        return {tool.tool_id for tool in tools if keys & {fold_path(path) for path in tool.paths}}

    kept = [node for node in nodes if below(node)]
    known = {node.path for node in kept}
    return [
        replace(
            node,
            tools=len(below(node)),
            own_tools=sum(node.path in tool.paths for tool in tools),
            children=sum(node.path == n.path[:-1] or node.path in n.parents for n in kept),
            parents=tuple(parent for parent in node.parents if parent in known),
            rank=rank_of(len(below(node))) if node.rank == rank_of(node.tools) else node.rank,
        )
        for node in kept
    ]


async def answer(work: Any) -> Any:
    """What a caller reads: the answer, or the error, as JSON values. The words of a category are looked at apart."""
    try:
        found = await work
    except ToolfoldError as error:
        return error.as_dict()
    return without_summaries(msgspec.json.decode(msgspec.json.encode(found)))


def without_summaries(value: Any) -> Any:
    if isinstance(value, dict):
        own = {key: without_summaries(item) for key, item in value.items()}
        return own if "tool_id" in own else {key: item for key, item in own.items() if key != "summary"}
    return [without_summaries(item) for item in value] if isinstance(value, list) else value


@pytest.fixture(scope="module", params=[policy.name for policy in POLICIES])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    made = Pair(request.param)
    yield made
    made.close()


IDS = st.one_of(st.sampled_from(NAMES), st.sampled_from([name[:-1] for name in NAMES]), st.just("bank.x"))


@pytest.mark.requirement("D-07", "G-05")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tool_id=IDS, operation=st.sampled_from(["expand_tool", "inspect_tool_output", "descriptor", "call_tool"]))
def test_asking_for_a_hidden_tool_is_asking_for_one_that_does_not_exist(
    pair: Pair, tool_id: str, operation: str
) -> None:
    args: tuple[Any, ...] = ({},) if operation == "call_tool" else ()
    found, wanted = pair.both(operation, tool_id, *args)
    assert msgspec.json.encode(found) == msgspec.json.encode(wanted)
    if tool_id in pair.hidden:
        assert found["code"] == "TOOL_NOT_FOUND"
        assert not pair.hidden & set(found["hints"])


@pytest.mark.requirement("D-07", "G-05")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    number=st.integers(0, 30),
    limit=st.integers(1, 12),
    tags=st.sampled_from([[], ["risk:destructive"], ["risk:read-only"], ["nothing"]]),
    depth=st.sampled_from([1, 2, None]),
)
def test_looking_around_shows_and_counts_only_what_may_be_seen(
    pair: Pair, number: int, limit: int, tags: list[str], depth: int | None
) -> None:
    place = pair.paths[number % len(pair.paths)]
    cursor: str | None = None
    while True:
        found, wanted = pair.both("list", place, tags=tags, limit=limit, cursor=cursor)
        cursor = found.get("next_cursor")
        # The cursor of who sees a part goes by what it sees, and not by the generation.
        pages = [{**page, "next_cursor": bool(page.get("next_cursor"))} for page in (found, wanted)]
        assert msgspec.json.encode(pages[0]) == msgspec.json.encode(pages[1])
        if not cursor:
            break
    found, wanted = pair.both("tree", place, depth=depth)
    assert found == wanted


def test_every_category_of_the_tree_is_the_same_and_names_nothing_hidden(pair: Pair) -> None:
    found, wanted = pair.both("tree")
    assert found == wanted
    assert pair.both("inventory")[0] == pair.both("inventory")[1]
    text = str(pair.do(pair.hiding.tree(caller=pair.caller)))
    assert not [name for name in pair.hidden if name in text or name.partition(".")[2] in text]


@pytest.mark.requirement("D-07", "G-05")
@pytest.mark.parametrize("query", QUERIES)
def test_searching_finds_and_suggests_only_what_may_be_seen(pair: Pair, query: str) -> None:
    """Scores may differ from those of the smaller catalogue by what its words are worth; names may not appear."""
    found, wanted = pair.both("search_tool_by_category", query, limit=20)
    assert found.get("code") == wanted.get("code")
    assert not [name for name in pair.hidden if name in str(found)]
    assert {one["tool_id"] for one in found.get("results", ())} == {one["tool_id"] for one in wanted.get("results", ())}
    for path in (("Finance",), ("Files",)):
        inside, expected = pair.both("search_tool_by_category", query, path)
        assert inside.get("code") == expected.get("code")
        assert inside.get("hints") == expected.get("hints")
    nodes, others = pair.both("search_nodes", query)
    assert {tuple(one["path"]) for one in nodes.get("results", ())} == {
        tuple(one["path"]) for one in others.get("results", ())
    }
