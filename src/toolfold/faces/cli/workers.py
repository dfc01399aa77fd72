"""`toolfold serve --http … --workers N`: one supervisor, and N processes that answer on its one socket.

The supervisor opens the socket and answers nothing itself. Each worker is a whole gateway, with servers of its own;
what they share is in the store. A worker that dies is started again, after a pause that grows while it keeps dying. A
signal to stop, or to read the configuration again, goes on to the workers. Each worker watches a channel that ends with
the supervisor, however that died, and ends with it. Above: `toolfold serve`.
"""

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress

from msgspec import Struct

from toolfold.config import Settings
from toolfold.errors import ConfigError
from toolfold.faces.cli.terminal import Output

log = logging.getLogger("toolfold.serve")

# For a worker alone: its number, and the descriptors of the socket and of the channel to its supervisor.
_VARIABLE = "TOOLFOLD_WORKER"
_MAX_WORKERS = 64
_PAUSE_S, _MAX_PAUSE_S = 0.25, 30.0
# A worker that lived for so long did not die of how it was started.
_STABLE_S = 60.0
# For a worker's end beyond what its requests may take.
_END_S = 15.0


class _Worker(Struct, frozen=True):
    """What this process is, where a supervisor started it."""

    number: int
    bound: socket.socket
    _channel: socket.socket

    def watch(self, settings: Settings) -> None:
        """Tells the supervisor that requests are answered from now on. Ends this process when the supervisor is gone,
        as a signal to stop would; by force where that fails."""
        with suppress(OSError):  # it is gone already
            self._channel.send(b"+")
        end_s = settings.limits.drain_s + _END_S
        threading.Thread(target=self._watch, args=(end_s,), daemon=True, name="toolfold-supervisor").start()

    def _watch(self, end_s: float) -> None:
        with suppress(OSError):
            self._channel.recv(1)
        log.warning("the supervisor of this worker is gone: it ends, too")
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(end_s)
        os._exit(1)


def _as_worker() -> _Worker | None:
    """What a supervisor gave this process; nothing where it has none."""
    given = os.environ.pop(_VARIABLE, "")
    if not given:
        return None
    number, *descriptors = map(int, given.split(":"))
    bound, channel = (socket.socket(fileno=descriptor) for descriptor in descriptors)
    for one in (bound, channel):
        os.set_inheritable(one.fileno(), False)  # no server that a worker starts shall hold them
    bound.setblocking(False)
    return _Worker(number, bound, channel)


def _supervise(address: str, count: int, settings: Settings, output: Output) -> int:
    """Runs workers until a signal; gives the exit status. Raises `ConfigError` for what cannot be."""
    from toolfold.faces.mcp_server.http import listening_socket, parse_address

    if count > _MAX_WORKERS:
        raise ConfigError(
            f"{count} workers are too many", next_action=f"give at most {_MAX_WORKERS}: one for each core is enough"
        )
    host, port = parse_address(address)
    with closing(listening_socket(host, port)) as bound:
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{bound.getsockname()[1]}/mcp"
        return asyncio.run(_Supervisor(bound, count, settings).run(lambda: output.note(f"serving on {url}")))


class _Supervisor:
    """The workers of one socket."""

    def __init__(self, bound: socket.socket, count: int, settings: Settings) -> None:
        self._bound = bound
        self._count = count
        # How long a worker may take to end after a signal.
        self._end_s = settings.limits.drain_s + _END_S
        # What one worker stores, another may be asked for.
        shares = settings.outputs.shared == "auto"
        self._environ = {**os.environ, **({"TOOLFOLD_OUTPUTS__SHARED": "store"} if shares else {})}
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._stop = asyncio.Event()
        # How many have ever been ready: before the first is, a failure is final.
        self._ready = 0
        self._all_ready = asyncio.Event()
        self._status = 0

    async def run(self, on_ready: Callable[[], None]) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._end)
        loop.add_signal_handler(signal.SIGHUP, self._signal_all, signal.SIGHUP)
        # The first alone: what is wrong with the configuration is said once, and one builds the first catalogue.
        workers = [asyncio.ensure_future(self._keep(1))]
        await self._reached(1)
        if not self._stop.is_set():
            workers += [asyncio.ensure_future(self._keep(number)) for number in range(2, self._count + 1)]
            await self._reached(self._count)
        if not self._stop.is_set():
            on_ready()
        await self._stop.wait()
        _, running = await asyncio.wait(workers, timeout=self._end_s)
        if running:
            self._signal_all(signal.SIGKILL)
        await asyncio.gather(*workers)
        return self._status

    async def _reached(self, ready: int) -> None:
        while self._ready < ready and not self._stop.is_set():
            self._all_ready.clear()
            await self._all_ready.wait()

    def _end(self) -> None:
        """A second signal ends them at once."""
        self._signal_all(signal.SIGKILL if self._stop.is_set() else signal.SIGTERM)
        self._give_up(0)

    def _give_up(self, status: int) -> None:
        self._status = self._status or status
        self._stop.set()
        self._all_ready.set()

    def _signal_all(self, number: int) -> None:
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.send_signal(number)

    async def _keep(self, number: int) -> None:
        """Starts one worker, again and again, until all are to end."""
        pause_s = _PAUSE_S
        counted = False
        while not self._stop.is_set():
            began = time.monotonic()
            process, channel = await self._start(number)
            with closing(channel):
                is_ready = bool(await _read(channel))
                if is_ready and not counted:
                    self._ready, counted = self._ready + 1, True
                    self._all_ready.set()
                status = await process.wait()
            del self._processes[number]
            if self._stop.is_set():
                return
            if not self._ready:
                self._give_up(status or 1)
                return
            pause_s = _PAUSE_S if time.monotonic() - began > _STABLE_S else min(2 * pause_s, _MAX_PAUSE_S)
            log.error("worker %d ended (status %d): it is started again in %.1f s", number, status, pause_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stop.wait()

    async def _start(self, number: int) -> tuple[asyncio.subprocess.Process, socket.socket]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with closing(theirs):
            given = f"{number}:{self._bound.fileno()}:{theirs.fileno()}"
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "toolfold",
                *sys.argv[1:],
                env={**self._environ, _VARIABLE: given},
                stdin=subprocess.DEVNULL,
                pass_fds=(self._bound.fileno(), theirs.fileno()),
                start_new_session=True,  # Ctrl-C reaches the supervisor alone, who ends them in order
            )
        self._processes[number] = process
        if self._stop.is_set():  # the signal came while it was started
            process.terminate()
        return process, ours


async def _read(channel: socket.socket) -> bytes:
    """What a worker says; nothing where it ended before it said anything."""
    try:
        return await asyncio.get_running_loop().sock_recv(channel, 1)
    except OSError:
        return b""
