"""Children that are ready before they are needed: the one way to confined processes.

`async with Zygote("package.module:function") as zygote: async with await zygote.take() as child: …`. The function runs
in the child, after confinement, as `function(channel)`; its module and `preload` are imported once, in the zygote. It
keeps `ready` children waiting, hands each out once, and starts over when the zygote dies. Above: `scripts`, `live`.
Below: `backends.py`, which says how children are confined here, and `zygote_process.py`, one zygote at a time.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec

from toolfold.errors import SandboxError
from toolfold.sandbox.backends import Backend, BackendName, choose_backend
from toolfold.sandbox.base import Child, ChildLimits
from toolfold.sandbox.child import HostedChild
from toolfold.sandbox.zygote_process import ZygoteProcess

_ATTEMPTS = 3
# How long after a child was taken the next is made: the first moments belong to the one that was taken.
_REFILL_S = 0.01
_DEFAULT_LIMITS = ChildLimits()


class Zygote:
    """A `Children`. With `unsafe`, children run unconfined, and their `layers` are empty."""

    def __init__(
        self,
        entry: str,
        *,
        preload: Sequence[str] = (),
        limits: ChildLimits = _DEFAULT_LIMITS,
        ready: int = 2,
        unsafe: bool = False,
        readable: Sequence[Path] = (),
        namespaces: bool = True,
        prefer: BackendName | None = None,
    ) -> None:
        """`namespaces=False` and `prefer` try what other machines would have to make do with."""
        self._limits = limits
        self._wanted = ready
        self._unsafe = unsafe
        self._prefer = prefer
        self._readable = [str(Path(path).resolve()) for path in readable]
        self._configuration = {
            "entry": entry,
            "preload": list(preload),
            "limits": msgspec.to_builtins(limits),
            "readable": self._readable,
            "namespaces": namespaces,
        }
        self._backend: Backend | None = None
        self._process: ZygoteProcess | None = None
        self._starting = asyncio.Lock()
        self._ready: deque[asyncio.Task[HostedChild]] = deque()
        self._taken: set[HostedChild] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Starts the zygote and its first children, so that the first `take` need not wait. Raises as `take` does."""
        self._refill()
        await asyncio.gather(*(asyncio.shield(task) for task in self._ready))

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be had here, though children are confined all the same."""
        return self._process.problems if self._process is not None else ()

    async def take(self) -> Child:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                child = await self._next_child()
            except SandboxError:
                if self._closed:
                    raise _closed_error() from None
                # Worth another attempt only where the zygote itself died.
                if attempt == _ATTEMPTS or (self._process is not None and self._process.alive):
                    raise
                continue
            self._taken = {other for other in self._taken if not other.closed} | {child}
            if child.running:
                child.begin()
                asyncio.get_running_loop().call_later(_REFILL_S, self._refill)
                return child
            await child.aclose()  # its zygote died while it was ready
        raise SandboxError(
            f"{_ATTEMPTS} children in a row died before they could be used", next_action="run `toolfold doctor`"
        )

    async def aclose(self) -> None:
        """Ends every child and the zygote. Safe to call twice."""
        self._closed = True
        while self._ready:
            try:
                self._taken.add(await self._ready.popleft())
            except SandboxError:
                continue  # it never started
        children, self._taken = list(self._taken), set()
        await asyncio.gather(*(child.aclose() for child in children))
        async with self._starting:
            await self._close_process()

    async def _next_child(self) -> HostedChild:
        task = self._ready.popleft() if self._ready else self._spawn()
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._ready.appendleft(task)
            raise

    def _refill(self) -> None:
        while not self._closed and len(self._ready) < self._wanted:
            self._ready.append(self._spawn())

    def _spawn(self) -> asyncio.Task[HostedChild]:
        task = asyncio.create_task(self._create())
        # An error is for whoever takes the child. asyncio logs what nobody retrieves.
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return task

    async def _create(self) -> HostedChild:
        """Returns a child that is confined and waits."""
        if self._backend is None:
            self._backend = choose_backend(unsafe=self._unsafe, readable=self._readable, prefer=self._prefer)
        backend = self._backend
        process = await (self._start_process(backend) if backend.single else self._shared_process(backend))
        child = process.fork()
        if backend.single:
            child.companion = process
        try:
            await child.ready
        except BaseException:
            await child.aclose()
            raise
        return child

    async def _start_process(self, backend: Backend) -> ZygoteProcess:
        return await ZygoteProcess.start({**self._configuration, "backend": backend.name}, self._limits, backend.wrap)

    async def _shared_process(self, backend: Backend) -> ZygoteProcess:
        """The running zygote, a new one if the last has died."""
        async with self._starting:
            if self._closed:
                raise _closed_error()
            if self._process is None or not self._process.alive:
                await self._close_process()
                self._process = await self._start_process(backend)
            return self._process

    async def _close_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.aclose()


def _closed_error() -> SandboxError:
    return SandboxError(
        "the gateway was closed, and what it ran in the sandbox ended with it",
        next_action="run it again with a gateway that stays open",
    )
