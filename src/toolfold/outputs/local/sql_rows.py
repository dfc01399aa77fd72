"""The rows that a dump of SQL inserts: `INSERT INTO orders (id, state) VALUES (1, 'open'), …`. Above: `records.py`."""

import re
from collections.abc import Iterator

_NAME = r"[`\"\[]?[\w.$]+[`\"\]]?(?:\.[`\"\[]?\w+[`\"\]]?)?"
_CELL = r"'(?:[^'\\]|''|\\.)*'|[^',()]+(?:\([^()]*\))?"
_STATEMENT = re.compile(
    rf"^\s*(CREATE\s+TABLE(?:\s+IF\s+NOT\s+EXISTS)?\s+|INSERT\s+INTO\s+)({_NAME})\s*"
    rf"(?:\(((?:[^()]|\([^()]*\))*)\))?\s*(?:VALUES\s*)?",
    re.IGNORECASE | re.MULTILINE,
)
_CELLS = re.compile(rf"\s*({_CELL})\s*(?:,|$)", re.DOTALL)
_ROW = re.compile(rf"\s*,?\s*\(((?:{_CELL}|,)*)\)", re.DOTALL)
# What a column's definition begins with that is none.
_NO_COLUMNS = frozenset({"primary", "unique", "key", "constraint", "foreign", "check", "index"})
INSERTS = re.compile(rb"^\s*INSERT\s+INTO\s+\S+", re.IGNORECASE | re.MULTILINE)


def inserted_rows(text: str) -> Iterator[tuple[str, int, dict[str, str] | None]]:
    """Table, place in the text and values of each row; no values where they do not fit the columns."""
    columns: dict[str, list[str]] = {}
    for match in _STATEMENT.finditer(text):
        table = match[2].rpartition(".")[2].strip('`"[]')
        names = [
            own.split()[0].strip('`"[]') for own in re.sub(r"\([^()]*\)", "", match[3] or "").split(",") if own.strip()
        ]
        if match[1].lower().startswith("create"):
            columns[table] = [name for name in names if name.lower() not in _NO_COLUMNS]
            continue
        header, at = names or columns.get(table, []), match.end()
        while row := _ROW.match(text, at):
            cells = [_value(cell) for cell in _CELLS.findall(row[1])]
            fits = len(cells) == len(header)
            values = {name: cell for name, cell in zip(header, cells, strict=False) if cell is not None}
            yield table, row.start(1), values if fits else None
            at = row.end()


def _value(cell: str) -> str | None:
    cell = cell.strip()
    if cell.startswith("'"):
        return re.sub(r"\\(.)", r"\1", cell[1:-1].replace("''", "'"))
    return None if cell.upper() == "NULL" else cell
