"""Makes the demo's data in a folder: a git repository with a history, a folder of files, the database of a small shop.

The same bytes each time, in well under a second. It starts only the `git` executable, and goes on without it.
"""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path

import msgspec
from msgspec import Struct

from toolfold.types import ServerSpec

__all__ = ["demo_servers", "make_demo_data"]

_SEED = 20240607
_START = 1_709_283_600  # 1 March 2024, 09:00 UTC
_STEP = 93_600  # 26 hours: a bit more than a day between commits

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


class _Commit(Struct, frozen=True):
    """One commit of `history.toml`, with the files it writes."""

    author: str
    message: str
    files: dict[str, str]
    branch: str = "main"
    merges: str = ""


class _DemoData(Struct, frozen=True):
    """Where the demo's data lies. `repository` is `None` where git is missing; `notes` says so."""

    repository: Path | None
    files: Path
    database: Path
    notes: tuple[str, ...] = ()


def make_demo_data(directory: Path) -> _DemoData:
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
    return _DemoData(None if problem else repository, files, database, (problem,) if problem else ())


def demo_servers(data: _DemoData) -> tuple[ServerSpec, ...]:
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
        # One process for the whole history: a `git commit` for each would take seconds.
        _git(root, "fast-import", "--quiet", stdin=_fast_import_stream())
        _git(root, "reset", "--quiet", "--hard", "main")
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(root, ignore_errors=True)
        output = error.stderr if isinstance(error, subprocess.CalledProcessError) else b""
        why = output.decode("utf-8", "replace").strip().partition("\n")[0] or str(error)
        return f"git could not make the demo's repository ({why}), so the demo goes on without its git server."
    return ""


def _fast_import_stream() -> bytes:
    """The commits of `history.toml` as `git fast-import` reads them. Dates count up from a fixed day, so hashes never
    differ."""
    history = tomllib.loads(Path(__file__).with_name("history.toml").read_text(encoding="utf-8"))
    commits = msgspec.convert(history["commits"], list[_Commit])
    out: list[bytes] = []
    branches: set[str] = {"main"}
    for number, commit in enumerate(commits):
        when = f"{_START + number * _STEP} +0100"
        out.append(f"commit refs/heads/{commit.branch}\n".encode())
        out.append(f"author {commit.author} {when}\ncommitter {commit.author} {when}\n".encode())
        out.append(_data_command(commit.message + "\n"))
        # The first commit of a branch says where it starts; fast-import would begin an empty history.
        if commit.branch not in branches:
            branches.add(commit.branch)
            out.append(b"from refs/heads/main\n")
        if commit.merges:
            out.append(f"merge refs/heads/{commit.merges}\n".encode())
        for path, text in commit.files.items():
            out.append(f"M 100644 inline {path}\n".encode() + _data_command(text))
    out.append(b"tag v0.1.0\nfrom refs/heads/main\n")
    out.append(
        f"tagger {commits[0].author} {_START + len(commits) * _STEP} +0100\n".encode()
        + _data_command("First release\n")
    )
    out.append(b"done\n")
    return b"".join(out)


def _data_command(text: str) -> bytes:
    content = text.encode()
    return f"data {len(content)}\n".encode() + content + b"\n"


def _git(directory: Path, *args: str, stdin: bytes = b"") -> None:
    # The person's own configuration (hooks, signing, line ends) has no part in this.
    environment = {key: os.environ[key] for key in ("PATH", "SYSTEMROOT") if key in os.environ}
    environment |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "HOME": str(directory)}
    subprocess.run(
        ["git", *args], cwd=directory, env=environment, input=stdin, capture_output=True, timeout=30, check=True
    )
