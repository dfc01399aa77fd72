"""How much each caller may use: calls a minute and at once, bytes stored a day, seconds of scripts an hour.

All gateways on one store count together, in counters of the store that begin anew with each minute, hour and day of
the clock. Calls are reserved ahead, a twentieth of the quota at a time, so that one call in many asks the store: nobody
gets more than the quota in one window, and with several gateways a caller may be refused that much early from each
other one. Slots for calls at once are held while they are used, and a moment longer; those of a gateway that was killed
count until the minute is over. Bytes and seconds are counted when they are used: what is under way may go over. Where
the store cannot be asked, this gateway counts for itself. Without a quota nothing is counted. Above: `access.py`.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from toolfold.config import Settings
from toolfold.config.sections import _Quotas
from toolfold.containers import BoundedDict, TaskSet
from toolfold.errors import QuotaExceeded, StoreError
from toolfold.storage.base import Store
from toolfold.types import CallContext, Caller, Outcome, ToolCall

log = logging.getLogger("toolfold.quotas")

_NAMESPACE = "quotas"
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_MAX_CALLERS = 10_000
# What is reserved ahead: this part of the quota, and no more than so many calls.
_PARTS, _MAX_BATCH = 20, 100
_STORE_S = 2.0
# How long a call waits for one of its caller's to end, and how often it looks whether one ended elsewhere.
_WAIT_S = 1.0
_LOOK_S = 0.1
# How long a slot that is free is held for the next call.
_KEEP_S = 0.2

_StoreLarge = Callable[[ToolCall, CallContext, Outcome], Awaitable[Outcome] | None]


class _Reserved:
    """What one caller may still call in this minute without asking the store."""

    __slots__ = ("exhausted", "granted", "left", "limit", "lock", "window")

    def __init__(self, window: int, limit: int) -> None:
        self.window, self.limit = window, limit
        self.left = self.granted = 0
        self.exhausted = False
        self.lock = asyncio.Lock()


class _Slots:
    """The calls of one caller that run here, and how many of its slots this gateway holds for them."""

    __slots__ = ("held", "lock", "running", "trimming", "waiting", "window")

    def __init__(self) -> None:
        self.running = self.held = self.window = 0
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.lock = asyncio.Lock()
        self.trimming = False


class _QuotaKeeper:
    """The quotas of one configuration, counted in one store."""

    def __init__(self, store: Store | None, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._reserved: BoundedDict[str, _Reserved] = BoundedDict(_MAX_CALLERS)
        self._slots: dict[str, _Slots] = {}
        # By the identity of its context: each call that holds a slot, with its caller.
        self._holding: dict[int, str] = {}
        self._tasks = TaskSet(log)
        self._renewing: asyncio.Task[Any] | None = None
        self._away = False
        self.reconfigure(settings)

    def reconfigure(self, settings: Settings) -> None:
        """Takes over other quotas, for the next call of each caller."""
        self._defaults = settings.quotas
        self._by_policy = {policy.name: policy.quotas for policy in settings.policies if policy.quotas}
        self._by_caller = {caller.name: caller.quotas for caller in settings.callers if caller.quotas}
        self._any = bool(self._by_policy or self._by_caller) or settings.quotas != _Quotas()

    async def aclose(self) -> None:
        """Gives back what is held, so that other gateways need not wait for the minute's end."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        for name, slots in tuple(self._slots.items()):
            slots.running = 0
            await self._give_back(name, slots)
        await self._tasks.wait()

    def of(self, caller: Caller) -> _Quotas:
        """What a caller may use: its own quotas, else its policy's, else those of all. 0: as much as it likes."""
        own = {**self._by_policy.get(caller.policy, {}), **self._by_caller.get(caller.name, {})}
        return _Quotas(**{**_fields(self._defaults), **own}) if own else self._defaults

    # --- calls

    def check(self, call: ToolCall, context: CallContext) -> Awaitable[ToolCall] | None:
        """The first check of every call. Raises `QuotaExceeded`."""
        if not self._any:
            return None
        quotas, name = self.of(context.caller), context.caller.name
        if quotas.calls_per_minute and not self._take(name, quotas.calls_per_minute):
            return self._wait(call, context, quotas, reserve=True)
        if quotas.calls_at_once and not self._enter(name, context):
            return self._wait(call, context, quotas)
        return None

    async def _wait(self, call: ToolCall, context: CallContext, quotas: _Quotas, *, reserve: bool = False) -> ToolCall:
        name = context.caller.name
        if reserve:
            await self._reserve(name, quotas.calls_per_minute)
        if quotas.calls_at_once and not self._enter(name, context):
            await self._acquire(name, context, quotas.calls_at_once)
        return call

    def _take(self, name: str, limit: int) -> bool:
        """Takes one of the calls that are reserved. Raises where the store said that none is left."""
        window = self._window(_MINUTE)
        entry = self._reserved.get(name)
        if entry is None or entry.window != window or entry.limit != limit:
            entry = _Reserved(window, limit)
            self._reserved.renew(name, entry)
        if entry.left:
            entry.left -= 1
            return True
        if entry.exhausted:
            raise self._exceeded("calls_per_minute", f"{limit:,} calls a minute", _MINUTE)
        return False

    async def _reserve(self, name: str, limit: int) -> None:
        while not self._take(name, limit):
            entry = self._reserved[name]
            async with entry.lock:
                if entry.left or entry.exhausted:
                    continue
                batch = max(1, min(_MAX_BATCH, limit // _PARTS))
                total = await self._add("calls", _MINUTE, entry.window, name, batch)
                before = entry.granted if total is None else int(total) - batch
                entry.left = max(0, min(batch, limit - before))
                entry.granted += entry.left
                entry.exhausted = not entry.left

    def _enter(self, name: str, context: CallContext) -> bool:
        """Takes a slot that this gateway holds for the caller, where one is free."""
        slots = self._slots.get(name)
        if slots is None or slots.running >= slots.held or slots.window != self._window(_MINUTE):
            return False
        slots.running += 1
        self._holding[id(context)] = name
        return True

    async def _acquire(self, name: str, context: CallContext, limit: int) -> None:
        slots = self._slots.setdefault(name, _Slots())
        deadline = time.monotonic() + _WAIT_S
        while not self._enter(name, context):
            if slots.running < limit and await self._hold_more(name, slots, limit):
                continue
            if time.monotonic() >= deadline:
                raise QuotaExceeded(
                    f"{limit} of your calls run already, as many as you may have at once",
                    quota="calls_at_once",
                    retry_after_s=1,
                    next_action="wait until one of them has ended, then call again; make fewer calls at once",
                )
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            slots.waiting.append(turn)
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await turn
            finally:
                with suppress(ValueError):
                    slots.waiting.remove(turn)

    async def _hold_more(self, name: str, slots: _Slots, limit: int) -> bool:
        """Holds one slot more, where all gateways together hold fewer than `limit`."""
        async with slots.lock:
            if slots.window != self._window(_MINUTE):
                await self._renew(name, slots)
            if slots.held > slots.running:
                return True
            total = await self._add("slots", _MINUTE, slots.window, name, 1)
            if total is not None and total > limit:
                await self._add("slots", _MINUTE, slots.window, name, -1)
                return False
            slots.held += 1
        if self._renewing is None or self._renewing.done():
            self._renewing = self._tasks.start(self._keep_renewed(), name="slots of callers")
        return True

    async def _renew(self, name: str, slots: _Slots) -> None:
        """Holds what runs in the counter of this minute, too."""
        slots.window, slots.held = self._window(_MINUTE), slots.running
        if slots.running:
            await self._add("slots", _MINUTE, slots.window, name, slots.running)

    async def _keep_renewed(self) -> None:
        """Tells the others of long calls as each minute begins, while there are any."""
        while self._holding:
            await asyncio.sleep(_MINUTE - self._clock() % _MINUTE)
            for name, slots in tuple(self._slots.items()):
                async with slots.lock:
                    if slots.running and slots.window != self._window(_MINUTE):
                        await self._renew(name, slots)

    def ended(self, context: CallContext) -> None:
        """A call is over, however it ended."""
        name = self._holding.pop(id(context), None) if self._holding else None
        if name is None:
            return
        slots = self._slots[name]
        slots.running -= 1
        if slots.waiting:
            turn = slots.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
        elif not slots.trimming:
            slots.trimming = True
            asyncio.get_running_loop().call_later(_KEEP_S, self._trim, name, slots)

    def _trim(self, name: str, slots: _Slots) -> None:
        slots.trimming = False
        if slots.held > slots.running:
            self._tasks.start(self._give_back(name, slots), name="slots of a caller")

    async def _give_back(self, name: str, slots: _Slots) -> None:
        async with slots.lock:
            free, slots.held = slots.held - slots.running, slots.running
            if free > 0 and slots.window == self._window(_MINUTE):
                await self._add("slots", _MINUTE, slots.window, name, -free)
        if not (slots.running or slots.held or slots.waiting or slots.lock.locked()):
            self._slots.pop(name, None)

    # --- what is stored, and scripts

    def bound(self, store_large: _StoreLarge) -> _StoreLarge:
        """The hook that stores large results, for callers who have not stored too much already."""

        def hook(call: ToolCall, context: CallContext, outcome: Outcome) -> Awaitable[Outcome] | None:
            storing = store_large(call, context, outcome)
            limit = self.of(context.caller).stored_bytes_per_day if self._any else 0
            return storing if storing is None or not limit else self._store_counted(storing, context, outcome, limit)

        return hook

    async def _store_counted(
        self, storing: Awaitable[Outcome], context: CallContext, outcome: Outcome, limit: int
    ) -> Outcome:
        name = context.caller.name
        if (await self._add("stored", _DAY, self._window(_DAY), name, 0) or 0) >= limit:
            if asyncio.iscoroutine(storing):
                storing.close()
            if outcome.spilled is not None:
                outcome.spilled.close()
            raise self._exceeded(
                "stored_bytes_per_day",
                f"{limit:,} bytes of stored results a day; the tool did its work, and its answer is too large to show",
                _DAY,
                "ask for less, so that the answer need not be stored; ",
            )
        done = await storing
        if done.all_stored:
            await self._add("stored", _DAY, self._window(_DAY), name, sum(one.bytes for one in done.all_stored))
        return done

    async def check_script(self, caller: Caller) -> None:
        """Raises `QuotaExceeded` for a caller whose scripts ran long enough for this hour."""
        limit = self.of(caller).script_s_per_hour if self._any else 0
        if limit and (await self._add("scripts", _HOUR, self._window(_HOUR), caller.name, 0) or 0) >= limit:
            raise self._exceeded("script_s_per_hour", f"{limit:,} seconds of scripts an hour", _HOUR)

    async def count_script(self, caller: Caller, seconds: float) -> None:
        if self._any and self.of(caller).script_s_per_hour:
            await self._add("scripts", _HOUR, self._window(_HOUR), caller.name, seconds)

    # --- the store

    def _window(self, seconds: int) -> int:
        return int(self._clock() // seconds)

    async def _add(self, kind: str, seconds: int, window: int, name: str, amount: float) -> float | None:
        """Adds to a counter, and returns its sum; `None` where the store cannot be asked."""
        if self._store is None:
            return None
        try:
            async with asyncio.timeout(_STORE_S):
                total = await self._store.increment(_NAMESPACE, f"{kind}/{window}/{name}", amount, for_s=2.0 * seconds)
        except (StoreError, TimeoutError) as error:
            if not self._away:
                log.warning("quotas are counted by this gateway alone: the store fails (%s)", type(error).__name__)
            self._away = True
            return None
        self._away = False
        return total

    def _exceeded(self, quota: str, what: str, seconds: int, instead: str = "") -> QuotaExceeded:
        wait = max(1, math.ceil(seconds - self._clock() % seconds))
        return QuotaExceeded(
            f"you have used up your {what}",
            quota=quota,
            retry_after_s=wait,
            next_action=f"{instead}wait {wait} s, then it works again; whoever runs the gateway can raise {quota}",
        )


def _fields(quotas: _Quotas) -> dict[str, int]:
    return {name: getattr(quotas, name) for name in _Quotas.__struct_fields__}
