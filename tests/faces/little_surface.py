"""A surface of a few tools, for tests of whatever serves one. As a program it is served on stdio."""

import asyncio
import json
import os
from collections.abc import Callable

from msgspec import Raw

from toolfold.errors import ToolNotFound
from toolfold.faces.mcp_server.surface_app import SurfaceApp
from toolfold.faces.surface.base import SurfaceCall
from toolfold.types import Caller
from toolfold.wire.serving import Server
from toolfold.wire.serving.stdio import serve_stdio

NAMES = ("echo", "ask", "steps", "store")


def tool(name: str) -> Raw:
    return Raw(json.dumps({"name": name, "description": f"It is {name}.", "inputSchema": {"type": "object"}}).encode())


def said(value: object) -> Raw:
    return Raw(json.dumps({"content": [{"type": "text", "text": json.dumps(value)}]}).encode())


class LittleSurface:
    """Its list has one tool more once something was stored, or from the start for those who do not listen."""

    def __init__(self) -> None:
        self.stored = False
        self._hooks: list[Callable[[Caller | None], None]] = []

    async def instructions(self, caller: Caller) -> str:
        return "Use echo."

    async def tools(self, caller: Caller, *, listens: bool = False) -> tuple[Raw, ...]:
        names = NAMES if listens and not self.stored else (*NAMES, "more")
        return tuple(tool(name) for name in names)

    async def call(self, ask: SurfaceCall) -> Raw:
        if ask.name not in NAMES:
            raise ToolNotFound(f"there is no tool {ask.name!r}", hints=list(NAMES), next_action="use another")
        given = json.loads(bytes(ask.arguments))
        if ask.name == "ask" and ask.on_input is not None:
            form = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
            return said(json.loads(bytes(await ask.on_input("elicitation/create", Raw(json.dumps(form).encode())))))
        if ask.name == "steps" and ask.on_progress is not None:
            for step in (1, 2):
                ask.on_progress(Raw(json.dumps({"progressToken": 0, "progress": step, "total": 2}).encode()))
        if ask.name == "store":
            self.stored = True
            for hook in self._hooks:
                hook(None)
        return said({"given": given, "meta": json.loads(bytes(ask.meta or b"{}"))})

    def watch(self, hook: Callable[[Caller | None], None]) -> Callable[[], None]:
        self._hooks.append(hook)
        return lambda: self._hooks.remove(hook)


async def main() -> None:
    app = SurfaceApp(LittleSurface())
    await serve_stdio(Server(app), read_from=os.dup(0), write_to=os.dup(1))


if __name__ == "__main__":
    asyncio.run(main())
