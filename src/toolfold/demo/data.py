"""Makes the demo's data in a folder: a git repository with a history, a folder of files, the database of a small shop.

The same bytes each time, in well under a second. It starts only the `git` executable, and goes on without it.
"""

import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from toolfold.demo.history import COMMITS, fast_import_stream
from toolfold.types import ServerSpec

_SEED = 20240607

_NOTES = {
    "README.md": (
        "# Harbour Books\n\nA small bookshop at the harbour. This folder holds what the shop writes down:\n"
        "notes of meetings, the price list, and the log of the till.\n"
    ),
    "notes/2024-03-meeting.md": (
        "# March meeting\n\n- Returns are up: people order the wrong edition. Show the edition larger.\n"
        "- Mara orders 40 tide tables for the season.\n- TODO: ask the printer about the summer catalogue.\n"
    ),
    "notes/2024-04-meeting.md": (
        "# April meeting\n\n- The summer catalogue goes to print on 20 May.\n"
        "- Shipping to the islands now takes three days.\n- TODO: new labels for the map shelf.\n"
    ),
    "notes/suppliers.md": (
        "# Suppliers\n\n| name | what | days |\n|---|---|---|\n| Nordlicht | fiction | 3 |\n"
        "| Kartograf | maps, tide tables | 7 |\n| Papier & Co | paper, pens | 2 |\n"
    ),
    "config/shop.json": '{\n  "currency": "EUR",\n  "vat": 0.07,\n  "open": {"mon-fri": "9-18", "sat": "9-14"}\n}\n',
}
_TITLES = (
    "Tide Tables", "Harbour Lights", "The Lock Keeper", "Knots and Splices", "Northern Birds", "A Map of Winds",
    "The Quiet Pilot", "Salt and Rye", "Island Kitchens", "Signals at Sea", "The Long Quay", "Shells of the Coast",
    "Weather Notes", "The Ferry Years", "Fog", "Charts for Beginners", "The Boat Shed", "Low Water",
    "Letters from the Pier", "A Year of Storms",
)  # fmt: skip
_FIRST = ("Mara", "Jonas", "Aylin", "Pieter", "Lena", "Tomas", "Ingrid", "Yusuf", "Clara", "Ewan")
_LAST = ("Brandt", "Okafor", "Lind", "Moreau", "Petersen", "Kaya", "Novak", "Reid")
_CITIES = ("Husum", "Leer", "Emden", "Stade", "Kiel")
_SCHEMA = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL UNIQUE, city TEXT NOT NULL);
CREATE TABLE products (
  id INTEGER PRIMARY KEY, title TEXT NOT NULL, price_cents INTEGER NOT NULL, stock INTEGER NOT NULL DEFAULT 0);
CREATE TABLE orders (
  id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers (id), ordered_on TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('open', 'paid', 'shipped', 'returned')));
CREATE TABLE order_items (
  order_id INTEGER NOT NULL REFERENCES orders (id), product_id INTEGER NOT NULL REFERENCES products (id),
  quantity INTEGER NOT NULL, PRIMARY KEY (order_id, product_id));
CREATE INDEX orders_by_customer ON orders (customer_id);
CREATE VIEW revenue AS
  SELECT p.title, sum(i.quantity * p.price_cents) AS cents FROM order_items i
  JOIN products p ON p.id = i.product_id GROUP BY p.id ORDER BY cents DESC;
"""


class DemoData(Struct, frozen=True):
    """Where the demo's data lies. `repository` is `None` where git is missing; `notes` says so."""

    repository: Path | None
    files: Path
    database: Path
    notes: tuple[str, ...] = ()


def make_demo_data(directory: Path) -> DemoData:
    """Makes all of it below `directory`, in place of what an earlier demo left there under the same names."""
    directory.mkdir(parents=True, exist_ok=True)
    files, database, repository = directory / "files", directory / "shop.db", directory / "repository"
    for old in (files, repository):
        if old.is_dir():
            shutil.rmtree(old)
    database.unlink(missing_ok=True)
    _make_files(files)
    _make_database(database)
    problem = _make_repository(repository)
    return DemoData(None if problem else repository, files, database, (problem,) if problem else ())


def demo_servers(data: DemoData) -> tuple[ServerSpec, ...]:
    """The demo servers on that data, started with this very Python."""

    def server(name: str, target: Path) -> ServerSpec:
        # -P: the folder it is started in holds nothing of ours, whatever its files are named.
        args = ("-P", "-m", f"toolfold.demo.{name}", str(target))
        return ServerSpec(name=name, transport="stdio", command=sys.executable, args=args)

    servers = [server("files", data.files), server("sqlite", data.database)]
    return (server("git", data.repository), *servers) if data.repository is not None else tuple(servers)


def _make_files(root: Path) -> None:
    chance = random.Random(_SEED)  # noqa: S311 - the same data each time is the point
    prices = ["title,price_eur"] + [f"{title},{chance.randrange(690, 4990) / 100:.2f}" for title in _TITLES]
    till = [
        f"2024-05-{day:02d}T{chance.randrange(9, 18):02d}:{chance.randrange(60):02d} "
        f"{chance.choice(('sale', 'sale', 'sale', 'return', 'drawer opened'))} "
        f"{chance.choice(_TITLES)}"
        for day in range(1, 29)
        for _ in range(12)
    ]
    texts = {**_NOTES, "prices.csv": "\n".join(prices) + "\n", "logs/till.log": "\n".join(till) + "\n"}
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


def _make_database(file: Path) -> None:
    chance = random.Random(_SEED)  # noqa: S311 - as above
    names = [f"{first} {last}" for last in _LAST for first in _FIRST][:60]
    customers = [
        (number, name, f"{name.lower().replace(' ', '.')}@example.org", chance.choice(_CITIES))
        for number, name in enumerate(names, 1)
    ]
    products = [
        (number, title, chance.randrange(690, 4990), chance.randrange(0, 40)) for number, title in enumerate(_TITLES, 1)
    ]
    orders, items = [], []
    for number in range(1, 301):
        day = f"2024-{chance.randrange(1, 6):02d}-{chance.randrange(1, 29):02d}"
        status = chance.choice(("open", "paid", "shipped", "shipped", "shipped", "returned"))
        orders.append((number, chance.randrange(1, len(customers) + 1), day, status))
        chosen = chance.sample(range(1, len(products) + 1), chance.randrange(1, 4))
        items += [(number, product, chance.randrange(1, 4)) for product in chosen]
    with closing(sqlite3.connect(file)) as database:
        database.executescript(_SCHEMA)
        database.executemany("INSERT INTO customers VALUES (?, ?, ?, ?)", customers)
        database.executemany("INSERT INTO products VALUES (?, ?, ?, ?)", products)
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", orders)
        database.executemany("INSERT INTO order_items VALUES (?, ?, ?)", items)
        database.commit()


def _make_repository(root: Path) -> str:
    """Writes the history in one go. Returns why there is none, or an empty text."""
    if shutil.which("git") is None:
        return "The `git` program is not installed, so the demo goes on without its git server."
    try:
        _git(root.parent, "init", "--quiet", "--initial-branch=main", "--template=", str(root))
        _git(root, "fast-import", "--quiet", stdin=fast_import_stream(COMMITS))
        _git(root, "reset", "--quiet", "--hard", "main")
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(root, ignore_errors=True)
        said = error.stderr if isinstance(error, subprocess.CalledProcessError) else b""
        why = said.decode("utf-8", "replace").strip().partition("\n")[0] or str(error)
        return f"git could not make the demo's repository ({why}), so the demo goes on without its git server."
    return ""


def _git(directory: Path, *args: str, stdin: bytes = b"") -> None:
    import os

    # The person's own configuration (hooks, signing, line ends) has no part in this.
    environment = {key: os.environ[key] for key in ("PATH", "SYSTEMROOT") if key in os.environ}
    environment |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "HOME": str(directory)}
    subprocess.run(
        ["git", *args], cwd=directory, env=environment, input=stdin, capture_output=True, timeout=30, check=True
    )
