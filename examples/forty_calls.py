"""Forty-one calls in one turn: which books of the price list sold, and are they in the log of the till?"""

import asyncio

from toolfold import use_tools

read, query, search = use_tools(
    "read a text file",
    "run one SELECT on the database",
    "find lines that contain a text in the files of a folder",
)
SOLD = "SELECT coalesce(sum(quantity), 0) FROM order_items JOIN products ON id = product_id WHERE title = ?"


async def look_up(title):
    sold, lines = await asyncio.gather(
        query(sql=SOLD, parameters=[title]),
        search(text=f"sale {title}", path="logs"),
    )
    return title, sold.rows[0][0], len(lines.matches)


async def main():
    prices = (await read(path="prices.csv")).text.splitlines()[1:]
    titles = [line.rpartition(",")[0] for line in prices]
    found = await asyncio.gather(*(look_up(title) for title in titles))
    return {
        "books": len(found),
        "best": max(found, key=lambda each: each[1]),
        "at the till": sum(each[2] for each in found),
    }


asyncio.run(main())
