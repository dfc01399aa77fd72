"""An MCP server over stdio whose calls become tasks, in the form of one era.

    python tasks_stdio.py modern|legacy FOLDER

Each method it is asked is a line of `FOLDER/asked`. The tools that the official suite asks for do what stands there.
`job` works until `FOLDER/enough` is there. `hostile` has a task that misbehaves as its argument `how` says: `never`
ends, has `no text` as its id or `no id`,
`pollInterval` without end, an `unknown` status, `completed` without result, `another` id, `forgets`, `dies`,
`asks` without end, or a result that never comes (`silent`).
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

MODERN, FOLDER = sys.argv[1] == "modern", Path(sys.argv[2])
EXTENSION = "io.modelcontextprotocol/tasks"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
# How a tool's task asks: how many questions.
QUESTIONS = {"confirm_delete": 1, "multi_input": 2}
SUPPORT = {"job": "optional", "greet": "forbidden"}
TOOLS = [
    *("greet", "slow_compute", "failing_job", "protocol_error_job", "confirm_delete", "multi_input"),
    *("test_tool_with_task", "job", "hostile"),
]
tasks: dict[str, dict[str, Any]] = {}
# Of a legacy client: which of its answers goes to which task, and who waits for the result of one.
asked_of: dict[str, tuple[str, str]] = {}
waiting: dict[str, Any] = {}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


class Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message}


def content(text: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **more}


def question(key: str) -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"message": f"Say {key}?", "requestedSchema": FORM}}


def created(name: str, given: dict[str, Any]) -> dict[str, Any]:
    task: dict[str, Any] = {
        "id": f"task-{len(tasks) + 1}",
        "name": name,
        "given": given,
        "at": time.monotonic(),
        "answers": {},
    }
    task["open"] = [f"q{number}" for number in range(QUESTIONS.get(name, 0))]
    tasks[task["id"]] = task
    return task


def status(task: dict[str, Any]) -> str:
    name, age, how = task["name"], time.monotonic() - task["at"], task["given"].get("how")
    if "end" in task:
        return str(task["end"])
    if task["open"] or how == "asks":
        return "input_required"
    if name == "hostile":
        return {"unknown": "nearly done", "completed": "completed", "silent": "completed"}.get(str(how), "working")
    if name == "job":
        return "completed" if (FOLDER / "enough").exists() else "working"
    if age < float(task["given"].get("seconds", 0.2)):
        return "working"
    return "failed" if name == "protocol_error_job" else "completed"


def shown(task: dict[str, Any], *, detailed: bool = False) -> dict[str, Any]:
    now, how = status(task), task["given"].get("how")
    at = "2026-11-19T10:00:00Z"
    told: dict[str, Any] = {"taskId": task["id"], "status": now, "createdAt": at, "lastUpdatedAt": at}
    told["statusMessage"] = f"{task['name']} is {now}"
    pause = 10**400 if how == "pollInterval" else 100
    told |= {"ttlMs": 60_000, "pollIntervalMs": pause} if MODERN else {"ttl": 60_000, "pollInterval": pause}
    if how in ("no text", "no id"):
        told["taskId"] = 5 if how == "no text" else ""
    if detailed and how == "another":
        told["taskId"] = "task-of-somebody-else"
    if detailed and MODERN:
        if now == "input_required":
            keys = [f"q{time.monotonic_ns()}"] if how == "asks" else task["open"]
            told["inputRequests"] = {key: question(key) for key in keys}
        elif now == "completed" and how != "completed":
            told["result"] = result(task)
        elif now == "failed":
            told["error"] = {"code": -32050, "message": "the job broke", "data": {"part": 7}}
    return told


def result(task: dict[str, Any]) -> dict[str, Any]:
    if task["name"] == "failing_job":
        return content("it did not work", isError=True)
    said = f" {json.dumps(task['answers'])}" if task["answers"] else ""
    meta = {} if MODERN else {"_meta": {"io.modelcontextprotocol/related-task": {"taskId": task["id"]}}}
    return content(f"{task['name']} done{said}", **meta)


def check(params: dict[str, Any]) -> None:
    """Each request of the modern era says for itself that its client takes tasks."""
    capabilities = params.get("_meta", {}).get("io.modelcontextprotocol/clientCapabilities", {})
    if MODERN and EXTENSION not in capabilities.get("extensions", {}):
        raise Refused(-32021, "this needs a client that takes tasks")


def called(params: dict[str, Any]) -> dict[str, Any]:
    name, given = params["name"], params.get("arguments", {})
    if name == "greet":
        return content(f"Hello, {given.get('name')}!")
    if name == "test_tool_with_task" and MODERN:
        answers = params.get("inputResponses", {})
        if not answers:
            state = {"requestState": "asked"}
            return {"resultType": "input_required", "inputRequests": {"user_name": question("user_name")}, **state}
        task = created(name, given)
        task["answers"] = answers
    elif not MODERN and "task" not in params:
        if SUPPORT.get(name, "required") == "required":
            raise Refused(-32601, "this tool is called as a task")
        return content(f"{name} done at once")
    else:
        check(params)
        task = created(name, given)
    return {"resultType": "task", **shown(task)} if MODERN else {"task": shown(task)}


def about_task(method: str, params: dict[str, Any], identifier: Any) -> dict[str, Any] | None:
    """The answer to a request about a task; nothing where it comes later, or never."""
    check(params)
    task = tasks.get(params.get("taskId", ""))
    how = task["given"].get("how") if task is not None else "forgets"
    if how == "dies" and method == "tasks/get":
        os._exit(3)
    if task is None or (how == "forgets" and method == "tasks/get"):
        raise Refused(-32602, "no such task")
    if method == "tasks/cancel":
        task["end"] = "cancelled"
        return {} if MODERN else shown(task)
    if method == "tasks/update":
        for key in [key for key in params["inputResponses"] if key in task["open"]]:
            task["open"].remove(key)
            task["answers"][key] = params["inputResponses"][key]
        return {}
    if method == "tasks/result":
        return payload(task, identifier)
    return shown(task, detailed=True)


def payload(task: dict[str, Any], identifier: Any) -> dict[str, Any] | None:
    if task["given"].get("how") == "silent":
        return None
    if status(task) == "input_required":
        waiting[task["id"]] = identifier
        ask(task)
        return None
    if status(task) == "failed":
        raise Refused(-32050, "the job broke")
    return result(task)


def ask(task: dict[str, Any]) -> None:
    key = task["open"][0] if task["open"] else f"q{time.monotonic_ns()}"
    asked_of[f"{task['id']}.{key}"] = (task["id"], key)
    one = question(key)
    meta = {"io.modelcontextprotocol/related-task": {"taskId": task["id"]}}
    send({"id": f"{task['id']}.{key}", "method": one["method"], "params": {**one["params"], "_meta": meta}})


def answered(message: dict[str, Any]) -> None:
    identifier, key = asked_of.pop(message["id"])
    task = tasks[identifier]
    task["answers"][key] = message.get("result", message.get("error"))
    if key in task["open"]:
        task["open"].remove(key)
    if status(task) == "input_required":
        ask(task)
        return
    task["end"] = "completed"
    send({"id": waiting.pop(identifier), "result": result(task)})


def listed() -> dict[str, Any]:
    tools = []
    for name in TOOLS:
        about = "Waits for the parcel." if name == "job" else f"Does {name}."
        tool: dict[str, Any] = {"name": name, "description": about, "inputSchema": {"type": "object"}}
        if not MODERN:
            tool["execution"] = {"taskSupport": SUPPORT.get(name, "required")}
        tools.append(tool)
    return {"tools": tools}


def answer(method: str, params: dict[str, Any], identifier: Any) -> dict[str, Any] | None:
    if method == "server/discover" and MODERN:
        capabilities: dict[str, Any] = {"tools": {}, "extensions": {EXTENSION: {}}}
        return {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "ttlMs": 0, "cacheScope": "private"}
    if method == "initialize" and not MODERN:
        requests: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        about = {"serverInfo": {"name": "tasks", "version": "1"}, "protocolVersion": "2025-11-25"}
        return {**about, "capabilities": {"tools": {}, "tasks": requests}}
    if method == "tools/list":
        return listed()
    if method == "tools/call":
        return called(params)
    if method.startswith("tasks/"):
        return about_task(method, params, identifier)
    if method == "ping":
        return {}
    raise Refused(-32601, f"no {method}")


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "method" not in message:
            answered(message)
            continue
        with (FOLDER / "asked").open("a") as asked:
            asked.write(message["method"] + "\n")
        if "id" not in message:
            continue
        try:
            told = answer(message["method"], message.get("params", {}), message["id"])
        except Refused as refused:
            send({"id": message["id"], "error": refused.error})
        else:
            if told is not None:
                send({"id": message["id"], "result": {**({"resultType": "complete"} if MODERN else {}), **told}})


main()
