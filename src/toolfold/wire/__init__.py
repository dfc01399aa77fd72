"""The wire: JSON-RPC and MCP messages over stdio and HTTP, as a client, in both eras of the protocol.

    connect.py     opens a connection: `connect(target) -> Connection`
    negotiation.py which era the server speaks
    connection.py  requests, answers to what a modern server asks, tools, the end
    dispatcher.py  which requests are pending, what an arriving message means
    stdio.py       one process, one message a line     (process.py, pipes.py, reaper.py)
    spill.py       messages too large for memory
    http*.py       streamable HTTP and HTTP+SSE        (sse.py, headers.py)
    jsonrpc.py     envelopes; repair.py: what is not quite one

Nothing above this package knows a message's shape; nothing in it decodes what is only passed on.
"""

from toolfold.wire.connect import connect
from toolfold.wire.connection import Connection
from toolfold.wire.types import (
    LEGACY_VERSIONS,
    MODERN_VERSION,
    Handlers,
    HttpTarget,
    StdioTarget,
    Target,
    ToolList,
    WireOptions,
)

__all__ = [
    "LEGACY_VERSIONS",
    "MODERN_VERSION",
    "Connection",
    "Handlers",
    "HttpTarget",
    "StdioTarget",
    "Target",
    "ToolList",
    "WireOptions",
    "connect",
]
