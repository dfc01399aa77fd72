"""Shared by the tests of outputs that several gateways read: an engine by its address, gateways on it, here or in
processes of their own, and a bucket.

As a program, `shared_kit.py ADDRESS FOLDER OUTPUTS`, it is one such gateway: a JSON line in, a JSON line out.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from toolfold import Gateway, Settings
from toolfold.config import Outputs
from toolfold.errors import ToolfoldError
from toolfold.storage.base import Store
from toolfold.storage.postgres import PostgresStore
from toolfold.storage.sqlite import SqliteStore
from toolfold.types import Caller

TIME_S = 60.0


def store_at(address: str) -> Store:
    """A store that nobody has opened yet: a file, or `postgresql://…`."""
    return PostgresStore(address) if address.startswith("postgresql://") else SqliteStore(address)


def caller(number: int, session: str = "s1") -> Caller:
    return Caller(name=f"caller-{number}", session=session)


def text_of(number: int, size: int = 20_000) -> str:
    """What this caller stores, told apart from everybody else's."""
    line = f"caller-{number} owns this line\n"
    return line * (size // len(line))


@asynccontextmanager
async def gateway_at(
    address: str, folder: Path, *, store: Store | None = None, shared: str = "store", **outputs: Any
) -> AsyncIterator[Gateway]:
    """A gateway with folders of its own on the store at this address."""
    settings = Settings(home=folder / "home", outputs=Outputs(directory=str(folder / "base"), shared=shared, **outputs))
    async with Gateway(settings, store=store or store_at(address)) as gateway:
        yield gateway


def files(folder: Path) -> list[str]:
    """What a gateway's base folder holds of outputs, drafts included."""
    return sorted(file.name for file in (folder / "base").rglob("*") if file.is_file() and file.name != ".toolfold")


class GatewayProcess:
    """A gateway in a process of its own. `await ask(do="store", caller=1, …)` is what it answers."""

    def __init__(self, address: str, folder: Path, **outputs: Any) -> None:
        self._arguments = (address, str(folder), json.dumps(outputs))
        self.process: asyncio.subprocess.Process

    async def __aenter__(self) -> "GatewayProcess":
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, __file__, *self._arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 24, env=dict(os.environ),
        )  # fmt: skip
        assert await self.answer() == {"ready": True}
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self.process.returncode is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                await asyncio.wait_for(self.process.wait(), TIME_S)
            except TimeoutError:
                self.process.kill()
                raise

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()

    def send(self, **question: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(question).encode() + b"\n")

    async def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(await asyncio.wait_for(self.process.stdout.readline(), TIME_S))

    async def ask(self, **question: Any) -> Any:
        self.send(**question)
        return await self.answer()


async def _answer(gateway: Gateway, do: str, caller: int, session: str = "s1", **more: Any) -> Any:
    who = Caller(name=f"caller-{caller}", session=session)
    if do == "store":
        text = text_of(caller, more.get("size", 20_000))
        return (await gateway.outputs.store_text(text, tool_id="box.dump", caller=who)).handle
    if do == "read":
        return (await gateway.outputs.file(more["handle"], who)).read_text()
    if do == "list":
        return [stored.handle for stored in await gateway.outputs(who)]
    raise ValueError(do)


async def main(address: str, folder: str, outputs: str) -> None:
    reader = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    def tell(value: Any) -> None:
        sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
        sys.stdout.buffer.flush()

    async with gateway_at(address, Path(folder), **json.loads(outputs)) as gateway:
        tell({"ready": True})
        while line := await reader.readline():
            questions = json.loads(line)
            try:
                tell(await _answer(gateway, **questions))
            except ToolfoldError as error:
                tell({"error": error.as_dict()})


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
