"""Tasks that need two or three servers: what one says goes into another."""

import asyncio
from typing import Any

from toolfold.bench.agent_tasks import Task, Tool, answers, both, database_holds, file_holds
from toolfold.bench.agent_tasks_files import READ, WRITE
from toolfold.bench.agent_tasks_git import LOG
from toolfold.bench.agent_tasks_sqlite import EXECUTE, QUERY
from toolfold.bench.agent_world import World


async def top_titles(query: Tool, write: Tool) -> Any:
    found = await query(sql="SELECT title FROM revenue LIMIT 3")
    await write(path="top.txt", text="\n".join(row[0] for row in found.rows))
    return "Written."


async def changes(log: Tool, write: Tool) -> Any:
    found = await log(limit=5)
    await write(path="changes.txt", text="\n".join(commit.subject for commit in found.commits))
    return "Written."


async def reprice(read: Tool, execute: Tool) -> Any:
    found = await read(path="prices.csv")
    (price,) = [line.split(",")[1] for line in found.text.splitlines() if line.startswith("Fog,")]
    cents = round(float(price) * 100) + 500
    await execute(sql="UPDATE products SET price_cents = ? WHERE title = 'Fog'", parameters=[cents])
    return cents


async def commit_table(log: Tool, execute: Tool) -> Any:
    found = await log(limit=3)
    await execute(sql="CREATE TABLE commits (sha TEXT, subject TEXT)")
    for commit in found.commits:
        await execute(sql="INSERT INTO commits VALUES (?, ?)", parameters=[commit.sha, commit.subject])
    return "Made."


async def differing(read: Tool, query: Tool) -> Any:
    listed, stored = await asyncio.gather(
        read(path="prices.csv"), query(sql="SELECT title, price_cents FROM products", limit=1000)
    )
    cents = {row[0]: row[1] for row in stored.rows}
    rows = [line.rsplit(",", 1) for line in listed.text.splitlines()[1:]]
    return sum(round(float(price) * 100) != cents[title] for title, price in rows)


async def last_customer(query: Tool, write: Tool) -> Any:
    found = await query(
        sql="SELECT o.id, o.ordered_on, o.status, c.name, c.email, c.city FROM orders o"
        " JOIN customers c ON c.id = o.customer_id ORDER BY o.id",
        limit=1000,
    )
    await write(path="last.txt", text=found.rows[299][3])
    return "Written."


async def summary(log: Tool, query: Tool, list_folder: Tool, write: Tool) -> Any:
    commits, customers, notes = await asyncio.gather(
        log(limit=1000), query(sql="SELECT count(*) FROM customers"), list_folder(path="notes")
    )
    counts = {"commits": len(commits.commits), "customers": customers.rows[0][0], "notes": len(notes.entries)}
    await write(path="summary.txt", text="\n".join(f"{key}: {value}" for key, value in counts.items()))
    return "Written."


async def cities(query: Tool, write: Tool) -> Any:
    places = ["Emden", "Husum", "Kiel", "Leer", "Stade"]
    found = await asyncio.gather(
        *(query(sql="SELECT name FROM customers WHERE city = ? ORDER BY name", parameters=[place]) for place in places)
    )
    await asyncio.gather(
        *(
            write(path=f"cities/{place}.txt", text="\n".join(row[0] for row in one.rows))
            for place, one in zip(places, found, strict=True)
        )
    )
    return "Written."


async def authors_file(log: Tool, query: Tool, write: Tool) -> Any:
    commits = await log(limit=1000)
    names = sorted({commit.author for commit in commits.commits})
    known = await asyncio.gather(
        *(query(sql="SELECT count(*) FROM customers WHERE name = ?", parameters=[name]) for name in names)
    )
    buyers = [name for name, one in zip(names, known, strict=True) if one.rows[0][0]]
    await write(path="authors.txt", text="\n".join(buyers))
    return buyers


async def till_sales(read: Tool, execute: Tool) -> Any:
    found = await read(path="logs/till.log", start=1, lines=100)
    sales = sum(" sale " in line for line in found.text.splitlines())
    await execute(sql="CREATE TABLE till (sales INTEGER)")
    await execute(sql="INSERT INTO till VALUES (?)", parameters=[sales])
    return sales


def _summary(world: World) -> str:
    notes = len(list((world.data / "files/notes").iterdir()))
    customers = world.value("SELECT count(*) FROM customers")
    return f"commits: {world.git('rev-list', '--count', 'HEAD')}\ncustomers: {customers}\nnotes: {notes}"


def _fog(world: World) -> int:
    (price,) = [line.split(",")[1] for line in world.file("prices.csv").splitlines() if line.startswith("Fog,")]
    return int(price.replace(".", "")) + 500


def _differing(world: World) -> int:
    cents = dict(world.rows("SELECT title, price_cents FROM products"))
    rows = [line.rsplit(",", 1) for line in world.file("prices.csv").splitlines()[1:]]
    return sum(int(price.replace(".", "")) != cents[title] for title, price in rows)


def _in_city(city: str) -> Any:
    sql = "SELECT group_concat(name, char(10)) FROM (SELECT name FROM customers WHERE city = ? ORDER BY name)"
    return file_holds(f"cities/{city}.txt", lambda world: str(world.value(sql, city)))


def _buyers(world: World) -> str:
    names = sorted(set(world.git("log", "--format=%an").splitlines()))
    return "\n".join(name for name in names if world.value("SELECT 1 FROM customers WHERE name = ?", name))


TASKS = (
    Task(
        name="joint-top",
        text="Write the three titles with most revenue in the shop's database to top.txt, the first first, one a line.",
        needs={"sqlite.query": QUERY, "files.write": WRITE},
        plan=top_titles,
        check=file_holds(
            "top.txt", lambda world: "\n".join(row[0] for row in world.rows("SELECT title FROM revenue LIMIT 3"))
        ),
    ),
    Task(
        name="joint-changes",
        text="Write the subjects of the repository's five newest commits to changes.txt, newest first, one a line.",
        needs={"git.log": LOG, "files.write": WRITE},
        plan=changes,
        check=file_holds("changes.txt", lambda world: world.git("log", "-5", "--format=%s")),
    ),
    Task(
        name="joint-reprice",
        text="Set the price of Fog in the shop's database to what prices.csv says plus 5 euros, in cents.",
        needs={"files.read": READ, "sqlite.execute": EXECUTE},
        plan=reprice,
        check=database_holds("SELECT price_cents FROM products WHERE title = 'Fog'", lambda world: [(_fog(world),)]),
    ),
    Task(
        name="joint-table",
        text=(
            "Make a table commits (sha, subject) in the shop's database and put the repository's three newest commits "
            "into it, newest first."
        ),
        needs={"git.log": LOG, "sqlite.execute": EXECUTE},
        plan=commit_table,
        check=database_holds(
            "SELECT sha, subject FROM commits ORDER BY rowid",
            lambda world: [(line[:40], line[41:]) for line in world.git("log", "-3", "--format=%H %s").splitlines()],
        ),
    ),
    Task(
        name="joint-compare",
        text="How many titles in prices.csv have another price in the table products of the shop's database?",
        needs={"files.read": READ, "sqlite.query": QUERY},
        plan=differing,
        check=answers(_differing),
    ),
    Task(
        name="joint-large",
        text=(
            "Get all orders with the customer's name, e-mail and city in one query, by order id, and write the "
            "customer's name in the last row to last.txt."
        ),
        needs={"sqlite.query": QUERY, "files.write": WRITE},
        plan=last_customer,
        extracts={"sqlite.query": ("rows[299]",)},
        check=file_holds(
            "last.txt",
            lambda world: str(
                world.value("SELECT name FROM customers WHERE id = (SELECT customer_id FROM orders WHERE id = 300)")
            ),
        ),
    ),
    Task(
        name="joint-summary",
        text=(
            "Write summary.txt with three lines, `commits: N`, `customers: N` and `notes: N`: the commits on the "
            "current branch of the repository, the customers in the shop's database, the files in the folder notes."
        ),
        needs={
            "git.log": LOG,
            "sqlite.query": QUERY,
            "files.list": "list the files in a folder",
            "files.write": WRITE,
        },
        plan=summary,
        check=file_holds("summary.txt", _summary),
    ),
    Task(
        name="joint-cities",
        text=(
            "For each city of the shop's customers (Emden, Husum, Kiel, Leer, Stade) write a file cities/CITY.txt with "
            "the names of the customers there, sorted, one a line."
        ),
        needs={"sqlite.query": QUERY, "files.write": WRITE},
        plan=cities,
        check=both(*(_in_city(city) for city in ("Emden", "Husum", "Kiel", "Leer", "Stade"))),
    ),
    Task(
        name="joint-authors",
        text=(
            "Which authors of commits in the repository are also customers in the shop's database, by full name? Write "
            "them to authors.txt, sorted, one a line."
        ),
        needs={"git.log": LOG, "sqlite.query": QUERY, "files.write": WRITE},
        plan=authors_file,
        check=file_holds("authors.txt", _buyers),
    ),
    Task(
        name="joint-till",
        text=(
            "Count the sales in the first 100 lines of logs/till.log (lines with the word sale), make a table till "
            "with one column sales in the shop's database, and put the number into it."
        ),
        needs={"files.read": READ, "sqlite.execute": EXECUTE},
        plan=till_sales,
        check=database_holds(
            "SELECT sales FROM till",
            lambda world: [(sum(" sale " in line for line in world.file("logs/till.log").splitlines()[:100]),)],
        ),
    ),
)
