"""A process that commits stamped generations in a loop and prints each number. Run by the tests, not collected."""

import asyncio
import sys

from toolfold.storage.sqlite import SqliteStore
from toolfold.testing.store_conformance import assert_one_generation, stamped_update


async def write(path: str, last: int, tools: int) -> None:
    async with SqliteStore(path) as store:
        async with store.snapshot() as view:
            await assert_one_generation(view, tools=tools)
            first = view.generation + 1
        for number in range(first, last + 1):
            sys.stdout.write(f"{await store.commit(stamped_update(number, tools=tools))}\n")
            sys.stdout.flush()


asyncio.run(write(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
