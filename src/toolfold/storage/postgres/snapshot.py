"""One generation of the PostgreSQL store, held still by a read transaction. `store.py` hands these out."""

from collections.abc import Collection
from hashlib import sha256
from typing import Any

from toolfold.errors import StoreError
from toolfold.storage.base import Generation, ServerRecord, Version, fold_path, sibling_order
from toolfold.storage.postgres.connection import Rows, _Session, _translate_errors
from toolfold.storage.records import (
    decode_change,
    decode_definition,
    decode_generation,
    decode_node,
    decode_server,
    decode_tool,
)
from toolfold.types import Change, Node, Path, Tool

# A walk down stops here, so that a cycle in what was stored cannot make it endless.
_MAX_DEPTH = 64

# An index takes 2,704 bytes for all of its columns.
_MAX_KEY = 1000

_BELOW = f"""
    WITH RECURSIVE below(key, level) AS (
        SELECT %s::bytea, 0
        UNION SELECT edge.child, level + 1 FROM edge JOIN below ON edge.parent = below.key WHERE level < {_MAX_DEPTH}
    )
"""  # noqa: S608 - the only value put in is our own constant
_TAGGED = "(SELECT tool FROM tag WHERE tag = ANY(%s) GROUP BY tool HAVING count(*) = %s)"


def _as_key(text: str) -> bytes:
    """A text as the key of a row. Raises `ValueError` where it is none, such as half a letter."""
    whole = text.encode()
    return whole if len(whole) <= _MAX_KEY else whole[: _MAX_KEY - 32] + sha256(whole).digest()


def _folded(text: str) -> bytes:
    """A text as a key that ignores letter case."""
    return _as_key(text.casefold())


def _path_key(path: Path) -> bytes:
    return _as_key(fold_path(path))


class _PostgresSnapshot:
    """One read transaction. The methods are those of `Snapshot`."""

    def __init__(self, session: _Session, generation: int) -> None:
        self._session: _Session | None = session
        self._address = session.address
        self.generation = generation

    def end(self) -> None:
        self._session = None

    async def _rows(self, query: str, *values: Any) -> Rows:
        if self._session is None:
            raise StoreError("this snapshot is over", next_action="take a new one with `store.snapshot()`")
        return await self._session.run(query, values)

    async def tools(
        self,
        *,
        ids: Collection[str] | None = None,
        server: str | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> list[Tool]:
        where: list[str] = ["t.folded > %s"]
        values: list[Any] = [_folded(after)]
        if ids is not None:
            where.append("t.folded = ANY(%s)")
            values.append([_folded(tool_id) for tool_id in ids])
        if server is not None:
            where.append("t.server = %s")
            values.append(_as_key(server))
        query = f"""
            SELECT t.record, v.definition FROM tool t JOIN version v ON v.tool = t.folded AND v.number = t.version
            WHERE {" AND ".join(where)} ORDER BY t.folded LIMIT %s
        """  # noqa: S608 - joined from our own words only
        rows = await self._rows(query, *values, limit)
        with _translate_errors(self._address):
            return [decode_tool(*row) for row in rows]

    async def tool(self, tool_id: str) -> Tool | None:
        return next(iter(await self.tools(ids=[tool_id])), None)

    async def tool_ids(self) -> list[str]:
        return [row[0].decode() for row in await self._rows("SELECT tool_id FROM tool ORDER BY folded")]

    async def tool_ids_at(
        self,
        path: Path,
        *,
        below: bool = False,
        tags: Collection[str] = (),
        after: str = "",
        limit: int | None = None,
    ) -> list[str]:
        values: list[Any] = [_path_key(path)]
        if below and not path:
            query = "SELECT t.folded, t.tool_id FROM tool t WHERE TRUE"  # every tool is below the root, placed or not
            values = []
        elif below:
            query = f"""{_BELOW}
                SELECT DISTINCT t.folded, t.tool_id FROM below JOIN placement p ON p.node = below.key
                JOIN tool t ON t.folded = p.tool WHERE TRUE
            """  # noqa: S608 - put in are only our own constants
        else:
            query = "SELECT t.folded, t.tool_id FROM placement p JOIN tool t ON t.folded = p.tool WHERE p.node = %s"
        if tags:
            query += f" AND t.folded IN {_TAGGED}"
            values += _tagged(tags)
        query += " AND t.folded > %s ORDER BY 1 LIMIT %s"
        return [row[1].decode() for row in await self._rows(query, *values, _folded(after), limit)]

    async def node(self, path: Path) -> Node | None:
        return next(iter(await self._nodes("SELECT record FROM node WHERE key = %s", _path_key(path))), None)

    async def nodes(self, *, under: Path = (), depth: int | None = None) -> list[Node]:
        if not under and depth is None:
            return await self._nodes("SELECT record FROM node ORDER BY key")
        query = f"""{_BELOW}
            SELECT record FROM node WHERE key IN (SELECT key FROM below WHERE level BETWEEN 1 AND %s)
            AND key <> %s ORDER BY key
        """  # noqa: S608 - put in are only our own constants
        return await self._nodes(query, _path_key(under), _MAX_DEPTH if depth is None else depth, _path_key(under))

    async def _nodes(self, query: str, *values: Any) -> list[Node]:
        rows = await self._rows(query, *values)
        with _translate_errors(self._address):
            return [decode_node(row[0]) for row in rows]

    async def children(self, path: Path, *, tags: Collection[str] = ()) -> list[Node]:
        query = "SELECT record FROM node WHERE key IN (SELECT child FROM edge WHERE parent = %s)"
        children = await self._nodes(query, _path_key(path))
        if tags:
            wanted = {tag.casefold() for tag in tags}
            holding = await self._children_with_tagged_tools(path, tags)
            children = [
                node
                for node in children
                if _path_key(node.path) in holding or wanted <= {tag.casefold() for tag in node.tags}
            ]
        return sorted(children, key=sibling_order)

    async def _children_with_tagged_tools(self, path: Path, tags: Collection[str]) -> set[bytes]:
        """The children of a path that hold a tool with all of the tags, at any depth."""
        rows = await self._rows(
            f"""
            WITH RECURSIVE below(top, key, level) AS (
                SELECT child, child, 1 FROM edge WHERE parent = %s
                UNION SELECT top, edge.child, level + 1 FROM edge JOIN below ON edge.parent = below.key
                    WHERE level < {_MAX_DEPTH}
            )
            SELECT DISTINCT top FROM below JOIN placement p ON p.node = below.key WHERE p.tool IN {_TAGGED}
            """,  # noqa: S608 - put in are only our own constants
            _path_key(path),
            *_tagged(tags),
        )
        return {row[0] for row in rows}

    async def servers(self) -> list[ServerRecord]:
        rows = await self._rows("SELECT record FROM server ORDER BY name")
        with _translate_errors(self._address):
            return [decode_server(row[0]) for row in rows]

    async def versions(self, tool_id: str) -> list[Version]:
        rows = await self._rows(
            "SELECT tool_id, number, fingerprint, first_seen, definition FROM version WHERE tool = %s ORDER BY number",
            _folded(tool_id),
        )
        with _translate_errors(self._address):
            return [
                Version(
                    tool_id=name.decode(),
                    number=number,
                    fingerprint=fingerprint.decode(),
                    first_seen=at,
                    definition=decode_definition(blob),
                )
                for name, number, fingerprint, at, blob in rows
            ]

    async def version_numbers(self) -> dict[str, dict[str, int]]:
        numbers: dict[str, dict[str, int]] = {}
        for tool_key, number, fingerprint in await self._rows("SELECT tool, number, fingerprint FROM version"):
            numbers.setdefault(tool_key.decode(), {})[fingerprint.decode()] = number
        return numbers

    async def generations(self) -> list[Generation]:
        rows = await self._rows("SELECT record FROM generation ORDER BY number")
        with _translate_errors(self._address):
            return [decode_generation(row[0]) for row in rows]

    async def changes(self, first: int, last: int) -> list[tuple[int, Change]]:
        rows = await self._rows(
            "SELECT generation, record FROM change WHERE generation BETWEEN %s AND %s ORDER BY generation, seq",
            first,
            last,
        )
        with _translate_errors(self._address):
            return [(row[0], decode_change(row[1])) for row in rows]


def _tagged(tags: Collection[str]) -> list[Any]:
    """The values of `_TAGGED`."""
    wanted = sorted({_folded(tag) for tag in tags})
    return [wanted, len(wanted)]
