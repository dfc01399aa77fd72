"""A modern server that offers to tell when its tools change, and then refuses: somebody hears of it."""

import asyncio

from serving_helpers import EchoApp, on_http

from toolfold.types import ServerSpec
from toolfold.upstream.base import Hooks
from toolfold.upstream.mcp import McpUpstream
from toolfold.wire.serving import ServeOptions


def test_a_refused_subscription_is_a_warning_of_the_list_and_a_line_of_the_log() -> None:
    async def main() -> None:
        heard: asyncio.Queue[str] = asyncio.Queue()
        async with on_http(EchoApp(), ServeOptions(max_listeners=0)) as port:
            spec = ServerSpec(name="web", transport="http", url=port.url)
            upstream = McpUpstream(spec, Hooks(on_log=lambda name, line: heard.put_nowait(line)))
            await upstream.open()
            try:
                async with asyncio.timeout(10):
                    line = await heard.get()
                assert "refuses to tell of changes: too many clients listen" in line
                warnings = (await upstream.listing()).warnings
                assert sum("does not tell when its tools change" in warning for warning in warnings) == 1
            finally:
                await upstream.aclose()

    asyncio.run(main())
