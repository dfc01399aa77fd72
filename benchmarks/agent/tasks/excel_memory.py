"""Tasks on servers of other projects: workbooks (excel-mcp-server) and a memory (server-memory)."""

import asyncio
from typing import Any

from benchmarks.agent.tasks import Tool, answers, both, file_holds, holds, load_tasks
from benchmarks.agent.world import World


async def one_cell(create: Tool, write: Tool) -> Any:
    await create(path="$FOLDER/stock.xlsx")
    await write(path="$FOLDER/stock.xlsx", sheet="Sheet1", at="B2", rows=[[42]])
    return "Written."


async def products(query: Tool, create: Tool, write: Tool) -> Any:
    found = await query(sql="SELECT title, stock FROM products ORDER BY id LIMIT 5")
    await create(path="$FOLDER/products.xlsx", sheets=["Stock"])
    rows = [["title", "stock"], *([row[0], row[1]] for row in found.rows)]
    await write(path="$FOLDER/products.xlsx", sheet="Stock", at="A1", rows=rows)
    return "Written."


async def formula(create: Tool, write: Tool, read: Tool) -> Any:
    await create(path="$FOLDER/sum.xlsx")
    rows = [[3], [14], [25], ["=SUM(A1:A3)"]]
    await write(path="$FOLDER/sum.xlsx", sheet="Sheet1", at="A1", rows=rows)
    found = await read(path="$FOLDER/sum.xlsx", sheet="Sheet1", range="A4")
    return found.values[0][0]


async def sheets(create: Tool, add: Tool) -> Any:
    await create(path="$FOLDER/year.xlsx", sheets=["Q1"])
    await add(path="$FOLDER/year.xlsx", new_name="Q2")
    await add(path="$FOLDER/year.xlsx", new_name="Q3")
    return "Made."


async def commit_book(log: Tool, create: Tool, write: Tool) -> Any:
    found = await log(limit=4)
    await create(path="$FOLDER/commits.xlsx")
    rows = [[commit.author, commit.subject] for commit in found.commits]
    await write(path="$FOLDER/commits.xlsx", sheet="Sheet1", at="A1", rows=rows)
    return "Written."


async def remember(create: Tool) -> Any:
    await create(entities=[{"name": "Windrose", "entityType": "supplier", "observations": ["delivers charts"]}])
    return "Remembered."


async def observe(add: Tool) -> Any:
    await add(observations=[{"entityName": "Nordlicht", "contents": ["needs 3 days"]}])
    return "Noted."


async def recall(find: Tool) -> Any:
    found = await find(query="Kartograf")
    return [entity.observations for entity in found.entities if entity.name == "Kartograf"]


async def forget(delete: Tool) -> Any:
    await delete(entityNames=["Nordlicht"])
    return "Forgotten."


async def best_customer(query: Tool, create: Tool) -> Any:
    found = await query(
        sql="SELECT c.name, count(*) FROM orders o JOIN customers c ON c.id = o.customer_id"
        " GROUP BY c.id ORDER BY count(*) DESC, c.name LIMIT 1"
    )
    name, orders = found.rows[0]
    await create(entities=[{"name": name, "entityType": "customer", "observations": [f"has {orders} orders"]}])
    return name


async def suppliers_file(find: Tool, write: Tool) -> Any:
    found = await find(query="supplier")
    await write(path="suppliers.txt", text="\n".join(sorted(entity.name for entity in found.entities)))
    return "Written."


async def many_memories(query: Tool, create: Tool) -> Any:
    places = ["Emden", "Husum", "Kiel", "Leer", "Stade"]
    found = await asyncio.gather(
        *(query(sql="SELECT count(*) FROM customers WHERE city = ?", parameters=[place]) for place in places)
    )
    counted = [(place, one.rows[0][0]) for place, one in zip(places, found, strict=True)]
    await create(
        entities=[
            {"name": place, "entityType": "city", "observations": [f"{number} customers"]} for place, number in counted
        ]
    )
    return "Remembered."


def _commits(world: World) -> bool:
    wanted = [line.split("\t") for line in world.git("log", "-4", "--format=%an%x09%s").splitlines()]
    found = [[world.cell("commits.xlsx", "Sheet1", f"{column}{row}") for column in "AB"] for row in range(1, 5)]
    return found == wanted


def _products(world: World) -> bool:
    wanted = [("title", "stock"), *world.rows("SELECT title, stock FROM products ORDER BY id LIMIT 5")]
    found = [tuple(world.cell("products.xlsx", "Stock", f"{column}{row}") for column in "AB") for row in range(1, 7)]
    return found == wanted


def _cities(world: World) -> bool:
    counted = world.rows("SELECT city, count(*) FROM customers GROUP BY city")
    return all(f"{number} customers" in world.observations(city) for city, number in counted)


BEST = (
    "SELECT name, (SELECT count(*) FROM orders WHERE customer_id = customers.id) AS n"
    " FROM customers ORDER BY n DESC, name"
)

CHECKS = {
    "excel-cell": holds("B2 holds 42", lambda world: bool(world.cell("stock.xlsx", "Sheet1", "B2") == 42)),
    "excel-products": holds("the sheet Stock holds the products", _products),
    "excel-sum": both(
        answers(lambda world: 42),
        holds("A4 holds a sum", lambda world: str(world.cell("sum.xlsx", "Sheet1", "A4")).startswith("=SUM(")),
    ),
    "excel-sheets": holds("the sheets are Q1, Q2, Q3", lambda world: world.sheets("year.xlsx") == ["Q1", "Q2", "Q3"]),
    "excel-commits": holds("Sheet1 holds the four newest commits", _commits),
    "memory-create": holds(
        "Windrose is remembered", lambda world: list(world.observations("Windrose")) == ["delivers charts"]
    ),
    "memory-observe": holds(
        "Nordlicht needs 3 days",
        lambda world: list(world.observations("Nordlicht")) == ["delivers fiction", "needs 3 days"],
    ),
    "memory-recall": answers(lambda world: list(world.observations("Kartograf"))),
    "memory-forget": holds(
        "only Nordlicht is gone",
        lambda world: [one.get("name") for one in world.memory()] == ["Kartograf", "Harbour Books", None],
    ),
    "memory-customer": holds(
        "the best customer is remembered",
        lambda world: f"has {world.rows(BEST)[0][1]} orders" in world.observations(world.rows(BEST)[0][0]),
    ),
    "memory-file": file_holds("suppliers.txt", lambda world: "Kartograf\nNordlicht"),
    "memory-cities": holds("each city is remembered with its customers", _cities),
}

TASKS = load_tasks(__name__, CHECKS)
