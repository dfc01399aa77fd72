"""A server over stdio whose tools stand in a file that it reads for every list; it says nothing by itself when they
change.

With a number after the file's name it lists that many at a time, ordered by name, and a cursor is the last name. With
`by-capability` there, it lists a tool that `needs` something only to a client that declared it. A call of `die` ends
it, one of `sleep` takes half a second, one of `changed` says that the list is another one; a tool with an `answer` in
the file answers with that; every other call, of a tool that it lists or not, is answered with "done".
"""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolfold.types import ServerSpec


def filed_spec(name: str, tools: Path, *page: str) -> "ServerSpec":
    from toolfold.types import ServerSpec

    return ServerSpec(name=name, transport="stdio", command=sys.executable, args=(__file__, str(tools), *page))


declared: dict[str, object] = {}


def page_of(kind: str, after: object) -> str:
    text = Path(sys.argv[1]).read_text("utf-8")
    if len(sys.argv) < 3:
        return f'{{"{kind}":{text}}}'  # as it stands there, however deep
    if sys.argv[2] == "by-capability":
        return json.dumps({kind: [tool for tool in json.loads(text) if tool.get("needs", "") in ("", *declared)]})
    size = int(sys.argv[2])
    rest = sorted((tool for tool in json.loads(text) if tool["name"] > str(after or "")), key=lambda tool: tool["name"])
    return json.dumps({kind: rest[:size], **({"nextCursor": rest[size - 1]["name"]} if len(rest) > size else {})})


def answer(method: str, params: dict[str, object]) -> str | None:
    if method == "initialize":
        capabilities = params.get("capabilities")
        declared.update(capabilities if isinstance(capabilities, dict) else {})
        info = {"name": "filed", "version": "1"}
        return json.dumps({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
    if method.endswith("/list"):
        return page_of(method.removesuffix("/list"), params.get("cursor"))
    if method == "tools/call":
        if params["name"] == "die":
            sys.exit(1)
        if params["name"] == "sleep":
            time.sleep(0.5)
        if params["name"] == "changed":
            sys.stdout.write('{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}\n')
        done = {"content": [{"type": "text", "text": "done"}]}
        text = Path(sys.argv[1]).read_text("utf-8")
        if '"answer"' not in text:  # it may hold what Python's reader refuses
            return json.dumps(done)
        tools = {tool["name"]: tool for tool in json.loads(text)}
        return json.dumps(tools.get(params["name"], {}).get("answer", done))
    return None


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = answer(message["method"], message.get("params", {}))
        error = '"error": {"code": -32601, "message": "Method not found"}'
        rest = error if result is None else f'"result": {result}'
        sys.stdout.write(f'{{"jsonrpc": "2.0", "id": {json.dumps(message["id"])}, {rest}}}\n')
        sys.stdout.flush()


if __name__ == "__main__":
    main()
