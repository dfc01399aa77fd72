"""Calls as the tests of upstreams make them: of a tool by its name, without a catalogue. Not a test itself."""

import json
from typing import Any

from msgspec import Raw

from toolfold.types import CallContext, Tool, ToolCall, ToolDefinition

# For programs: results come whole and are never spilled.
CONTEXT = CallContext(whole=True)


def tool_call(name: str, server: str = "one", /, **arguments: Any) -> ToolCall:
    definition = ToolDefinition(name=name, raw=Raw(b"{}"))
    tool = Tool(tool_id=f"{server}.{name}", server=server, definition=definition, fingerprint="")
    return ToolCall(tool=tool, arguments=Raw(json.dumps(arguments).encode()))
