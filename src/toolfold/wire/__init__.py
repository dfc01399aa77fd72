"""The wire: JSON-RPC and MCP messages over stdio and HTTP, as a client, in both eras of the protocol.

    connect.py     opens a connection: `connect(target) -> Connection`
    eras.py        which era the server speaks
    connection.py  requests, tools, the end
    peer.py        which requests wait, what an arriving message means
    stdio.py       one process, one message a line     (process.py, pipes.py, framing.py, guard.py, guardian.py)
    spill.py       messages too large to be held
    http*.py       streamable HTTP and its predecessor (sse.py, headers.py)
    jsonrpc.py     envelopes; salvage.py: what is not quite one

Nothing above this package knows a message's shape; nothing in it decodes what is only passed on.
"""

from toolfold.wire.connect import connect
from toolfold.wire.connection import Connection
from toolfold.wire.types import (
    LEGACY_VERSIONS,
    MODERN_VERSION,
    Handlers,
    HttpTarget,
    OnInput,
    OnProgress,
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
    "OnInput",
    "OnProgress",
    "StdioTarget",
    "Target",
    "ToolList",
    "WireOptions",
    "connect",
]
