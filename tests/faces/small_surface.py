"""A surface of a few tools, for tests of whatever serves one. As a program it is served on stdio."""

import asyncio
import json
import os
from collections.abc import Callable

from msgspec import Raw

from toolfold.errors import ToolNotFound
from toolfold.faces.mcp_server.surface_app import SurfaceApp
from toolfold.faces.surface.base import LOCAL_CONTEXT, OnToolsChanged
from toolfold.types import EMPTY_OBJECT, CallContext, Caller
from toolfold.wire.serving import Server
from toolfold.wire.serving.stdio import serve_stdio

NAMES = ("echo", "ask", "steps", "store")


def tool(name: str) -> Raw:
    return Raw(json.dumps({"name": name, "description": f"It is {name}.", "inputSchema": {"type": "object"}}).encode())


def text_result(value: object) -> Raw:
    return Raw(json.dumps({"content": [{"type": "text", "text": json.dumps(value)}]}).encode())


class SmallSurface:
    """Its list has one tool more once something was stored, or from the start for those who do not listen."""

    def __init__(self) -> None:
        self.stored = False
        self._listeners: list[OnToolsChanged] = []

    async def instructions(self, caller: Caller) -> str:
        return "Use echo."

    async def tools(self, caller: Caller, *, listens: bool = False, apps: bool = False) -> tuple[Raw, ...]:
        names = NAMES if listens and not self.stored else (*NAMES, "more")
        return tuple(tool(name) for name in names)

    async def call(self, name: str, arguments: Raw = EMPTY_OBJECT, context: CallContext = LOCAL_CONTEXT) -> Raw:
        if name not in NAMES:
            raise ToolNotFound(f"there is no tool {name!r}", hints=list(NAMES), next_action="use another")
        given = json.loads(bytes(arguments))
        if name == "ask" and context.on_input is not None:
            form = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
            reply = await context.on_input("elicitation/create", Raw(json.dumps(form).encode()))
            return text_result(json.loads(bytes(reply)))
        if name == "steps" and context.on_progress is not None:
            for step in (1, 2):
                context.on_progress(Raw(json.dumps({"progressToken": 0, "progress": step, "total": 2}).encode()))
        if name == "store":
            self.stored = True
            for listener in self._listeners:
                listener(None)
        return text_result({"given": given, "meta": json.loads(bytes(context.meta or b"{}"))})

    def watch(self, listener: OnToolsChanged) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)


async def main() -> None:
    app = SurfaceApp(SmallSurface())
    await serve_stdio(Server(app), read_from=os.dup(0), write_to=os.dup(1))


if __name__ == "__main__":
    asyncio.run(main())
