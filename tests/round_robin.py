"""Several gateways behind a proxy that gives every request to the next of them: plain HTTP/1.1, streams included.

    python tests/round_robin.py N COMMAND… serve … --http 127.0.0.1:0

starts the command N times and one proxy, and says "serving on ADDRESS" as `toolfold serve` does; without `--http` it is
the command itself. Which store the gateways share, the command and its environment say. A gateway that cannot be
connected to is passed over.
"""

import asyncio
import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress

HEAD_BYTES = 1 << 17
START_S = 60
END_S = 40


class RoundRobin:
    """A proxy before the given ports of this machine."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.ports = list(ports)
        self._turns = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self, port: int = 0) -> AsyncIterator[int]:
        """The port it listens on, while it does."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", port, limit=HEAD_BYTES)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request: each connection has one, so that the next goes to the next gateway."""
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                head = await reader.readuntil(b"\r\n\r\n")
                lines = [line for line in head.split(b"\r\n")[:-2] if not line.lower().startswith(b"connection:")]
                from_gateway, to_gateway = await self._connect()
                try:
                    to_gateway.write(b"\r\n".join([*lines, b"Connection: close", b"", b""]))
                    sending = asyncio.ensure_future(_pump(reader, to_gateway))
                    await _pump(from_gateway, writer)
                    sending.cancel()
                    await asyncio.gather(sending, return_exceptions=True)
                finally:
                    to_gateway.close()
        finally:
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        for _ in self.ports:
            with suppress(ConnectionError):
                return await asyncio.open_connection("127.0.0.1", self.ports[next(self._turns) % len(self.ports)])
        raise ConnectionRefusedError


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until one of the two is gone; then the other learns of it."""
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@contextmanager
def gateways(command: Sequence[str], count: int) -> Iterator[list[int]]:
    """The ports of so many processes of `toolfold serve`, each on a port of its own; then they must end when asked."""
    started: list[subprocess.Popen[str]] = []
    try:
        ports = []
        for _ in range(count):
            process = subprocess.Popen([*command, "--http", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
            started.append(process)
        for process in started:
            assert process.stderr is not None
            said = process.stderr.readline()
            found = re.search(r"http://\S+:(\d+)/mcp", said)
            if found is None:
                raise RuntimeError(f"serve said {said!r}")
            ports.append(int(found[1]))
            # Its log goes on, and must not fill the pipe.
            os.set_blocking(process.stderr.fileno(), False)
        yield ports
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.communicate(timeout=END_S)
        if any(process.returncode for process in started):
            raise RuntimeError(f"the gateways ended with {[process.returncode for process in started]}")


def main(arguments: Sequence[str]) -> None:
    count, *command = arguments
    if "--http" not in command:
        os.execvp(command[0], command)
    place = command.index("--http")
    with gateways([*command[:place], *command[place + 2 :]], int(count)) as ports:
        asyncio.run(_serve_until_signal(ports))


async def _serve_until_signal(ports: Sequence[int]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with RoundRobin(ports).listening() as port:
        sys.stderr.write(f"serving on http://127.0.0.1:{port}/mcp\n")
        sys.stderr.flush()
        await stop.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
