"""Whoever has just signed in to a server: what it lists to them is being read, and who asks meanwhile waits for that,
rather than hear that there is no such tool.

One may have signed in at a page of this gateway, by another process, or come in with a token that is exchanged. No
caller stands for all, where they share an account. Above: the manager of the servers, which reads the lists.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

from toolfold.containers import BoundedDict, TaskSet
from toolfold.errors import SignInRequired, UpstreamError
from toolfold.upstream.caller_tools import CallerTools
from toolfold.upstream.credentials import Credentials

# A server, and the caller whose account it is.
_Key = tuple[str, str]

# How long somebody waits, counted from when the reading began; and how soon one that failed is read again by itself.
_WAIT_S = 10.0
_AGAIN_S = 30.0
_MAX_TRIED = 4096


class _Arrivals:
    """Of the servers of one gateway. `read` takes in what a server lists to a caller; `servers` are those where callers
    have accounts of their own."""

    def __init__(
        self,
        read: Callable[[str, str], Awaitable[None]],
        servers: Callable[[], frozenset[str]],
        credentials: Credentials,
        tools: CallerTools,
        tasks: TaskSet,
    ) -> None:
        self._read = read
        self._servers = servers
        self._credentials = credentials
        self._stamp = credentials.stamp
        self._known = tools.has_list
        self._tasks = tasks
        self.open = False
        """Whether any server was opened yet."""
        self.under_way: dict[_Key, tuple[float, asyncio.Task[None]]] = {}
        # The last reading of each that is over: when and with which credential it began, and why it failed.
        self._tried: BoundedDict[_Key, tuple[float, tuple[object, ...], UpstreamError | None]] = BoundedDict(_MAX_TRIED)

    def came_in(self, caller: str, token: str, until: float) -> None:
        """A caller came in with a token that servers may exchange. Where it had none, its tools there are listed."""
        for server in self._servers() if self._credentials.vault.hold(caller, token, until) else ():
            if self._credentials.exchanges(server):
                self.start(server, caller)

    def start(self, server: str, caller: str) -> None:
        """Reads what a server lists to a caller now; after what is being read with an earlier credential."""
        key = server, caller
        _, earlier = self.under_way.get(key, (0.0, None))
        task = self._tasks.start(self._run(key, earlier), name=f"the tools of a caller at {server}")
        self.under_way[key] = time.monotonic(), task
        task.add_done_callback(partial(self._ended, key))

    def _ended(self, key: _Key, task: "asyncio.Task[None]") -> None:
        if self.under_way.get(key, (0.0, None))[1] is task:  # and not one that began later
            del self.under_way[key]

    async def _run(self, key: _Key, earlier: "asyncio.Task[None] | None") -> None:
        if earlier is not None:
            await asyncio.wait([earlier])
        began, stamp, failure = time.monotonic(), self._stamp(*key), None
        try:
            await self._read(*key)
        except UpstreamError as error:
            failure = error
        self._tried.renew(key, (began, stamp, failure))

    async def settle(self, caller: str, hides: Callable[[str], bool]) -> None:
        """Waits for what is being read for a caller; not for what it may not see. A gateway that has opened no server
        yet opens none for this."""
        own = [(name, caller) for name in self._servers() if caller and not hides(name)]
        shared = [key for key in self.under_way if not (key[1] or hides(key[0]))]
        await self._wait([*own, *shared], begin=self.open)

    async def ask(self, servers: Iterable[str], caller: str) -> dict[str, UpstreamError]:
        """Waits for what those of these servers list where the caller has an account of its own. Gives why there is
        nothing of the others."""
        own = self._servers().intersection(servers if caller else ())
        return await self._wait([(name, caller) for name in own], begin=True)

    def concerning(self, caller: str, found: Mapping[str, UpstreamError]) -> dict[str, UpstreamError]:
        """Of these failures those that are an answer to a caller: that somebody else has not signed in is none."""
        own = self._servers() if caller else ()
        return {name: one for name, one in found.items() if name not in own or not isinstance(one, SignInRequired)}

    async def to_sign_in(self, caller: str) -> set[str]:
        """The servers that this caller has to sign in to with an account of its own, before it can use them."""
        waiting = self._servers().difference(server for server, who in self.under_way if who == caller)
        return {name for name in waiting if await self._credentials.has_ended(name, caller)}

    async def _wait(self, keys: Sequence[_Key], *, begin: bool) -> dict[str, UpstreamError]:
        """Waits for those of these lists that are being read; with `begin`, also for those that nobody has read yet.
        Gives the servers of the others, and why there is none."""
        for key in keys if begin else ():
            if await self._is_due(*key):
                self.start(*key)
        await self._wait_for(keys)
        failures = {key[0]: self._failure(key) for key in keys}
        return {server: error for server, error in failures.items() if error is not None}

    async def _wait_for(self, keys: Sequence[_Key]) -> None:
        while running := [self.under_way[key] for key in keys if key in self.under_way]:
            left = min(began for began, _ in running) + _WAIT_S - time.monotonic()
            if left <= 0:
                break
            await asyncio.wait([task for _, task in running], timeout=left, return_when=asyncio.FIRST_COMPLETED)

    async def _is_due(self, server: str, caller: str) -> bool:
        stamp = self._stamp(server, caller)
        if not stamp or (server, caller) in self.under_way or await self._known(server, caller):
            return False
        began, earlier, _ = self._tried.get((server, caller), (-_AGAIN_S, (), None))
        return stamp != earlier or time.monotonic() - began >= _AGAIN_S

    def _failure(self, key: _Key) -> UpstreamError | None:
        if key in self.under_way:
            return UpstreamError("it has not listed your tools yet", server=key[0])
        _, stamp, error = self._tried.get(key, (0.0, (), None))
        return None if error is None or stamp != self._stamp(*key) else error.with_traceback(None)
