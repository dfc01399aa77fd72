"""A large result is the argument of the next call: what goes from tool to tool is a handle, not the text."""

import asyncio

from toolfold import Gateway, Settings


async def main() -> None:
    async with Gateway(Settings.load()) as gateway:
        await gateway.build()
        answer = await gateway.call_tool("sqlite.query", {"sql": "SELECT * FROM orders", "limit": 1000})
        handle = answer.stored.handle
        print(f"kept: {answer.stored.tokens:,} tokens; a model reads {handle}")
        # The host puts the stored text in, checks it against the schema of files.write, and calls.
        written = await gateway.call_tool(
            "files.write", {"path": "orders.json", "text": {"$output": handle}, "overwrite": True}
        )
        print(written.text)
        # With a path it is one value of it.
        last = await gateway.call_tool(
            "sqlite.query",
            {
                "sql": "SELECT name FROM customers WHERE id = ?",
                "parameters": [{"$output": handle, "path": "rows[-1][1]"}],
            },
        )
        print(last.text)


asyncio.run(main())
