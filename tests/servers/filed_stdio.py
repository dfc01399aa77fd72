"""A server over stdio whose tools stand in a file that it reads for every list; it says nothing when they change.

A call of `die` ends it; every other call, of a tool that it lists or not, is answered with "done".
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolfold.types import ServerSpec


def filed_spec(name: str, tools: Path) -> "ServerSpec":
    from toolfold.types import ServerSpec

    return ServerSpec(name=name, transport="stdio", command=sys.executable, args=(__file__, str(tools)))


def answer(method: str, params: dict[str, object]) -> dict[str, object] | None:
    if method == "initialize":
        info = {"name": "filed", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": json.loads(Path(sys.argv[1]).read_text("utf-8"))}
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
