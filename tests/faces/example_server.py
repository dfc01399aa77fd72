"""A small real MCP server over stdio for the example of the discovery note: `python example_server.py GROUP`.

One file, five groups of tools, standard library only. Renaming and counting are done for real, on the files given.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

TEXT = {"type": "string"}

RENAME_ARGS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "project_root": {"type": "string"},
        "symbol": {"type": "string"},
        "new_name": {"type": "string"},
        "language": {"type": "string", "enum": ["ts", "js", "py", "go", "java"]},
        "dry_run": {"type": "boolean", "default": True},
    },
    "required": ["project_root", "symbol", "new_name"],
}
RENAME_RESULT: dict[str, Any] = {
    "type": "object",
    "properties": {"changed_files": {"type": "integer"}, "diff_preview": {"type": "string"}},
    "required": ["changed_files"],
}
RENAME_SUMMARY = "Renames a symbol project-wide and updates references"


def rename_symbol(args: dict[str, Any]) -> dict[str, Any]:
    word = re.compile(rf"\b{re.escape(args['symbol'])}\b")
    changed, preview = 0, []
    for file in sorted(Path(args["project_root"]).rglob(f"*.{args.get('language', 'py')}")):
        old = file.read_text(encoding="utf-8")
        new = word.sub(args["new_name"], old)
        if new != old:
            changed += 1
            pairs = zip(old.splitlines(), new.splitlines(), strict=True)
            preview += [f"{file.name}: {after}" for before, after in pairs if before != after]
            if not args.get("dry_run", True):
                file.write_text(new, encoding="utf-8")
    return {"changed_files": changed, "diff_preview": "\n".join(preview)}


def extract_function(args: dict[str, Any]) -> dict[str, Any]:
    lines = Path(args["file"]).read_text(encoding="utf-8").splitlines()[args["first"] - 1 : args["last"]]
    return {"function": "\n".join([f"def {args['name']}():", *(f"    {line.strip()}" for line in lines)])}


def echo(args: dict[str, Any]) -> dict[str, Any]:
    return {"given": args}


def tool(
    name: str,
    description: str,
    run: Callable[[dict[str, Any]], dict[str, Any]] = echo,
    args: dict[str, Any] | None = None,
    result: dict[str, Any] | None = None,
    **annotations: bool,
) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": name,
        "description": description,
        "inputSchema": args or {"type": "object", "properties": {"name": TEXT}, "required": ["name"]},
        "annotations": annotations,
    }
    return {"shown": {**shown, "outputSchema": result} if result else shown, "run": run}


GROUPS: dict[str, list[dict[str, Any]]] = {
    "refactor": [
        tool("rename_symbol", RENAME_SUMMARY, rename_symbol, RENAME_ARGS, RENAME_RESULT, destructiveHint=True),
        tool(
            "extract_function",
            "Extracts lines of a source file into a new function",
            extract_function,
            {
                "type": "object",
                "properties": {"file": TEXT, "first": {"type": "integer"}, "last": {"type": "integer"}, "name": TEXT},
                "required": ["file", "first", "last", "name"],
            },
            readOnlyHint=True,
        ),
    ],
    "render": [tool("draw_chart", "Renders a chart from a table as a picture", readOnlyHint=True)],
    "storage": [
        tool("put_object", "Uploads an object to a bucket"),
        tool("create_bucket", "Creates an object storage bucket"),
        tool("delete_bucket", "Deletes an object storage bucket with all objects in it", destructiveHint=True),
        tool("list_buckets", "Lists all object storage buckets", readOnlyHint=True),
    ],
    "user": [
        tool("oauth_login", "Logs a user in with OAuth and returns a session token"),
        tool("reset_password", "Sends a user a link to reset the password"),
    ],
    "data": [tool("query_table", "Runs a SQL query over a table of the warehouse", readOnlyHint=True)],
}


def answered(tools: dict[str, dict[str, Any]], method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        info = {"name": "note", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": [one["shown"] for one in tools.values()]}
    if method == "tools/call":
        result = tools[params["name"]]["run"](params.get("arguments", {}))
        return {"content": [{"type": "text", "text": json.dumps(result)}], "structuredContent": result}
    return None


def main(group: str) -> None:
    tools = {one["shown"]["name"]: one for one in GROUPS[group]}
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answered(tools, message["method"], message.get("params", {}))
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        answer |= {"result": result} if result is not None else {"error": {"code": -32601, "message": "no such method"}}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
