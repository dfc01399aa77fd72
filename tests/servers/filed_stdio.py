"""A server over stdio whose tools stand in a file that it reads for every list; it says nothing when they change.

With a number after the file's name it lists that many at a time, ordered by name, and a cursor is the last name.
A call of `die` ends it; every other call, of a tool that it lists or not, is answered with "done".
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolfold.types import ServerSpec


def filed_spec(name: str, tools: Path, *page: str) -> "ServerSpec":
    from toolfold.types import ServerSpec

    return ServerSpec(name=name, transport="stdio", command=sys.executable, args=(__file__, str(tools), *page))


def page_of(tools: list[dict[str, str]], after: object) -> dict[str, object]:
    if len(sys.argv) < 3:
        return {"tools": tools}
    size = int(sys.argv[2])
    rest = sorted((tool for tool in tools if tool["name"] > str(after or "")), key=lambda tool: tool["name"])
    return {"tools": rest[:size], **({"nextCursor": rest[size - 1]["name"]} if len(rest) > size else {})}


def answer(method: str, params: dict[str, object]) -> dict[str, object] | None:
    if method == "initialize":
        info = {"name": "filed", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return page_of(json.loads(Path(sys.argv[1]).read_text("utf-8")), params.get("cursor"))
    if method == "tools/call":
        if params["name"] == "die":
            sys.exit(1)
        return {"content": [{"type": "text", "text": "done"}]}
    return None


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = answer(message["method"], message.get("params", {}))
        error = {"code": -32601, "message": "Method not found"}
        rest = {"error": error} if result is None else {"result": result}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **rest}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
