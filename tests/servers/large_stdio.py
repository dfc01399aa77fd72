"""A small MCP server whose results are as large as one asks for. It writes them piece by piece and holds nothing."""

import json
import sys
from typing import Any

LINE = '2026-01-14T10:00:00Z INFO worker-7 handled \\"order\\" 1234567 in 12 ms: ok \\u00fc \\ud83d\\ude00\\n'
"""One line of a log as it stands inside a JSON string, with escapes of every kind."""

TOOLS = [
    {
        "name": "large",
        "description": "Returns a text of a given size.",
        "inputSchema": {
            "type": "object",
            "properties": {"megabytes": {"type": "number"}, "die_after": {"type": "number"}},
        },
    },
    {
        "name": "noise",
        "description": "Writes so much beside the protocol, then answers.",
        "inputSchema": {"type": "object", "properties": {"megabytes": {"type": "number"}}, "required": ["megabytes"]},
    },
    {
        "name": "give",
        "description": "Returns the result that stands in a file.",
        "inputSchema": {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]},
    },
    {
        "name": "echo",
        "description": "Returns its text.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
    {
        "name": "length",
        "description": "Tells how long its text is, and what kind of value it got.",
        "inputSchema": {"type": "object", "properties": {"text": {}}, "required": ["text"]},
    },
]


def answer(identifier: object, result: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": identifier, "result": result}) + "\n")
    sys.stdout.flush()


def large(identifier: object, arguments: dict[str, Any]) -> None:
    """Without ever holding it: the line is written a block at a time."""
    block = LINE * 10_000
    total = int(arguments.get("megabytes", 1) * 1_000_000)
    stop = arguments.get("die_after")
    sys.stdout.write(f'{{"jsonrpc":"2.0","id":{json.dumps(identifier)},"result":{{"content":[{{"type":"text","text":"')
    written = 0
    while written < total:
        if stop is not None and written >= stop * 1_000_000:
            sys.stdout.flush()
            raise SystemExit(1)
        sys.stdout.write(block)
        written += len(block)
    sys.stdout.write('"}],"isError":false}}\n')
    sys.stdout.flush()


def call(identifier: object, name: str, arguments: dict[str, Any]) -> None:
    if name == "large":
        large(identifier, arguments)
    elif name == "give":
        head = f'{{"jsonrpc":"2.0","id":{json.dumps(identifier)},"result":'.encode()
        with open(arguments["file"], "rb") as file:  # noqa: PTH123 - a script of its own
            sys.stdout.buffer.write(head + file.read() + b"}\n")
        sys.stdout.flush()
    elif name == "noise":
        # Beside the protocol: one line that is no message, never ended, and much on standard error.
        block = "x" * 1_000_000
        for _ in range(int(arguments["megabytes"] // 2)):
            sys.stdout.write(block)
            sys.stderr.write(block)
        sys.stdout.write("\n")
        answer(identifier, {"content": [{"type": "text", "text": "done"}]})
    elif name == "length":
        text = arguments["text"]
        said = {"kind": type(text).__name__, "length": len(text) if isinstance(text, (str, list, dict)) else text}
        answer(identifier, {"content": [{"type": "text", "text": json.dumps(said)}]})
    else:
        answer(identifier, {"content": [{"type": "text", "text": str(arguments.get("text", ""))}]})


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        method, identifier = message.get("method"), message.get("id")
        if method == "initialize":
            info = {"name": "large", "version": "1"}
            answer(identifier, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
        elif method == "tools/list":
            answer(identifier, {"tools": TOOLS})
        elif method == "tools/call":
            call(identifier, message["params"]["name"], message["params"].get("arguments") or {})
        elif identifier is not None:
            error = {"code": -32601, "message": f"no method {method}"}
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": identifier, "error": error}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
