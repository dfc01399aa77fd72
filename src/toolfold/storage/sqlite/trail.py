"""The append-only trail, as plain blocking functions on a connection. `store.py` runs them."""

import sqlite3
from collections.abc import Sequence

from toolfold.storage.base import AuditRow

AT_ONCE = 128
"""Lines in one statement: while it runs, other threads of this process go on."""


def append(db: sqlite3.Connection, rows: Sequence[AuditRow], *, keep: int, oldest: float) -> None:
    for first in range(0, len(rows), AT_ONCE):
        some = rows[first : first + AT_ONCE]
        values = [value for row in some for value in (row.at, row.caller, row.session, row.selection, row.record)]
        places = ",".join(("(?, ?, ?, ?, ?)",) * len(some))
        db.execute(f"INSERT INTO trail (at, caller, session, selection, record) VALUES {places}", values)  # noqa: S608 - question marks only
    db.execute("DELETE FROM trail WHERE number <= (SELECT max(number) FROM trail) - ?", (keep,))
    # Up to the first line that is young enough: what stands behind it came later.
    young = "SELECT number FROM trail WHERE at >= ? ORDER BY number LIMIT 1"
    db.execute(f"DELETE FROM trail WHERE number < coalesce(({young}), 9e18)", (oldest,))  # noqa: S608 - our own words


def read(
    db: sqlite3.Connection,
    *,
    caller: str | None,
    session: str | None,
    after: int,
    last: int | None,
) -> list[AuditRow]:
    where = ["number > ?"]
    values: list[str | int] = [after]
    for column, wanted in (("caller", caller), ("session", session)):
        if wanted is not None:
            where.append(f"{column} = ?")
            values.append(wanted)
    query = f"""
        SELECT number, at, caller, session, selection, record FROM trail
        WHERE {" AND ".join(where)} ORDER BY number DESC LIMIT ?
    """  # noqa: S608 - joined from our own words only
    rows = db.execute(query, (*values, -1 if last is None else last)).fetchall()
    return [
        AuditRow(number=row[0], at=row[1], caller=row[2], session=row[3], selection=row[4], record=bytes(row[5]))
        for row in reversed(rows)
    ]
