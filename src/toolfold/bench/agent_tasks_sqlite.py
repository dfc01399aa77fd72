"""Tasks on the shop's database: questions and changes. Three of them get results that are too large to show."""

from typing import Any

from toolfold.bench.agent_tasks import Task, Tool, answers, both, database_holds

QUERY = "run a SELECT query on the database"
EXECUTE = "change data in the database with INSERT, UPDATE or DELETE"


async def open_orders(query: Tool) -> Any:
    found = await query(sql="SELECT count(*) FROM orders WHERE status = 'open'")
    return found.rows[0][0]


async def keenest(query: Tool) -> Any:
    found = await query(
        sql="SELECT c.name FROM orders o JOIN customers c ON c.id = o.customer_id"
        " GROUP BY c.id ORDER BY count(*) DESC, c.name LIMIT 1"
    )
    return found.rows[0][0]


async def city(query: Tool) -> Any:
    found = await query(sql="SELECT city FROM customers WHERE id = ?", parameters=[17])
    return found.rows[0][0]


async def insert(execute: Tool) -> Any:
    await execute(
        sql="INSERT INTO products (title, price_cents, stock) VALUES (?, ?, ?)", parameters=["Moon Phases", 1290, 5]
    )
    return "Added."


async def restock(execute: Tool) -> Any:
    await execute(sql="UPDATE products SET stock = stock + 10 WHERE title = 'Fog'")
    return "Done."


async def ship(query: Tool, execute: Tool) -> Any:
    found = await query(sql="SELECT id FROM orders WHERE status = 'open' ORDER BY ordered_on, id LIMIT 1")
    order = found.rows[0][0]
    await execute(sql="UPDATE orders SET status = 'shipped' WHERE id = ?", parameters=[order])
    return order


async def empty(execute: Tool) -> Any:
    found = await execute(sql="DELETE FROM order_items WHERE order_id = 3")
    return found.rows_changed


async def make_table(execute: Tool) -> Any:
    await execute(sql="CREATE TABLE suppliers (name TEXT, days INTEGER)")
    await execute(sql="INSERT INTO suppliers VALUES ('Windrose', 5)")
    return "Made."


async def best(query: Tool) -> Any:
    found = await query(sql="SELECT title FROM revenue LIMIT 1")
    return found.rows[0][0]


async def columns(describe: Tool) -> Any:
    found = await describe(table="orders")
    return [column.name for column in found.columns]


async def average(query: Tool) -> Any:
    found = await query(sql="SELECT CAST(avg(price_cents) AS INTEGER) FROM products")
    return found.rows[0][0]


async def statuses(query: Tool) -> Any:
    found = await query(sql="SELECT status, count(*) FROM orders GROUP BY status")
    return {row[0]: row[1] for row in found.rows}


async def row_251(query: Tool) -> Any:
    found = await query(
        sql="SELECT o.id, o.ordered_on, o.status, c.name, c.email, c.city FROM orders o"
        " JOIN customers c ON c.id = o.customer_id ORDER BY o.id",
        limit=1000,
    )
    return found.rows[250][4]


async def last_item(query: Tool) -> Any:
    found = await query(
        sql="SELECT i.order_id, p.title, i.quantity FROM order_items i"
        " JOIN products p ON p.id = i.product_id ORDER BY i.order_id, p.title",
        limit=1000,
    )
    return found.rows[590][1]


async def whole_export(query: Tool, execute: Tool) -> Any:
    found = await query(
        sql="SELECT o.id, o.ordered_on, c.name, c.email FROM orders o"
        " JOIN customers c ON c.id = o.customer_id ORDER BY o.ordered_on DESC, o.id DESC",
        limit=1000,
    )
    first, last = found.rows[0][0], found.rows[299][0]
    await execute(sql="UPDATE orders SET status = 'returned' WHERE id IN (?, ?)", parameters=[first, last])
    return [first, last]


JOINED = "SELECT c.email FROM orders o JOIN customers c ON c.id = o.customer_id ORDER BY o.id LIMIT 1 OFFSET 250"
LAST = (
    "SELECT p.title FROM order_items i JOIN products p ON p.id = i.product_id"
    " ORDER BY i.order_id DESC, p.title DESC LIMIT 1"
)
ENDS = (
    "SELECT (SELECT id FROM before.orders ORDER BY ordered_on DESC, id DESC LIMIT 1),"
    " (SELECT id FROM before.orders ORDER BY ordered_on, id LIMIT 1)"
)
OLDEST = "SELECT id FROM before.orders WHERE status = 'open' ORDER BY ordered_on, id LIMIT 1"
CHANGED = "SELECT o.id, o.status FROM orders o JOIN before.orders b USING (id) WHERE o.status != b.status ORDER BY o.id"

TASKS = (
    Task(
        name="sqlite-count",
        text="How many orders in the shop's database are open?",
        needs={"sqlite.query": QUERY},
        plan=open_orders,
        check=answers(lambda world: world.value("SELECT sum(status = 'open') FROM orders")),
    ),
    Task(
        name="sqlite-keenest",
        text="Which customer in the shop's database has most orders? If several have, the first by name.",
        needs={"sqlite.query": QUERY},
        plan=keenest,
        check=answers(
            lambda world: world.value(
                "SELECT name FROM customers ORDER BY"
                " (SELECT count(*) FROM orders WHERE customer_id = customers.id) DESC, name"
            )
        ),
    ),
    Task(
        name="sqlite-city",
        text="In which city does the customer with the id 17 live?",
        needs={"sqlite.query": QUERY},
        plan=city,
        check=answers(lambda world: world.value("SELECT city FROM customers WHERE id = 17")),
    ),
    Task(
        name="sqlite-insert",
        text="Add the product Moon Phases to the shop's database: 1290 cents, 5 in stock.",
        needs={"sqlite.execute": EXECUTE},
        plan=insert,
        check=database_holds("SELECT price_cents, stock FROM products WHERE title = 'Moon Phases'", [(1290, 5)]),
    ),
    Task(
        name="sqlite-update",
        text="Ten copies of Fog have come in: raise its stock in the shop's database by 10. Change nothing else.",
        needs={"sqlite.execute": EXECUTE},
        plan=restock,
        check=database_holds(
            "SELECT p.title, p.stock - b.stock FROM products p JOIN before.products b USING (id)"
            " WHERE p.stock != b.stock",
            [("Fog", 10)],
        ),
    ),
    Task(
        name="sqlite-ship",
        text="Mark the oldest open order (by date, then id) as shipped, and tell me its id.",
        needs={"sqlite.query": QUERY, "sqlite.execute": EXECUTE},
        plan=ship,
        check=both(
            answers(lambda world: world.value(OLDEST)),
            database_holds(CHANGED, lambda world: [(world.value(OLDEST), "shipped")]),
        ),
    ),
    Task(
        name="sqlite-delete",
        text="Delete all items of order 3 from the shop's database, and of no other order. How many were there?",
        needs={"sqlite.execute": EXECUTE},
        plan=empty,
        check=both(
            database_holds("SELECT count(*) FROM order_items WHERE order_id = 3", [(0,)]),
            answers(lambda world: world.value("SELECT count(*) FROM before.order_items WHERE order_id = 3")),
            database_holds(
                "SELECT (SELECT count(*) FROM before.order_items WHERE order_id != 3) - count(*) FROM order_items",
                [(0,)],
            ),
        ),
    ),
    Task(
        name="sqlite-create",
        text="Make a table suppliers with the columns name and days in the shop's database; put Windrose, 5 into it.",
        needs={"sqlite.execute": EXECUTE},
        plan=make_table,
        check=database_holds("SELECT name, days FROM suppliers", [("Windrose", 5)]),
    ),
    Task(
        name="sqlite-view",
        text="Which title brought most revenue, according to the view revenue of the shop's database?",
        needs={"sqlite.query": QUERY},
        plan=best,
        check=answers(
            lambda world: world.value(
                "SELECT title FROM products p ORDER BY"
                " (SELECT sum(quantity) FROM order_items WHERE product_id = p.id) * price_cents DESC"
            )
        ),
    ),
    Task(
        name="sqlite-columns",
        text="Name all columns of the table orders in the shop's database.",
        needs={"sqlite.describe": "describe the columns of a table"},
        plan=columns,
        check=answers(lambda world: [name for _, name, *_ in world.rows("SELECT * FROM pragma_table_info('orders')")]),
    ),
    Task(
        name="sqlite-average",
        text="What is the mean price of the products in the shop's database, in whole cents, rounded down?",
        needs={"sqlite.query": QUERY},
        plan=average,
        check=answers(lambda world: world.value("SELECT sum(price_cents) / count(*) FROM products")),
    ),
    Task(
        name="sqlite-statuses",
        text="How many orders of each status are there in the shop's database?",
        needs={"sqlite.query": QUERY},
        plan=statuses,
        check=answers(lambda world: [count for (count,) in world.rows("SELECT count(*) FROM orders GROUP BY status")]),
    ),
    Task(
        name="sqlite-large-row",
        text=(
            "Get all orders with the customer's name, e-mail and city in one query, by order id, without a limit below "
            "1000. What is the e-mail in the 251st row?"
        ),
        needs={"sqlite.query": QUERY},
        plan=row_251,
        extracts={"sqlite.query": ("rows[250]",)},
        check=answers(lambda world: world.value(JOINED)),
    ),
    Task(
        name="sqlite-large-last",
        text=(
            "Get all items of all orders with their titles in one query, by order id and then title, with a limit of "
            "1000. Which title stands in the last row?"
        ),
        needs={"sqlite.query": QUERY},
        plan=last_item,
        extracts={"sqlite.query": ("rows[590]",)},
        check=answers(lambda world: world.value(LAST)),
    ),
    Task(
        name="sqlite-large-ends",
        text=(
            "Get all 300 orders with the customers' names and e-mails in one query, newest first (by date, then id), "
            "and set the status of the first and of the last one to returned. Tell me their ids."
        ),
        needs={"sqlite.query": QUERY, "sqlite.execute": EXECUTE},
        plan=whole_export,
        extracts={"sqlite.query": ("rows[0]", "rows[299]")},
        check=both(
            answers(lambda world: list(world.rows(ENDS)[0])),
            database_holds(CHANGED, lambda world: [(number, "returned") for number in sorted(world.rows(ENDS)[0])]),
        ),
    ),
)
