"""The rows that a dump of SQL inserts, by the columns of their tables. Above: `records.py`."""

import re
from collections.abc import Iterator
from typing import Any

# The rows that a dump of SQL inserts: `INSERT INTO orders (id, state) VALUES (1, 'open'), …`.
SQL_NAME = r"[`\"\[]?[\w.$]+[`\"\]]?(?:\.[`\"\[]?\w+[`\"\]]?)?"
SQL_CELL = r"'(?:[^'\\]|''|\\.)*+'|[^',()]++(?:\([^()]*+\))?"
SQL_STATEMENT = re.compile(
    rf"^\s*(CREATE\s+TABLE(?:\s+IF\s+NOT\s+EXISTS)?\s+|INSERT\s+INTO\s+)({SQL_NAME})\s*"
    rf"(?:\(((?:[^()]++|\([^()]*+\))*+)\))?\s*(?:VALUES\s*)?",
    re.IGNORECASE | re.MULTILINE,
)
SQL_CELLS = re.compile(rf"\s*({SQL_CELL})\s*(?:,|$)", re.DOTALL)
SQL_ROW = re.compile(rf"\s*,?\s*\(((?:{SQL_CELL}|,)*+)\)", re.DOTALL)
# What a column's definition begins with that is none.
SQL_NO_COLUMNS = frozenset({"primary", "unique", "key", "constraint", "foreign", "check", "index"})
SQL_INSERTS = re.compile(rb"^\s*INSERT\s+INTO\s+\S+", re.IGNORECASE | re.MULTILINE)


def inserted_rows(text: str) -> Iterator[tuple[str, int, dict[str, Any] | None]]:
    """Table, place in the text and values of each row; no values where they do not fit the columns."""
    columns: dict[str, list[str]] = {}
    for match in SQL_STATEMENT.finditer(text):
        table, names = match[2].rpartition(".")[2].strip('`"[]'), _sql_columns(match[3] or "")
        if match[1].lower().startswith("create"):
            columns[table] = names
            continue
        header, at = names or columns.get(table, []), match.end()
        while row := SQL_ROW.match(text, at):
            yield table, row.start(1), _sql_row(header, SQL_CELLS.findall(row[1]))
            at = row.end()


def _sql_columns(defined: str) -> list[str]:
    """The names of columns, from their list or their definitions."""
    names = (own.split()[0].strip('`"[]') for own in re.sub(r"\([^()]*\)", "", defined).split(",") if own.strip())
    return [name for name in names if name.lower() not in SQL_NO_COLUMNS]


def _sql_row(header: list[str], cells: list[str]) -> dict[str, Any] | None:
    if len(cells) != len(header):
        return None
    return {name: value for name, value in zip(header, map(_sql_value, cells), strict=True) if value is not None}


def _sql_value(cell: str) -> str | None:
    cell = cell.strip()
    if cell.startswith("'"):
        return re.sub(r"\\(.)", r"\1", cell[1:-1].replace("''", "'"))
    return None if cell.upper() == "NULL" else cell
