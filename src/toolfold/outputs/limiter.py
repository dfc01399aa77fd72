"""Long work of extraction in threads of its own, a few at once: what the rest of the program does in threads goes on.

Above: `extraction.py`, its strategies, `references.py`. Below: `upstream/threads.py`.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

from toolfold.upstream.threads import run_in_thread

T = TypeVar("T")

MAX_CONCURRENT = 8
"""Functions that work at once. One that was given up keeps its turn until it has really ended."""

_LIMITERS: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]" = WeakKeyDictionary()


async def run_limited(function: Callable[[], T]) -> T:
    """What the function returns or raises."""
    turns = _LIMITERS.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MAX_CONCURRENT))
    await turns.acquire()
    return await run_in_thread(function, ended=turns.release)
