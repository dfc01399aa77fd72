"""A tiny MCP server over stdio whose one tool returns a text of any size, written piece by piece. Run as a process."""

import json
import sys
from typing import Any

LINE = "2026-01-14T10:00:00Z INFO worker-7 handled order 1234567 in 12 ms, all is well and nothing is lost\\n"
TOOL = {"name": "large", "inputSchema": {"type": "object", "properties": {"bytes": {"type": "integer"}}}}


def answer(identifier: Any, result: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": identifier, "result": result}) + "\n")
    sys.stdout.flush()


def large(identifier: Any, size: int) -> None:
    block = LINE * 10_000
    sys.stdout.write(f'{{"jsonrpc":"2.0","id":{json.dumps(identifier)},"result":{{"content":[{{"type":"text","text":"')
    for _ in range(max(1, size // len(block))):
        sys.stdout.write(block)
    sys.stdout.write('"}]}}\n')
    sys.stdout.flush()


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        method, identifier = message.get("method"), message.get("id")
        if method == "initialize":
            info = {"name": "large", "version": "1"}
            answer(identifier, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
        elif method == "tools/list":
            answer(identifier, {"tools": [TOOL]})
        elif method == "tools/call":
            large(identifier, int(message["params"]["arguments"]["bytes"]))
        elif identifier is not None:
            answer(identifier, {})


if __name__ == "__main__":
    main()
