"""An MCP server over stdio with resources, templates, prompts and skills as a JSON file says, read for each request.

    python leaves_stdio.py FILE

The file: `resources`, `templates`, `prompts`, `skills` as they are listed (with `skills` it declares them), `page`
entries a page (all where it is missing), `texts` by URI, `endless` (a list that never ends), `silent` (methods that are
never answered), `refuse` (methods that fail), `tools` besides its own. Those: `point` answers with a link and an
embedded resource, `tell` sends any notification, `asked` gives what it was asked so far.
"""

import json
import sys
from pathlib import Path
from typing import Any

FILE = Path(sys.argv[1])
LISTS = {"resources/list": "resources", "resources/templates/list": "resourceTemplates", "prompts/list": "prompts"}
LISTS["skills/list"] = "skills"
TOOLS = [
    {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}}
    for name in ("point", "tell", "asked")
]
asked: list[Any] = []


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def listed(made: dict[str, Any], method: str, params: dict[str, Any]) -> dict[str, Any]:
    member = LISTS[method]
    entries = made.get("templates" if member == "resourceTemplates" else member, [])
    start = int(params.get("cursor", 0))
    if made.get("endless") and method == "resources/list":
        return {member: [{"uri": f"test:{start}", "name": f"n{start}"}], "nextCursor": str(start + 1)}
    end = start + made.get("page", len(entries) or 1)
    return {member: entries[start:end], **({"nextCursor": str(end)} if end < len(entries) else {})}


def called(made: dict[str, Any], name: str, given: dict[str, Any]) -> dict[str, Any]:
    if name == "tell":
        send({"method": given["method"], "params": given.get("params", {})})
    if name == "asked":
        return {"content": [{"type": "text", "text": json.dumps(asked)}]}
    if name not in ("point", "asked", "tell"):
        return {"content": [{"type": "text", "text": f"{name} {json.dumps(given)}"}]}
    link = {"type": "resource_link", "uri": "test:linked", "name": "linked"}
    held = {"type": "resource", "resource": {"uri": "test:held", "text": "held"}}
    return {"content": [{"type": "text", "text": "see test:linked"}, link, held]}


def read(made: dict[str, Any], uri: str) -> dict[str, Any]:
    texts = made.get("texts", {})
    if uri not in texts:
        raise LookupError(uri)
    whole = isinstance(texts[uri], dict)
    return texts[uri] if whole else {"contents": [{"uri": uri, "mimeType": "text/plain", "text": texts[uri]}]}


def filled(name: str, given: dict[str, Any]) -> dict[str, Any]:
    text = f"{name} {json.dumps(given, sort_keys=True)}"
    return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


def answer(made: dict[str, Any], method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method in LISTS:
        return listed(made, method, params)
    if method == "tools/call":
        return called(made, params["name"], params.get("arguments", {}))
    if method == "resources/read":
        return read(made, params["uri"])
    if method == "prompts/get":
        return filled(params["name"], params.get("arguments", {}))
    if method == "completion/complete":
        return {"completion": {"values": [json.dumps([params["ref"], params["argument"]])]}}
    return {"tools": [*TOOLS, *made.get("tools", [])]} if method == "tools/list" else {}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method", ""), message.get("params", {})
        if "id" not in message:
            asked.append([method, params])
            continue
        made = json.loads(FILE.read_text())
        asked.append([method, params])
        if method == "initialize":
            capabilities: dict[str, Any] = {"tools": {}, "prompts": {"listChanged": True}, "completions": {}}
            capabilities["resources"] = {"subscribe": True, "listChanged": True}
            capabilities["extensions"] = {"io.modelcontextprotocol/skills": {}} if "skills" in made else {}
            about = {"serverInfo": {"name": "leaves", "version": "1"}, "protocolVersion": "2025-11-25"}
            send({"id": message["id"], "result": {**about, "capabilities": capabilities}})
        elif method in made.get("refuse", []) or method == "server/discover":
            send({"id": message["id"], "error": {"code": -32601, "message": f"no {method}"}})
        elif method not in made.get("silent", []):
            try:
                send({"id": message["id"], "result": answer(made, method, params)})
            except LookupError as error:
                send({"id": message["id"], "error": {"code": -32002, "message": f"Resource not found: {error}"}})


main()
