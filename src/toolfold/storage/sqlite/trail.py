"""The append-only trail, as plain blocking functions on a connection. `store.py` runs them."""

import sqlite3
from collections.abc import Sequence

from toolfold.storage.base import TrailRow


def append(db: sqlite3.Connection, rows: Sequence[TrailRow], *, keep: int, oldest: float) -> None:
    db.executemany(
        "INSERT INTO trail (at, caller, session, selection, record) VALUES (?, ?, ?, ?, ?)",
        [(row.at, row.caller, row.session, row.selection, row.record) for row in rows],
    )
    db.execute("DELETE FROM trail WHERE number <= (SELECT max(number) FROM trail) - ?", (keep,))
    db.execute("DELETE FROM trail WHERE at < ?", (oldest,))


def read(
    db: sqlite3.Connection,
    *,
    caller: str | None,
    session: str | None,
    selection: str | None,
    after: int,
    last: int | None,
) -> list[TrailRow]:
    where = ["number > ?"]
    values: list[str | int] = [after]
    for column, wanted in (("caller", caller), ("session", session), ("selection", selection)):
        if wanted is not None:
            where.append(f"{column} = ?")
            values.append(wanted)
    query = f"""
        SELECT number, at, caller, session, selection, record FROM trail
        WHERE {" AND ".join(where)} ORDER BY number DESC LIMIT ?
    """  # noqa: S608 - joined from our own words only
    rows = db.execute(query, (*values, -1 if last is None else last)).fetchall()
    return [
        TrailRow(number=row[0], at=row[1], caller=row[2], session=row[3], selection=row[4], record=bytes(row[5]))
        for row in reversed(rows)
    ]
