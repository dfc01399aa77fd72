"""The reads, as plain blocking functions on a connection that holds a read transaction. `store.py` runs them."""

import sqlite3
from collections.abc import Collection
from typing import Any

from msgspec.json import encode as to_json

from toolfold.storage.base import Generation, ServerRecord, Version, fold_path, sibling_order
from toolfold.storage.definition_codec import decode_definition
from toolfold.storage.sqlite.records import decode_change, decode_generation, decode_node, decode_server, tool_of
from toolfold.types import Change, Node, Path, Tool

MAX_DEPTH = 64
"""A walk down stops here, so that a cycle in what was stored cannot make it endless."""

_BELOW = f"""
    WITH RECURSIVE below(key, level) AS (
        SELECT :path, 0
        UNION SELECT edge.child, level + 1 FROM edge JOIN below ON edge.parent = below.key WHERE level < {MAX_DEPTH}
    )
"""  # noqa: S608 - the only value put in is our own constant

_TAGGED = """
    (SELECT tool FROM tag WHERE tag IN (SELECT value FROM json_each(:tags)) GROUP BY tool
     HAVING count(*) = json_array_length(:tags))
"""


def generation(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT coalesce(max(number), 0) FROM generation").fetchone()[0])


def tool(db: sqlite3.Connection, tool_id: str) -> Tool | None:
    found = tools(db, ids=[tool_id])
    return found[0] if found else None


def tools(
    db: sqlite3.Connection,
    *,
    ids: Collection[str] | None = None,
    server: str | None = None,
    after: str = "",
    limit: int | None = None,
) -> list[Tool]:
    where = ["t.folded > ?"]
    values: list[Any] = [after.casefold()]
    if ids is not None:
        where.append("t.folded IN (SELECT value FROM json_each(?))")
        values.append(to_json([one.casefold() for one in ids]).decode())
    if server is not None:
        where.append("t.server = ?")
        values.append(server)
    query = f"""
        SELECT t.record, v.definition FROM tool t JOIN version v ON v.tool = t.folded AND v.number = t.version
        WHERE {" AND ".join(where)} ORDER BY t.folded LIMIT ?
    """  # noqa: S608 - joined from our own words only
    return [tool_of(row) for row in db.execute(query, (*values, _bound(limit)))]


def tool_ids(db: sqlite3.Connection) -> list[str]:
    return [row[0] for row in db.execute("SELECT tool_id FROM tool ORDER BY folded")]


def tool_ids_at(
    db: sqlite3.Connection,
    path: Path,
    *,
    below: bool = False,
    tags: Collection[str] = (),
    after: str = "",
    limit: int | None = None,
) -> list[str]:
    if below and not path:
        query = "SELECT folded, tool_id FROM tool t WHERE :path = ''"  # every tool is below the root, placed or not
    elif below:
        query = f"""{_BELOW}
            SELECT DISTINCT t.folded, t.tool_id FROM below JOIN placement p ON p.node = below.key
            JOIN tool t ON t.folded = p.tool WHERE TRUE
        """  # noqa: S608 - put in are only our own constants
    else:
        query = "SELECT t.folded, t.tool_id FROM placement p JOIN tool t ON t.folded = p.tool WHERE p.node = :path"
    if tags:
        query += f" AND t.folded IN {_TAGGED}"
    query += " AND t.folded > :after ORDER BY 1 LIMIT :limit"
    values = {"path": fold_path(path), "tags": _tags(tags), "after": after.casefold(), "limit": _bound(limit)}
    return [row[1] for row in db.execute(query, values)]


def node(db: sqlite3.Connection, path: Path) -> Node | None:
    row = db.execute("SELECT record FROM node WHERE key = ?", (fold_path(path),)).fetchone()
    return decode_node(row[0]) if row else None


def nodes(db: sqlite3.Connection, *, under: Path = (), depth: int | None = None) -> list[Node]:
    if not under and depth is None:
        rows = db.execute("SELECT record FROM node ORDER BY key")
    else:
        query = f"""{_BELOW}
            SELECT record FROM node WHERE key IN (SELECT key FROM below WHERE level BETWEEN 1 AND :depth)
            AND key <> :path ORDER BY key
        """  # noqa: S608 - put in are only our own constants
        rows = db.execute(query, {"path": fold_path(under), "depth": MAX_DEPTH if depth is None else depth})
    return [decode_node(row[0]) for row in rows]


def children(db: sqlite3.Connection, path: Path, *, tags: Collection[str] = ()) -> list[Node]:
    rows = db.execute(
        "SELECT key, record FROM node WHERE key IN (SELECT child FROM edge WHERE parent = ?)", (fold_path(path),)
    )
    found = [(row[0], decode_node(row[1])) for row in rows]
    if tags:
        asked = {tag.casefold() for tag in tags}
        holding = _holding(db, path, tags)
        found = [(key, one) for key, one in found if key in holding or asked <= {tag.casefold() for tag in one.tags}]
    return sorted((one for _, one in found), key=sibling_order)


def _holding(db: sqlite3.Connection, path: Path, tags: Collection[str]) -> set[str]:
    """Which children of a path hold a tool with all of the tags, at any depth."""
    rows = db.execute(
        f"""
        WITH RECURSIVE below(top, key, level) AS (
            SELECT child, child, 1 FROM edge WHERE parent = :path
            UNION SELECT top, edge.child, level + 1 FROM edge JOIN below ON edge.parent = below.key
                WHERE level < {MAX_DEPTH}
        )
        SELECT DISTINCT top FROM below JOIN placement p ON p.node = below.key WHERE p.tool IN {_TAGGED}
        """,  # noqa: S608 - put in are only our own constants
        {"path": fold_path(path), "tags": _tags(tags)},
    )
    return {row[0] for row in rows}


def servers(db: sqlite3.Connection) -> list[ServerRecord]:
    return [decode_server(row[0]) for row in db.execute("SELECT record FROM server ORDER BY name")]


def versions(db: sqlite3.Connection, tool_id: str) -> list[Version]:
    rows = db.execute(
        "SELECT tool_id, number, fingerprint, first_seen, definition FROM version WHERE tool = ? ORDER BY number",
        (tool_id.casefold(),),
    )
    return [
        Version(
            tool_id=row[0], number=row[1], fingerprint=row[2], first_seen=row[3], definition=decode_definition(row[4])
        )
        for row in rows
    ]


def version_numbers(db: sqlite3.Connection) -> dict[str, dict[str, int]]:
    known: dict[str, dict[str, int]] = {}
    for tool_key, number, fingerprint in db.execute("SELECT tool, number, fingerprint FROM version"):
        known.setdefault(tool_key, {})[fingerprint] = number
    return known


def generations(db: sqlite3.Connection) -> list[Generation]:
    return [decode_generation(row[0]) for row in db.execute("SELECT record FROM generation ORDER BY number")]


def changes(db: sqlite3.Connection, first: int, last: int) -> list[tuple[int, Change]]:
    rows = db.execute(
        "SELECT generation, record FROM change WHERE generation BETWEEN ? AND ? ORDER BY generation, seq", (first, last)
    )
    return [(row[0], decode_change(row[1])) for row in rows]


def _tags(tags: Collection[str]) -> str:
    return to_json(sorted({tag.casefold() for tag in tags})).decode()


def _bound(limit: int | None) -> int:
    return -1 if limit is None else limit
