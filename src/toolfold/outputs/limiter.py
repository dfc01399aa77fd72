"""Long blocking work of this stage, in threads of its own and a few at once, so that the program's other threads go on.

Above: `extraction.py`, its strategies, `references.py`. Below: `upstream/threads.py`.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

from toolfold.upstream.threads import run_in_thread

T = TypeVar("T")

MAX_CONCURRENT = 8

# A semaphore belongs to one event loop, and `toolfold.extract` runs a new one each time.
_LIMITERS: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]" = WeakKeyDictionary()


async def run_limited(function: Callable[[], T]) -> T:
    """Runs a function in a thread once there is a free slot, and returns what it returns."""
    limiter = _LIMITERS.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MAX_CONCURRENT))
    await limiter.acquire()
    # A thread cannot be cancelled: the slot is free only when the function has really ended.
    return await run_in_thread(function, ended=limiter.release)
