"""`toolfold login` in tmux, a terminal as people have it: 80 columns, a shell, what is typed comes in as keys."""

import asyncio
import os
import re
import shlex
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from provider import provider
from sign_in_kit import _HERE, MarkedHttp, write_config

from toolfold.auth.vault import Vault

pytestmark = pytest.mark.requirement("G-12")


class Tmux:
    """A session of a tmux server of its own; what its pane was sent is read from a pipe."""

    def __init__(self, folder: Path) -> None:
        self._start = ("tmux", "-S", str(folder / "tmux"), "-f", "/dev/null")
        self._pipe = folder / "pane"
        self._text = ""

    async def run(self, *arguments: str) -> None:
        env = {name: value for name, value in os.environ.items() if name not in (*_HERE, "TMUX")}
        done = await asyncio.create_subprocess_exec(*self._start, *arguments, env=env)
        assert await done.wait() == 0, arguments

    async def open(self) -> None:
        os.mkfifo(self._pipe)
        await self.run("new-session", "-d", "-s", "one", "-x", "80", "-y", "24", "sh")
        reader = os.open(self._pipe, os.O_RDONLY | os.O_NONBLOCK)
        self._reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(self._reader)
        await self.run("pipe-pane", "-t", "one", f"exec cat >{shlex.quote(str(self._pipe))}")
        self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(reader))

    async def type(self, text: str) -> None:
        await self.run("send-keys", "-t", "one", "-l", text)
        await self.run("send-keys", "-t", "one", "Enter")

    async def until(self, pattern: str) -> re.Match[str]:
        async with asyncio.timeout(60):
            while (found := re.search(pattern, self._text)) is None:
                data = await self._reader.read(65536)
                assert data, f"{pattern!r} was never shown, but: {self._text}"
                self._text += data.decode(errors="replace")
        return found

    async def aclose(self) -> None:
        self._transport.close()
        await self.run("kill-server")


@asynccontextmanager
async def tmux(folder: Path) -> AsyncIterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("there is no tmux here")
    made = Tmux(folder)
    await made.open()
    try:
        yield made
    finally:
        await made.aclose()


@pytest.mark.parametrize("way", ["device", "paste"])
async def test_18_somebody_signs_in_in_tmux(tmp_path: Path, way: str) -> None:
    with provider(device=way == "device") as issuer:
        keys = await issuer.keys()
        async with MarkedHttp(issuer=issuer.issuer, keys=keys) as server, tmux(tmp_path) as terminal:
            options = write_config(tmp_path, server.url)
            await terminal.type(shlex.join((sys.executable, "-m", "toolfold", *options, "login", "box")))
            if way == "device":
                shown = await terminal.until(r"(http\S+)\s[\s\S]*and enter the code  (?:\x1b\[[\d;]*m)*([\w-]+)")
                await issuer.visit(f"{shown[1]}?user_code={shown[2]}", "ada")
            else:
                shown = await terminal.until(r"(http\S+)\s[\s\S]*Paste the address you were sent to: ")
                await terminal.type(await issuer.visit(shown[1], "ada"))
            await terminal.until(r"signed in(?:\x1b\[[\d;]*m)* to box")
            await terminal.until("next: toolfold build|in the catalogue")
    assert (await Vault(tmp_path / "home").get("box")) is not None
