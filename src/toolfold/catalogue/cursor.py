"""Where a listing goes on. Opaque to whoever carries it; after a change of the catalogue still good, or refused.

A cursor names the last entry shown, not a count: tools that are added or removed meanwhile neither repeat nor skip one
that was there all along. A tool that moved to another category meanwhile would be missed, so a cursor also knows what
was still to come, and is refused where additions and removals do not explain the difference. Categories stand in the
order of their size, which may change, so a cursor among them knows what stood before it, too. It belongs to one path
and one set of tags. It holds nothing secret and grants nothing.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Iterable, Sequence
from typing import Literal
from zlib import crc32

from msgspec import MsgspecError, Struct
from msgspec.json import Decoder, Encoder

from toolfold.catalogue.changes import net_changes
from toolfold.errors import BadCursor
from toolfold.storage.base import Snapshot, fold_path
from toolfold.types import Node, Path

_SUM_LIMIT = 1 << 32
AGAIN = "call the same operation again, list or search_tool_by_category, without a cursor"


class Position(Struct, frozen=True, array_like=True):
    """The last entry listed: a node by its folded path, with a sum over all up to it; a tool by its id; or a place in
    a ranking, with the generation that was ranked."""

    kind: Literal["node", "tool", "rank"]
    name: str
    before: int = 0
    generation: int = 0
    rest: int = 0
    """A sum over the tools that were still to come, in any order."""

    @classmethod
    def after_nodes(cls, listed: Sequence[Node], generation: int = 0, rest: int = 0) -> "Position":
        """The position after the last of these nodes, which are all that were listed so far."""
        return cls("node", fold_path(listed[-1].path), _sum(listed), generation, rest)

    def nodes_after(self, nodes: Sequence[Node]) -> Sequence[Node]:
        """What is still to be shown. Raises `BadCursor` where the nodes before the position are no longer the same."""
        for number, node in enumerate(nodes, start=1):
            if fold_path(node.path) == self.name and _sum(nodes[:number]) == self.before:
                return nodes[number:]
        raise BadCursor("the categories here changed since the cursor was given out", next_action=AGAIN)

    async def check_rest(self, snapshot: Snapshot, last_tool: str, rest: Sequence[str]) -> None:
        """Raises `BadCursor` where a tool that was still to come may have left for another place."""
        same = self.generation == state_of(snapshot) or self.rest == sum_of_tools(rest)
        if not same and not await self._is_rest(snapshot, last_tool, rest):
            raise BadCursor("tools moved to other categories since the cursor was given out", next_action=AGAIN)

    async def _is_rest(self, snapshot: Snapshot, last_tool: str, rest: Sequence[str]) -> bool:
        kept = await snapshot.generations()
        if not kept or not kept[0].number <= self.generation + 1 <= snapshot.generation:
            return False
        steps = await snapshot.changes(self.generation + 1, snapshot.generation)
        changes = net_changes(change for _, change in steps)
        ids = {kind: [change.tool_id for change in changes if change.kind == kind] for kind in ("added", "removed")}
        left = sum_of_tools(set(rest).difference(ids["added"]))
        after = sum_of_tools(tool_id for tool_id in ids["removed"] if tool_id.casefold() > last_tool.casefold())
        # Of the removed tools none stood here, or all after the cursor did; anything between is refused.
        return self.rest in {left, (left + after) % _SUM_LIMIT}


def state_of(snapshot: Snapshot) -> int:
    """What a cursor remembers of the catalogue: its generation; for a caller who does not see all of it a sum over what
    it sees (`state`), since the generation would tell when something hidden changed."""
    return getattr(snapshot, "state", snapshot.generation)


class _Sealed(Struct, array_like=True):
    question: int
    position: Position


def encode_cursor(path: Path, tags: Collection[str], position: Position) -> str:
    # The checksum tells a cut or mistyped cursor from a good one; it protects nothing.
    body = _encode(_Sealed(_question(path, tags), position))
    return urlsafe_b64encode(crc32(body).to_bytes(4, "big") + body).decode().rstrip("=")


def decode_cursor(cursor: str, path: Path, tags: Collection[str]) -> Position:
    """Reads a cursor back. Raises `BadCursor` for what is not one, or belongs to another question."""
    try:
        sealed = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        body = sealed[4:]
        if crc32(body).to_bytes(4, "big") != sealed[:4]:
            raise _foreign()
        content = _decode(body)
    except (MsgspecError, ValueError) as error:
        raise _foreign() from error
    if content.question != _question(path, tags):
        raise BadCursor("the cursor belongs to another path, query or other tags", next_action=AGAIN)
    return content.position


def sum_of_tools(tool_ids: Iterable[str]) -> int:
    """The same for the same ids in any order; ids can be added to it and taken from it."""
    return sum(crc32(tool_id.encode(errors="surrogatepass")) for tool_id in tool_ids) % _SUM_LIMIT


def _sum(nodes: Sequence[Node]) -> int:
    return crc32("\n".join(fold_path(node.path) for node in nodes).encode())


def _question(path: Path, tags: Collection[str]) -> int:
    return crc32(_encode([[name.casefold() for name in path], sorted({tag.casefold() for tag in tags})]))


def _foreign() -> BadCursor:
    return BadCursor("this is not a cursor that was given out, or it was cut", next_action=AGAIN)


_encode = Encoder().encode
_decode = Decoder(_Sealed).decode
