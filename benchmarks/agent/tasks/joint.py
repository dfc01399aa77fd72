"""Tasks that need two or three servers: what one says goes into another."""

import asyncio
from typing import Any

from benchmarks.agent.tasks import Tool, answers, both, database_holds, file_holds, load_tasks
from benchmarks.agent.world import World


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


CHECKS = {
    "joint-top": file_holds(
        "top.txt", lambda world: "\n".join(row[0] for row in world.rows("SELECT title FROM revenue LIMIT 3"))
    ),
    "joint-changes": file_holds("changes.txt", lambda world: world.git("log", "-5", "--format=%s")),
    "joint-reprice": database_holds(
        "SELECT price_cents FROM products WHERE title = 'Fog'", lambda world: [(_fog(world),)]
    ),
    "joint-table": database_holds(
        "SELECT sha, subject FROM commits ORDER BY rowid",
        lambda world: [(line[:40], line[41:]) for line in world.git("log", "-3", "--format=%H %s").splitlines()],
    ),
    "joint-compare": answers(_differing),
    "joint-large": file_holds(
        "last.txt",
        lambda world: str(
            world.value("SELECT name FROM customers WHERE id = (SELECT customer_id FROM orders WHERE id = 300)")
        ),
    ),
    "joint-summary": file_holds("summary.txt", _summary),
    "joint-cities": both(*(_in_city(city) for city in ("Emden", "Husum", "Kiel", "Leer", "Stade"))),
    "joint-authors": file_holds("authors.txt", _buyers),
    "joint-till": database_holds(
        "SELECT sales FROM till",
        lambda world: [(sum(" sale " in line for line in world.file("logs/till.log").splitlines()[:100]),)],
    ),
}

TASKS = load_tasks(__name__, CHECKS)
