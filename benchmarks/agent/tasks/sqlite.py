"""Tasks on the shop's database: questions and changes. Three of them get results that are too large to show."""

from typing import Any

from benchmarks.agent.tasks import Tool, answers, both, database_holds, load_tasks


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

CHECKS = {
    "sqlite-count": answers(lambda world: world.value("SELECT sum(status = 'open') FROM orders")),
    "sqlite-keenest": answers(
        lambda world: world.value(
            "SELECT name FROM customers ORDER BY"
            " (SELECT count(*) FROM orders WHERE customer_id = customers.id) DESC, name"
        )
    ),
    "sqlite-city": answers(lambda world: world.value("SELECT city FROM customers WHERE id = 17")),
    "sqlite-insert": database_holds("SELECT price_cents, stock FROM products WHERE title = 'Moon Phases'", [(1290, 5)]),
    "sqlite-update": database_holds(
        "SELECT p.title, p.stock - b.stock FROM products p JOIN before.products b USING (id) WHERE p.stock != b.stock",
        [("Fog", 10)],
    ),
    "sqlite-ship": both(
        answers(lambda world: world.value(OLDEST)),
        database_holds(CHANGED, lambda world: [(world.value(OLDEST), "shipped")]),
    ),
    "sqlite-delete": both(
        database_holds("SELECT count(*) FROM order_items WHERE order_id = 3", [(0,)]),
        answers(lambda world: world.value("SELECT count(*) FROM before.order_items WHERE order_id = 3")),
        database_holds(
            "SELECT (SELECT count(*) FROM before.order_items WHERE order_id != 3) - count(*) FROM order_items",
            [(0,)],
        ),
    ),
    "sqlite-create": database_holds("SELECT name, days FROM suppliers", [("Windrose", 5)]),
    "sqlite-view": answers(
        lambda world: world.value(
            "SELECT title FROM products p ORDER BY"
            " (SELECT sum(quantity) FROM order_items WHERE product_id = p.id) * price_cents DESC"
        )
    ),
    "sqlite-columns": answers(
        lambda world: [name for _, name, *_ in world.rows("SELECT * FROM pragma_table_info('orders')")]
    ),
    "sqlite-average": answers(lambda world: world.value("SELECT sum(price_cents) / count(*) FROM products")),
    "sqlite-statuses": answers(
        lambda world: [count for (count,) in world.rows("SELECT count(*) FROM orders GROUP BY status")]
    ),
    "sqlite-large-row": answers(lambda world: world.value(JOINED)),
    "sqlite-large-last": answers(lambda world: world.value(LAST)),
    "sqlite-large-ends": both(
        answers(lambda world: list(world.rows(ENDS)[0])),
        database_holds(CHANGED, lambda world: [(number, "returned") for number in sorted(world.rows(ENDS)[0])]),
    ),
}

TASKS = load_tasks(__name__, CHECKS)
