"""Runs a function that may block in a thread of its own, so that it can be awaited, and abandoned, without harm.

Threads of the standard executor are joined when the program ends, so a function that never returns would hold it up.
These are daemons and hold up nothing.
"""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")


async def run_in_thread(function: Callable[[], _T], *, ended: Callable[[], None] | None = None) -> _T:
    """Runs a function in a daemon thread of its own, with the caller's context variables.

    `ended` is called on the loop when the function has really ended, however long ago it was abandoned.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if ended is not None:
            ended()
        if done.done():
            return
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)

    def work() -> None:
        value: Any = None
        fault: BaseException | None = None
        try:
            value = context.run(function)
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - handed to who awaits the future
            # A future cannot carry StopIteration, and what would end the program ends only this call.
            plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            fault = error if plain else RuntimeError(f"{type(error).__name__}: {error}")
        with contextlib.suppress(RuntimeError):  # The loop has ended: nobody waits any more.
            loop.call_soon_threadsafe(settle, value, fault)

    try:
        threading.Thread(target=work, name=f"toolfold-{getattr(function, '__name__', 'tool')}", daemon=True).start()
    except RuntimeError:  # There are too many threads: it never began, so it has ended.
        if ended is not None:
            ended()
        raise
    return await done
