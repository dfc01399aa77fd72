"""`toolfold serve` in front of a server whose calls become tasks, and clients of both eras that take one."""

import asyncio
import contextlib
import itertools
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
from mcp.shared.exceptions import MCPError
from served_config import Served

SERVER = Path(__file__).parents[1] / "servers" / "tasks_stdio.py"
TASKS = "io.modelcontextprotocol/tasks"
META = "io.modelcontextprotocol/"
RELATED = f"{META}related-task"


class Jobs(Served):
    """A server `jobs` of one era. `more` stands in its table."""

    def __init__(self, home: Path, upstream: str, profile: str = "direct", more: str = "", rest: str = "") -> None:
        super().__init__(home)
        self.profile = profile
        args = json.dumps([str(SERVER), upstream, str(home)])
        self.write(f'{rest}\n[servers.jobs]\ncommand = "{sys.executable}"\nargs = {args}\n{more}\n')

    def command(self, *options: str) -> list[str]:
        return [*super().command(), "--profile", self.profile, *options]

    def named(self, tool: str) -> str:
        return tool if self.profile == "transparent" else f"jobs_{tool}"

    def let_end(self) -> None:
        (self.home / "enough").touch()

    async def wait_until_asked(self, method: str, count: int = 1) -> None:
        """Until the server was asked that so often."""
        asked = self.home / "asked"
        async with asyncio.timeout(60):
            while not asked.exists() or asked.read_text().splitlines().count(method) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


class ModernClient:
    """A client of the modern era, message by message."""

    era = "modern"

    def __init__(self, url: str, key: str = "") -> None:
        self._url = url
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx2.AsyncClient(timeout=60, headers=headers)
        self.notifications: list[Any] = []
        self.takes_tasks = True
        self.named: Callable[[Any], Any] = lambda name: name

    async def aclose(self) -> None:
        await self._http.aclose()

    def _message(self, method: str, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        capabilities: dict[str, Any] = {"elicitation": {}, **({"extensions": {TASKS: {}}} if self.takes_tasks else {})}
        meta = {f"{META}protocolVersion": "2026-07-28", f"{META}clientCapabilities": capabilities, "progressToken": "p"}
        name = self.named(params.get("taskId", params.get("name")))
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, **({"Mcp-Name": name} if name else {})}
        headers["Accept"] = "application/json, text/event-stream"
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}, headers

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request. Raises `MCPError`."""
        body, headers = self._message(method, params)
        answer = await self._http.post(self._url, json=body, headers=headers)
        told = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")] or [answer.text]
        *before, last = [json.loads(line) for line in told]
        self.notifications += before
        if "error" in last:
            raise MCPError(last["error"]["code"], last["error"]["message"], last["error"].get("data"))
        return dict(last["result"])

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        return await self.ask("tools/call", name=name, arguments=arguments)

    async def start(self, name: str, **arguments: Any) -> str:
        """The id of the task that a call became."""
        created = await self.call(name, **arguments)
        assert created["resultType"] == "task", created
        assert created["status"] in {"working", "input_required"}
        return str(created["taskId"])

    async def state(self, task: str) -> str:
        return str((await self.ask("tasks/get", taskId=task))["status"])

    async def result(self, task: str) -> dict[str, Any]:
        """What it ended with. Answers what it asks."""
        async with asyncio.timeout(60):
            while (shown := await self.ask("tasks/get", taskId=task))["status"] in {"working", "input_required"}:
                answers = {
                    key: {"action": "accept", "content": {"name": "ann"}} for key in shown.get("inputRequests", {})
                }
                if answers:
                    await self.ask("tasks/update", taskId=task, inputResponses=answers)
                await asyncio.sleep(0.02)
        if "error" in shown:
            raise MCPError(shown["error"]["code"], shown["error"]["message"], shown["error"].get("data"))
        return dict(shown.get("result", {"status": shown["status"]}))

    async def cancel(self, task: str) -> None:
        assert await self.ask("tasks/cancel", taskId=task) == {"resultType": "complete"}

    async def follow(self, heard: "asyncio.Queue[Any]", tasks: list[str]) -> None:
        """Puts every message about these tasks into the queue, the acknowledgement first."""
        body, headers = self._message("subscriptions/listen", {"notifications": {"taskIds": tasks}})
        async with self._http.stream("POST", self._url, json=body, headers=headers) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    heard.put_nowait(json.loads(line[6:]))


class LegacyClient:
    """A client of 2025-11-25 that takes tasks, message by message: the official one knows no results of them."""

    era = "legacy"

    def __init__(self, url: str, key: str = "") -> None:
        self._url = url
        headers = {"Accept": "application/json, text/event-stream"}
        headers |= {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx2.AsyncClient(timeout=60, headers=headers)
        self._answering: set[asyncio.Task[Any]] = set()
        self._numbers = itertools.count(1)
        self.version = "2025-11-25"
        self.notifications: list[Any] = []

    async def aclose(self) -> None:
        await self._http.aclose()

    async def hello(self) -> dict[str, Any]:
        """The answer to the handshake of another session."""
        self._http.headers.pop("Mcp-Session-Id", None)
        self._http.headers["MCP-Protocol-Version"] = self.version
        about = {"protocolVersion": self.version, "clientInfo": {"name": "t", "version": "1"}}
        return await self.ask("initialize", **about, capabilities={"elicitation": {}})

    async def open(self) -> None:
        result = await self.hello()
        assert result["capabilities"]["tasks"] == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}

    async def _post(self, message: dict[str, Any]) -> None:
        assert (await self._http.post(self._url, json={"jsonrpc": "2.0", **message})).status_code == 202

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request. What is asked meanwhile is accepted. Raises `MCPError`."""
        number = next(self._numbers)
        body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        async with self._http.stream("POST", self._url, json=body) as answer:
            if session := answer.headers.get("mcp-session-id"):
                self._http.headers["Mcp-Session-Id"] = session
            async for line in answer.aiter_lines():
                text = line.removeprefix("data: ")
                if not text.startswith("{"):
                    continue
                message = json.loads(text)
                if message.get("id") == number and "method" not in message:
                    if "error" in message:
                        error = message["error"]
                        raise MCPError(error["code"], error["message"], error.get("data"))
                    return dict(message["result"])
                if "id" in message:
                    assert message["params"]["_meta"][RELATED] == {"taskId": params["taskId"]}
                    accepted = {"action": "accept", "content": {"name": "ann"}}
                    answering = asyncio.ensure_future(self._post({"id": message["id"], "result": accepted}))
                    self._answering.add(answering)
                    answering.add_done_callback(self._answering.discard)
                else:
                    self.notifications.append(message)
        raise AssertionError("the stream ended without an answer")

    async def give_up(self) -> None:
        """Cancels the last request."""
        await self._post({"method": "notifications/cancelled", "params": {"requestId": next(self._numbers) - 1}})

    async def start(self, name: str, **arguments: Any) -> str:
        created = (await self.ask("tools/call", name=name, arguments=arguments, task={"ttl": 600_000}))["task"]
        assert (created["status"], created["ttl"], created["pollInterval"]) == ("working", 600_000, 1000)
        return str(created["taskId"])

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        return await self.ask("tools/call", name=name, arguments=arguments, _meta={"progressToken": "p"})

    async def state(self, task: str) -> str:
        return str((await self.ask("tasks/get", taskId=task))["status"])

    async def result(self, task: str) -> dict[str, Any]:
        got = await self.ask("tasks/result", taskId=task)
        assert got["_meta"][RELATED] == {"taskId": task}
        return got

    async def cancel(self, task: str) -> None:
        assert (await self.ask("tasks/cancel", taskId=task))["status"] == "cancelled"

    async def follow(self, heard: "asyncio.Queue[Any]", tasks: list[str]) -> None:
        """Puts what belongs to no request into the queue, after the status of the stream."""
        async with self._http.stream("GET", self._url) as answer:
            heard.put_nowait(answer.status_code)
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    heard.put_nowait(json.loads(line[6:]))

    async def listed(self) -> list[str]:
        return [task["taskId"] for task in (await self.ask("tasks/list"))["tasks"]]


@contextlib.asynccontextmanager
async def connected(url: str, era: str, key: str = "") -> AsyncIterator[Any]:
    """A client of that era."""
    client = ModernClient(url, key) if era == "modern" else LegacyClient(url, key)
    try:
        if isinstance(client, LegacyClient):
            await client.open()
        yield client
    finally:
        await client.aclose()


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])
