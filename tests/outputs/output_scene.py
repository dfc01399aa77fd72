"""Shared by the tests of storing: a gateway over one server in memory or one real process, in folders of its own."""

import asyncio
import json
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from open_gateway import OpenGateway

from toolfold import Gateway, Settings
from toolfold.config import Limits, MetadataRule, Outputs
from toolfold.testing.memory_upstream import MemoryUpstream
from toolfold.types import LOCAL, Caller, Outcome, ServerSpec

T = TypeVar("T")

SERVER = Path(__file__).parents[1] / "servers" / "large_stdio.py"
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("give", "other")]


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 120))


def settings(folder: Path, *, rules: tuple[MetadataRule, ...] = (), lifetime_s: float = 600, **limits: Any) -> Settings:
    return Settings(
        home=folder / "home",
        outputs=Outputs(directory=str(folder / "base"), lifetime_s=lifetime_s),
        limits=Limits(**limits),
        rules=rules,
    )


def large_spec() -> ServerSpec:
    return ServerSpec(name="large", transport="stdio", command=sys.executable, args=(str(SERVER),))


class Scene(OpenGateway):
    """An open gateway with what it tells. `answer(result)` is what the tool `s.give` then returns."""

    def __init__(self, folder: Path, given: Settings | None = None, **options: Any) -> None:
        self.base = folder / "base"
        self.upstream = MemoryUpstream("s", TOOLS)
        super().__init__(Gateway(given or settings(folder, **options), upstreams=[self.upstream]))

    async def give(self, result: Any, caller: Caller = LOCAL, **options: Any) -> Outcome:
        self.upstream.answer("give", result)
        return await self.gateway.call_tool("s.give", {"a": 1}, caller=caller, **options)

    def files(self) -> list[Path]:
        return sorted(file for file in self.base.rglob("*") if file.is_file()) if self.base.exists() else []

    def names(self) -> list[str]:
        return [event.name for event in self.told]

    def kept(self, outcome: Outcome, caller: Caller = LOCAL) -> bytes:
        assert outcome.stored is not None
        return self.gateway.outputs.store.find(outcome.stored.handle, caller)[1].read_bytes()


def text_result(text: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **more}


def read(outcome: Outcome) -> dict[str, Any]:
    found = json.loads(bytes(outcome.result))
    assert isinstance(found, dict)
    return found


def texts(outcome: Outcome) -> list[str]:
    return [block["text"] for block in read(outcome)["content"] if block["type"] == "text"]


def encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)
