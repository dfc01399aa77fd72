"""Children that are ready before they are needed: the one door to confined processes.

`async with Zygote("package.module:function") as zygote: async with await zygote.take() as child: …`. The function runs
in the child, after confinement, as `function(channel)`; its module and `preload` are imported once, in the zygote. It
keeps `ready` children waiting, hands each out once, and starts over when the zygote dies. Above: `scripts`, `live`.
Below: `nursery.py`, one zygote at a time.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec

from toolfold.errors import SandboxError
from toolfold.sandbox import control_messages as control
from toolfold.sandbox.backends import Backend, BackendName, choose_backend
from toolfold.sandbox.base import Child, ChildLimits
from toolfold.sandbox.child import HostedChild
from toolfold.sandbox.zygote_process import ZygoteProcess

_ATTEMPTS = 3
_REFILL_S = 0.01
"""How long after a child was taken the next is made: the first moments belong to the one that was taken."""
_DEFAULT_LIMITS = ChildLimits()


class Zygote:
    """A `Children`. With `unsafe`, children run as they are, and their `layers` are empty."""

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
        """`namespaces=False` and `prefer` are for trying what other machines would have to make do with."""
        self._limits = limits
        self._wanted = ready
        self._unsafe = unsafe
        self._prefer = prefer
        self._readable = [str(Path(path).resolve()) for path in readable]
        self._configuration: control.Message = {
            "entry": entry,
            "preload": list(preload),
            "limits": msgspec.to_builtins(limits),
            "readable": self._readable,
            "namespaces": namespaces,
        }
        self._way: Backend | None = None
        self._nursery: ZygoteProcess | None = None
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
        return self._nursery.problems if self._nursery is not None else ()

    async def take(self) -> Child:
        for attempt in range(_ATTEMPTS):
            spawned = self._ready.popleft() if self._ready else self._spawn()
            try:
                child = await asyncio.shield(spawned)
            except SandboxError:
                if attempt + 1 == _ATTEMPTS or self._closed or self._healthy():
                    raise
                continue
            except asyncio.CancelledError:
                self._ready.appendleft(spawned)
                raise
            self._taken = {other for other in self._taken if not other.closed} | {child}
            if child.running:
                try:
                    await child.begin()
                except BaseException:
                    await child.aclose()
                    raise
                asyncio.get_running_loop().call_later(_REFILL_S, self._refill)
                return child
            await child.aclose()  # it waited, and its zygote died meanwhile
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
                continue  # it never was
        children, self._taken = list(self._taken), set()
        await asyncio.gather(*(child.aclose() for child in children))
        async with self._starting:
            if self._nursery is not None:
                nursery, self._nursery = self._nursery, None
                await nursery.aclose()

    def _healthy(self) -> bool:
        return self._nursery is not None and self._nursery.alive

    def _refill(self) -> None:
        while not self._closed and len(self._ready) < self._wanted:
            self._ready.append(self._spawn())

    def _spawn(self) -> asyncio.Task[HostedChild]:
        task = asyncio.create_task(self._make())
        task.add_done_callback(_retrieve_exception)
        return task

    async def _make(self) -> HostedChild:
        """A child that is confined and waits."""
        way = self._choose()
        nursery = await (self._start(way) if way.single else self._living(way))
        child = nursery.fork()
        if way.single:
            child.companion = nursery
        try:
            await child.ready
        except BaseException:
            await child.aclose()
            raise
        return child

    def _choose(self) -> Backend:
        if self._way is None:
            self._way = choose_backend(unsafe=self._unsafe, readable=self._readable, prefer=self._prefer)
        return self._way

    async def _start(self, way: Backend) -> ZygoteProcess:
        return await ZygoteProcess.start({**self._configuration, "way": way.name}, self._limits, way.wrap)

    async def _living(self, way: Backend) -> ZygoteProcess:
        """The zygote, a new one if the last has died."""
        async with self._starting:
            if self._closed:
                raise SandboxError("this zygote was closed", next_action="make a new one")
            if self._nursery is not None and not self._nursery.alive:
                nursery, self._nursery = self._nursery, None
                await nursery.aclose()
            if self._nursery is None:
                self._nursery = await self._start(way)
            return self._nursery


def _retrieve_exception(task: asyncio.Task[HostedChild]) -> None:
    """An error is for whoever takes the child; if nobody does, it is no one's."""
    if not task.cancelled():
        task.exception()
