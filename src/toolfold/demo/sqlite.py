"""A small real MCP server for one SQLite database: `python -m toolfold.demo.sqlite FILE`.

`query` opens the file for reading only. Neither it nor `execute` can reach another file, and both are bounded in time
and rows.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from toolfold.demo.server import serve
from toolfold.upstream.function_tool import Function, tool

if TYPE_CHECKING:
    import sqlite3

TIMEOUT_S = 10.0
_MAX_CELL = 20_000

_Value = str | int | float | None
_Count = Annotated[int, Meta(ge=1, le=1000)]


class Table(Struct):
    """A table or view."""

    name: str
    kind: Annotated[str, Meta(description="`table` or `view`.")]
    rows: Annotated[int | None, Meta(description="How many rows; null for a view.")]


class Column(Struct):
    """A column of a table."""

    name: str
    type: str
    nullable: bool
    primary_key: bool
    default: str | None


class ForeignKey(Struct):
    """Where a column points."""

    column: str
    table: str
    target: str


class Description(Struct):
    """How a table is made."""

    name: str
    columns: list[Column]
    foreign_keys: list[ForeignKey]
    indexes: list[str]
    sql: str


class Rows(Struct):
    """What a query found."""

    columns: list[str]
    rows: Annotated[list[list[_Value]], Meta(description="One list a row, in the order of `columns`.")]
    truncated: Annotated[bool, Meta(description="Whether there are more rows; use LIMIT and OFFSET to get them.")]


class Changed(Struct):
    """What a statement changed."""

    rows_changed: int
    last_row_id: int | None


class _SqliteTools:
    """The tools, for one database file."""

    def __init__(self, file: Path) -> None:
        self._file = file.resolve()

    def functions(self) -> list[Function]:
        return [self.list_tables, self.describe, self.query, self.execute]

    @tool(title="List tables", read_only=True, open_world=False)
    def list_tables(self) -> list[Table]:
        """List the tables and views of the database, with their number of rows."""
        with self._open(write=False) as database:
            rows = database.execute(
                "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view')"
                " AND name NOT LIKE 'sqlite_%' ORDER BY name"
            ).fetchall()
            return [Table(name, kind, _count(database, name) if kind == "table" else None) for name, kind in rows]

    @tool(title="Describe a table", read_only=True, open_world=False)
    def describe(self, table: str) -> Description:
        """Describe a table: its columns, keys, indexes, and the statement that made it.

        Args:
            table: The name of the table or view.
        """
        with self._open(write=False) as database:
            row = database.execute("SELECT name, sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
            if row is None:
                names = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
                raise ValueError(f"there is no table {table!r}; there are: {', '.join(sorted(names))}")
            columns = database.execute("SELECT * FROM pragma_table_info(?)", (table,)).fetchall()
            keys = database.execute('SELECT "from", "table", "to" FROM pragma_foreign_key_list(?)', (table,))
            indexes = database.execute("SELECT name FROM pragma_index_list(?)", (table,))
            return Description(
                name=row[0],
                columns=[
                    Column(name, kind, not strict, bool(key), default)
                    for _, name, kind, strict, default, key in columns
                ],
                foreign_keys=[ForeignKey(*key) for key in keys],
                indexes=[name for (name,) in indexes],
                sql=row[1] or "",
            )

    @tool(title="Query", read_only=True, open_world=False)
    def query(self, sql: str, parameters: list[_Value] | None = None, limit: _Count = 100) -> Rows:
        """Run one SELECT and return its rows. The database is open for reading only.

        Args:
            sql: The statement, with `?` for each parameter.
            parameters: The values of the parameters, in order.
            limit: How many rows at most.
        """
        with self._open(write=False) as database:
            cursor = database.execute(sql, parameters or [])
            # One more than asked for shows that there are more.
            rows = cursor.fetchmany(limit + 1)
            columns = [column[0] for column in cursor.description or ()]
            return Rows(columns, [[_render_cell(value) for value in row] for row in rows[:limit]], len(rows) > limit)

    @tool(title="Change data", read_only=False, destructive=True, idempotent=False, open_world=False)
    def execute(self, sql: str, parameters: list[_Value] | None = None) -> Changed:
        """Run one statement that changes the database: INSERT, UPDATE, DELETE, CREATE, DROP.

        Args:
            sql: The statement, with `?` for each parameter.
            parameters: The values of the parameters, in order.
        """
        with self._open(write=True) as database:
            cursor = database.execute(sql, parameters or [])
            database.commit()
            return Changed(max(cursor.rowcount, 0), cursor.lastrowid or None)

    @contextmanager
    def _open(self, *, write: bool) -> Iterator["sqlite3.Connection"]:
        """A connection that reaches this file only and gives up in time."""
        import sqlite3
        import time

        until = time.monotonic() + TIMEOUT_S
        address = f"{self._file.as_uri()}?mode={'rw' if write else 'ro'}"
        database = sqlite3.connect(address, uri=True, timeout=TIMEOUT_S)
        try:
            # Statements come from a model: ATTACH and PRAGMA would reach other files.
            database.set_authorizer(_authorize)
            # The timeout of `connect` is for locks only; a runaway query ends here.
            database.set_progress_handler(lambda: time.monotonic() > until, 10_000)
            yield database
        except sqlite3.OperationalError as error:
            if "interrupted" in str(error):
                raise TimeoutError(f"the statement took over {TIMEOUT_S:g} s; ask for less") from None
            raise
        finally:
            database.close()


def _authorize(action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
    """Lets everything through but what opens other files or changes how the library works."""
    import sqlite3

    del second, database, trigger
    # What `describe` uses; other pragmas write, or change how the library works.
    harmless = {"table_info", "foreign_key_list", "index_list"}
    if action in (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH):
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_PRAGMA and first not in harmless:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _count(database: "sqlite3.Connection", table: str) -> int:
    quoted = table.replace('"', '""')
    (count,) = database.execute(f'SELECT count(*) FROM "{quoted}"').fetchone()  # noqa: S608 - quoted above
    return int(count)


def _render_cell(value: Any) -> _Value:
    if isinstance(value, bytes):
        return f"({len(value)} bytes) {value[:64].hex()}"
    if isinstance(value, str) and len(value) > _MAX_CELL:
        return f"{value[:_MAX_CELL]}… ({len(value)} characters)"
    return value  # type: ignore[no-any-return]  # SQLite holds texts, numbers, bytes and null only


def main() -> None:
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_file():
        sys.exit("Name a SQLite file that is there. Usage: python -m toolfold.demo.sqlite FILE")
    serve(
        "demo-sqlite",
        _SqliteTools(Path(sys.argv[1])).functions(),
        instructions="Reads and changes one SQLite database: tables, columns, queries.",
    )


if __name__ == "__main__":
    main()
