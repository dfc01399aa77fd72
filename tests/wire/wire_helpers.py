"""Shared by the wire tests: open a connection, read raw JSON, look at processes."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from toolfold.types import Era
from toolfold.wire import Connection, Handlers, Target, WireOptions, connect

QUICK = WireOptions(start_timeout_s=20, request_timeout_s=10, close_grace_s=0.5)
FORMS = msgspec.structs.replace(QUICK, capabilities=Raw(b'{"elicitation":{}}'))


@contextlib.asynccontextmanager
async def opened(
    target: Target, options: WireOptions = QUICK, handlers: Handlers | None = None, era: Era | None = None
) -> AsyncIterator[Connection]:
    connection = await connect(target, options=options, handlers=handlers or Handlers(), era=era)
    try:
        yield connection
    finally:
        await connection.aclose()


def raw(value: object) -> Raw:
    return Raw(json.dumps(value).encode())


def value(found: Raw) -> Any:
    return json.loads(bytes(found))


def text_of(result: Raw) -> str:
    return str(value(result)["content"][-1]["text"])


async def names(connection: Connection) -> list[str]:
    return [value(tool)["name"] for tool in (await connection.list_tools()).tools]


async def until(condition: Callable[[], bool], seconds: float = 10) -> bool:
    """Waits for something that another process does."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what another process does sets no event of ours
            await asyncio.sleep(0.01)
    return True


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True
