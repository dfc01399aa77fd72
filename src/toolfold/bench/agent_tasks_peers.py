"""Tasks on servers of other projects: workbooks (excel-mcp-server) and a memory (server-memory)."""

import asyncio
from typing import Any

from toolfold.bench.agent_tasks import Task, Tool, answers, both, file_holds, holds
from toolfold.bench.agent_tasks_files import WRITE
from toolfold.bench.agent_tasks_git import LOG
from toolfold.bench.agent_tasks_sqlite import QUERY
from toolfold.bench.agent_world import World

CREATE_BOOK = "create a new Excel workbook"
WRITE_CELLS = "write values into cells of a worksheet"
READ_CELLS = "read the values of cells of a worksheet"
CREATE_ENTITY = "create new entities in the knowledge graph"
OBSERVE = "add observations to an entity in the knowledge graph"
FIND = "search the knowledge graph"


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

TASKS = (
    Task(
        name="excel-cell",
        text="Make a workbook $FOLDER/stock.xlsx and write 42 into cell B2 of its sheet Sheet1.",
        needs={"excel.create_workbook": CREATE_BOOK, "excel.write_range": WRITE_CELLS},
        plan=one_cell,
        check=holds("B2 holds 42", lambda world: bool(world.cell("stock.xlsx", "Sheet1", "B2") == 42)),
    ),
    Task(
        name="excel-products",
        text=(
            "Make a workbook $FOLDER/products.xlsx with a sheet Stock: from A1 on a header row title, stock, and below "
            "it titles and stock of the first five products by id in the shop's database."
        ),
        needs={"sqlite.query": QUERY, "excel.create_workbook": CREATE_BOOK, "excel.write_range": WRITE_CELLS},
        plan=products,
        check=holds("the sheet Stock holds the products", _products),
    ),
    Task(
        name="excel-sum",
        text=(
            "Make a workbook $FOLDER/sum.xlsx; write 3, 14 and 25 into A1 to A3 of Sheet1 and a formula into A4 that "
            "sums them. What is the value of A4?"
        ),
        needs={
            "excel.create_workbook": CREATE_BOOK,
            "excel.write_range": WRITE_CELLS,
            "excel.read_range": READ_CELLS,
        },
        plan=formula,
        check=both(
            answers(lambda world: 42),
            holds("A4 holds a sum", lambda world: str(world.cell("sum.xlsx", "Sheet1", "A4")).startswith("=SUM(")),
        ),
    ),
    Task(
        name="excel-sheets",
        text="Make a workbook $FOLDER/year.xlsx with the three sheets Q1, Q2 and Q3, in this order, and no other.",
        needs={"excel.create_workbook": CREATE_BOOK, "excel.create_sheet": "add a worksheet to a workbook"},
        plan=sheets,
        check=holds("the sheets are Q1, Q2, Q3", lambda world: world.sheets("year.xlsx") == ["Q1", "Q2", "Q3"]),
    ),
    Task(
        name="excel-commits",
        text=(
            "Make a workbook $FOLDER/commits.xlsx: author and subject of the repository's four newest commits in "
            "columns A and B of Sheet1, from row 1 on, newest first."
        ),
        needs={"git.log": LOG, "excel.create_workbook": CREATE_BOOK, "excel.write_range": WRITE_CELLS},
        plan=commit_book,
        check=holds("Sheet1 holds the four newest commits", _commits),
    ),
    Task(
        name="memory-create",
        text="Remember the supplier Windrose in the knowledge graph: type supplier, observation 'delivers charts'.",
        needs={"memory.create_entities": CREATE_ENTITY},
        plan=remember,
        check=holds(
            "Windrose is remembered", lambda world: list(world.observations("Windrose")) == ["delivers charts"]
        ),
    ),
    Task(
        name="memory-observe",
        text="Add the observation 'needs 3 days' to the entity Nordlicht in the knowledge graph. Keep what is there.",
        needs={"memory.add_observations": OBSERVE},
        plan=observe,
        check=holds(
            "Nordlicht needs 3 days",
            lambda world: list(world.observations("Nordlicht")) == ["delivers fiction", "needs 3 days"],
        ),
    ),
    Task(
        name="memory-recall",
        text="What does the knowledge graph know about Kartograf? Quote each observation.",
        needs={"memory.search_nodes": FIND},
        plan=recall,
        check=answers(lambda world: list(world.observations("Kartograf"))),
    ),
    Task(
        name="memory-forget",
        text="Delete the entity Nordlicht from the knowledge graph, and nothing else.",
        needs={"memory.delete_entities": "delete entities from the knowledge graph"},
        plan=forget,
        check=holds(
            "only Nordlicht is gone",
            lambda world: [one.get("name") for one in world.memory()] == ["Kartograf", "Harbour Books", None],
        ),
    ),
    Task(
        name="memory-customer",
        text=(
            "Find the customer with most orders in the shop's database (the first by name if several have), and "
            "remember that person in the knowledge graph: type customer, observation 'has N orders'."
        ),
        needs={"sqlite.query": QUERY, "memory.create_entities": CREATE_ENTITY},
        plan=best_customer,
        check=holds(
            "the best customer is remembered",
            lambda world: f"has {world.rows(BEST)[0][1]} orders" in world.observations(world.rows(BEST)[0][0]),
        ),
    ),
    Task(
        name="memory-file",
        text="Write the names of all suppliers in the knowledge graph to suppliers.txt, sorted, one a line.",
        needs={"memory.search_nodes": FIND, "files.write": WRITE},
        plan=suppliers_file,
        check=file_holds("suppliers.txt", lambda world: "Kartograf\nNordlicht"),
    ),
    Task(
        name="memory-cities",
        text=(
            "Remember each city of the shop's customers (Emden, Husum, Kiel, Leer, Stade) in the knowledge graph: type "
            "city, observation 'N customers' with the number of customers there."
        ),
        needs={"sqlite.query": QUERY, "memory.create_entities": CREATE_ENTITY},
        plan=many_memories,
        check=holds("each city is remembered with its customers", _cities),
    ),
)
