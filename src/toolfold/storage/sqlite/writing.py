"""One update into the file, inside a transaction that the caller holds. Blocking; `store.py` runs it."""

import sqlite3
from collections.abc import Iterable

from toolfold.errors import StoreChanged
from toolfold.storage.base import MAX_GENERATIONS, MAX_VERSIONS, REMOVED_RETENTION_S, Generation, Update, fold_path
from toolfold.storage.definition_codec import encode_definition
from toolfold.storage.sqlite import reading
from toolfold.storage.sqlite.records import encode, tool_record
from toolfold.types import Node, Path, Tool


def apply(db: sqlite3.Connection, update: Update) -> int:
    current = reading.generation(db)
    if current != update.based_on:
        raise StoreChanged(
            f"the catalogue moved on to generation {current} while an update of {update.based_on} was made",
            next_action="read the catalogue again and compute the update from what is there now",
        )
    _write_tools(db, update)
    _write_nodes(db, update.nodes, update.removed_nodes)
    _write_servers(db, update)
    if not update.makes_generation:
        return current
    _write_generation(db, current + 1, update)
    return current + 1


def _write_tools(db: sqlite3.Connection, update: Update) -> None:
    gone = [(tool_id.casefold(),) for tool_id in update.removed_tools]
    replaced = [(tool.tool_id.casefold(),) for tool in update.tools]
    # A version that stops being the current one was last seen now.
    db.executemany(
        "UPDATE version SET last_seen = ? WHERE tool = ? AND number = (SELECT version FROM tool WHERE folded = ?)",
        [(update.at, key, key) for (key,) in gone + replaced],
    )
    db.executemany("DELETE FROM tool WHERE folded = ?", gone)
    if gone or reading.generation(db):  # the first generation finds nothing to take away
        db.executemany("DELETE FROM placement WHERE tool = ?", gone + replaced)
        db.executemany("DELETE FROM tag WHERE tool = ?", gone + replaced)
    db.executemany(
        "INSERT OR REPLACE INTO tool (folded, tool_id, server, version, record) VALUES (?, ?, ?, ?, ?)",
        (
            (key, t.tool_id, t.server, t.version, tool_record(t))
            for (key,), t in zip(replaced, update.tools, strict=True)
        ),
    )
    db.executemany(
        "INSERT INTO version (tool, number, fingerprint, tool_id, first_seen, last_seen, definition)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET last_seen = excluded.last_seen, definition = excluded.definition",
        (
            (key, t.version, t.fingerprint, t.tool_id, update.at, update.at, encode_definition(t.definition))
            for (key,), t in zip(replaced, update.tools, strict=True)
        ),
    )
    db.executemany("INSERT OR IGNORE INTO placement (node, tool) VALUES (?, ?)", sorted(_placements(update.tools)))
    db.executemany("INSERT OR IGNORE INTO tag (tag, tool) VALUES (?, ?)", sorted(_tags(update.tools)))
    _forget_versions(db, update)


def _placements(tools: Iterable[Tool]) -> Iterable[tuple[str, str]]:
    return ((fold_path(path), tool.tool_id.casefold()) for tool in tools for path in tool.paths)


def _tags(tools: Iterable[Tool]) -> Iterable[tuple[str, str]]:
    return ((tag.casefold(), tool.tool_id.casefold()) for tool in tools for tag in tool.tags)


def _forget_versions(db: sqlite3.Connection, update: Update) -> None:
    db.executemany(
        "DELETE FROM version WHERE tool = ? AND number <> ? AND number <= ?",
        (
            (tool.tool_id.casefold(), tool.version, tool.version - MAX_VERSIONS)
            for tool in update.tools
            if tool.version > MAX_VERSIONS
        ),
    )
    if update.removed_tools:
        db.execute(
            "DELETE FROM version WHERE last_seen < ? AND tool NOT IN (SELECT folded FROM tool)",
            (update.at - REMOVED_RETENTION_S,),
        )


def _write_nodes(db: sqlite3.Connection, nodes: Iterable[Node], removed: Iterable[Path]) -> None:
    gone = [(fold_path(path),) for path in removed]
    kept = [(fold_path(node.path), encode(node)) for node in nodes]
    db.executemany("DELETE FROM node WHERE key = ?", gone)
    db.executemany("DELETE FROM edge WHERE child = ?", gone + [(key,) for key, _ in kept])
    db.executemany("INSERT OR REPLACE INTO node (key, record) VALUES (?, ?)", kept)
    db.executemany("INSERT OR IGNORE INTO edge (parent, child) VALUES (?, ?)", _edges(nodes))


def _edges(nodes: Iterable[Node]) -> Iterable[tuple[str, str]]:
    for node in nodes:
        key = fold_path(node.path)
        yield fold_path(node.path[:-1]), key
        for parent in node.parents:
            yield fold_path(parent), key


def _write_servers(db: sqlite3.Connection, update: Update) -> None:
    db.executemany("DELETE FROM server WHERE name = ?", [(name,) for name in update.removed_servers])
    db.executemany(
        "INSERT OR REPLACE INTO server (name, record) VALUES (?, ?)",
        [(server.name, encode(server)) for server in update.servers],
    )


def _write_generation(db: sqlite3.Connection, number: int, update: Update) -> None:
    tools, nodes, servers = db.execute(
        "SELECT (SELECT count(*) FROM tool), (SELECT count(*) FROM node), (SELECT count(*) FROM server)"
    ).fetchone()
    kinds = [change.kind for change in update.changes]
    record = Generation(
        number=number,
        at=update.at,
        tools=tools,
        nodes=nodes,
        servers=servers,
        added=kinds.count("added"),
        removed=kinds.count("removed"),
        changed=kinds.count("changed"),
    )
    db.execute("INSERT INTO generation (number, record) VALUES (?, ?)", (number, encode(record)))
    db.executemany(
        "INSERT INTO change (generation, seq, record) VALUES (?, ?, ?)",
        ((number, seq, encode(change)) for seq, change in enumerate(update.changes)),
    )
    db.execute("DELETE FROM generation WHERE number <= ?", (number - MAX_GENERATIONS,))
    db.execute("DELETE FROM change WHERE generation <= ?", (number - MAX_GENERATIONS,))
