"""Long work of extraction in threads of its own, a few at once: what the rest of the program does in threads goes on.

Above: `extraction.py`, its strategies, `references.py`. Below: `upstream/threads.py`.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

from toolfold.upstream.threads import in_thread

T = TypeVar("T")

AT_ONCE = 8
"""Functions that work at once. One that was given up keeps its turn until it has really ended."""

_TURNS: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]" = WeakKeyDictionary()


async def in_turn(function: Callable[[], T]) -> T:
    """What the function returns or raises."""
    turns = _TURNS.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE))
    await turns.acquire()
    return await in_thread(function, ended=turns.release)
