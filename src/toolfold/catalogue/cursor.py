"""Where a listing goes on. Opaque to whoever carries it; after a change of the catalogue still good, or refused.

A cursor names the last entry shown, not a count: tools that are added or removed meanwhile neither repeat nor skip one
that was there all along. Categories stand in the order of their size, which may change, so a cursor among them also
knows what stood before it, and is refused where that is no longer so. It belongs to one path and one set of tags. It
holds nothing secret and grants nothing.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Sequence
from typing import Literal
from zlib import crc32

from msgspec import MsgspecError, Struct
from msgspec.json import Decoder, Encoder

from toolfold.errors import BadCursor
from toolfold.storage.base import fold_path
from toolfold.types import Node, Path

_AGAIN = "call list again with the same path and tags and without a cursor"


class Position(Struct, frozen=True, array_like=True):
    """The last entry listed: a node by its folded path, with a sum over all up to it; a tool by its id; or a place in
    a ranking, with the generation that was ranked."""

    kind: Literal["node", "tool", "rank"]
    name: str
    before: int = 0


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
        raise BadCursor("the cursor belongs to another path or other tags", next_action=_AGAIN)
    return content.position


def node_position(listed: Sequence[Node]) -> Position:
    """The position after the last of these nodes, which are all that were listed so far."""
    return Position("node", fold_path(listed[-1].path), _sum(listed))


def nodes_after(nodes: Sequence[Node], position: Position) -> Sequence[Node]:
    """What is still to be shown. Raises `BadCursor` where the nodes before the position are no longer the same."""
    for number, node in enumerate(nodes, start=1):
        if fold_path(node.path) == position.name and _sum(nodes[:number]) == position.before:
            return nodes[number:]
    raise BadCursor("the categories here changed since the cursor was given out", next_action=_AGAIN)


def _sum(nodes: Sequence[Node]) -> int:
    return crc32("\n".join(fold_path(node.path) for node in nodes).encode())


def _question(path: Path, tags: Collection[str]) -> int:
    return crc32(_encode([[name.casefold() for name in path], sorted({tag.casefold() for tag in tags})]))


def _foreign() -> BadCursor:
    return BadCursor("this is not a cursor that list gave out, or it was cut", next_action=_AGAIN)


_encode = Encoder().encode
_decode = Decoder(_Sealed).decode
