"""The functions of BFCL as real MCP servers, one a class, with recorded servers beside them: streamable HTTP, loopback.

All run in this process, so that a task's state can be set, functions hidden and calls read out of the model's sight.
What a client sees are servers like any other, with their own lists, and `list_changed` when functions come or go.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from benchmarks.agent.twelve_servers import SERVERS as USUAL
from benchmarks.bfcl.official import BfclTask, Official
from toolfold.errors import ConfigError
from toolfold.faces.mcp_server.http import listening_socket, run_site
from toolfold.types import EMPTY_OBJECT, Caller, ServerSpec
from toolfold.wire.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, encode
from toolfold.wire.serving import About, Client, Exchange, NotificationHub, RpcError, Server
from toolfold.wire.serving.http import McpHttpApp
from toolfold.wire.serving.http_stream import Receive, Scope, Send
from toolfold.wire.types import TOOLS_CHANGED

Json = dict[str, Any]
LIST_TTL_MS = 3_600_000
"""Clients may keep a list until they hear that it changed; else they would read hundreds of lists again and again."""
FAILED = "Error during execution:"
"""How the official code begins the result of a call that raised."""


class _CallParams(Struct):
    name: str = ""
    arguments: dict[str, Any] = {}


class ServedApp:
    """One server: an application for `toolfold.wire.serving`."""

    def __init__(self, name: str, tools: list[Json], call: Callable[[str, Json], Json], instructions: str = "") -> None:
        self.hub = NotificationHub()
        self.tools = tools
        self.hidden: frozenset[str] = frozenset()
        self._call = call
        self._about = About(
            info={"name": name, "version": "1"},
            capabilities={"tools": {"listChanged": True}},
            instructions=instructions,
            ttl_ms=LIST_TTL_MS,
        )

    def hide(self, names: frozenset[str]) -> bool:
        """Offers all functions but these. Tells the clients, and whether that changed anything."""
        hidden = names & {tool["name"] for tool in self.tools}
        if hidden == self.hidden:
            return False
        self.hidden = hidden
        self.hub.publish(TOOLS_CHANGED)
        return True

    async def about(self, caller: Caller) -> About:
        return self._about

    async def handle(self, exchange: Exchange) -> Raw:
        offered = [tool for tool in self.tools if tool["name"] not in self.hidden]
        if exchange.method == "tools/list":
            return Raw(
                encode({"tools": offered} | ({"ttlMs": LIST_TTL_MS, "cacheScope": "public"} if exchange.modern else {}))
            )
        if exchange.method != "tools/call":
            raise RpcError(METHOD_NOT_FOUND, f"this server has no method {exchange.method!r}")
        params = msgspec.json.decode(exchange.params or EMPTY_OBJECT, type=_CallParams)
        if all(tool["name"] != params.name for tool in offered):
            raise RpcError(INVALID_PARAMS, f"there is no tool {params.name!r}")
        return Raw(encode(self._call(params.name, params.arguments)))

    async def notified(self, client: Client, method: str, params: Raw) -> None:
        """No notification changes what is served."""

    async def left(self, caller: Caller) -> None:
        """No state is held for a client."""

    async def watch_resource(self, uri: str, caller: Caller) -> None:
        raise RpcError(METHOD_NOT_FOUND, "this server has no resources")

    async def unwatch_resource(self, uri: str, caller: Caller) -> None:
        """Nothing is watched."""


class Servers:
    """Some of them on one address."""

    def __init__(self, apps: Mapping[str, ServedApp]) -> None:
        self.url = ""
        self._apps = apps
        self._sites: dict[str, McpHttpApp] = {}

    @property
    def specs(self) -> tuple[ServerSpec, ...]:
        return tuple(ServerSpec(name=name, transport="http", url=f"{self.url}/{name}") for name in self._apps)

    @property
    def tools(self) -> int:
        return sum(len(app.tools) for app in self._apps.values())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._sites[scope["path"].strip("/")](scope, receive, send)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        self._sites = {name: McpHttpApp(Server(app)) for name, app in self._apps.items()}
        with closing(listening_socket("127.0.0.1", 0)) as bound:
            self.url = f"http://127.0.0.1:{bound.getsockname()[1]}"
            running = asyncio.ensure_future(run_site(self, bound, stop))
            try:
                yield
            finally:
                stop.set()
                await running
                for site in self._sites.values():
                    await site.aclose()


class Playground(Servers):
    """All servers, the task that is played on them, and what was called in each of its turns."""

    def __init__(self, official: Official, data: Path | None = None, tools: int = 0) -> None:
        self.official = official
        self.turns: list[list[str]] = []
        self.answers: list[list[str]] = []
        """What the servers answered, call by call."""
        self._task: BfclTask | None = None
        apps = {name: ServedApp(name, listed, self._runner(name)) for name, listed in official.definitions.items()}
        super().__init__(apps | _recorded(data, tools, sum(len(app.tools) for app in apps.values())))

    def begin(self, task: BfclTask) -> dict[str, bool]:
        """Sets everything for a task. Gives the ids of the tools that came (true) or went (false)."""
        self.official.forget()
        self._task, self.turns, self.answers = task, [], []
        return self._hide(task.hidden_at(-1))

    def next_turn(self) -> dict[str, bool]:
        """The person's next turn begins, in which functions may come."""
        assert self._task is not None
        self.turns.append([])
        self.answers.append([])
        return self._hide(self._task.hidden_at(len(self.turns) - 1))

    def verdict(self) -> str:
        """What the official checker has against what was called; empty where the task is solved."""
        assert self._task is not None
        return self.official.judge(self._task, self.turns)

    def _hide(self, names: frozenset[str]) -> dict[str, bool]:
        changed: dict[str, bool] = {}
        for server, app in self._apps.items():
            before = app.hidden
            if server in self.official.definitions and app.hide(names):
                changed |= {f"{server}.{name}": name in before for name in before ^ app.hidden}
        return changed

    def _runner(self, server: str) -> Callable[[str, Json], Json]:
        def call(name: str, arguments: Json) -> Json:
            if self._task is None or not self.turns:
                return text_result("no task is played now", failed=True)
            written, answer = self.official.execute(self._task, server, name, arguments)
            self.turns[-1].append(written)
            self.answers[-1].append(answer)
            result = text_result(answer, failed=answer.startswith(FAILED))
            tool = next(tool for tool in self._apps[server].tools if tool["name"] == name)
            value = _as_object(answer)
            return result | {"structuredContent": value} if "outputSchema" in tool and value is not None else result

        return call


def _recorded(data: Path | None, tools: int, total: int) -> dict[str, ServedApp]:
    """As many recorded servers, whole, as it takes until there are so many tools in all; the usual dozen first."""
    if tools <= total:
        return {}
    if data is None:
        raise ConfigError("more tools come from recorded servers", next_action="give --data DIR with servers/NAME.json")
    folder = data / "servers" if (data / "servers").is_dir() else data
    names = {file.stem for file in folder.glob("*.json")}
    apps: dict[str, ServedApp] = {}
    for name in [*(name for name in USUAL if name in names), *sorted(names - set(USUAL))]:
        if total >= tools:
            break
        record = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        instructions = (record.get("initialize") or {}).get("instructions") or ""
        apps[name] = ServedApp(name, record["tools"], _refuse, instructions)
        total += len(record["tools"])
    return apps


def _refuse(name: str, arguments: Json) -> Json:
    return text_result(f"{name} is not connected to anything here", failed=True)


def text_result(text: str, *, failed: bool = False) -> Json:
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def _as_object(text: str) -> Json | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
