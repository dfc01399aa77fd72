"""An event loop in a thread of its own, so that programs without `async` can use an object that lives in one.

`LoopThread` opens an async object there and closes it again; `blocking` makes the blocking form of one of its methods,
with the same signature. Nothing is written twice. Above: `BlockingGateway`; of the gateway only
the errors speak here.
"""

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from toolfold.errors import StoreError

P = ParamSpec("P")
R = TypeVar("R")


class _Resource(Protocol):
    async def __aenter__(self) -> object: ...

    async def aclose(self) -> None: ...


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> "Callable[Concatenate[Any, P], R]":
    """The blocking form of one method of the object in the loop."""

    @wraps(method)
    def wait(self: "LoopThread", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.run(method(self._resource, *args, **kwargs))

    return wait


class LoopThread:
    """Holds an async resource open in its own loop and thread. Use it as `with`; leaving ends the thread."""

    def __init__(self, resource: _Resource) -> None:
        self._resource = resource
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        # A fork has no thread of its own: the loop, its servers and the store are those of who opened them.
        self._process = 0
        # Held while something is handed to the loop, so that it is still there.
        self._lock = threading.RLock()
        self._works: set[_Work[Any]] = set()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Whatever else the resource can do: a coroutine method in its blocking form, all else as it is."""
            if name.startswith("_") or name == "gateway":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            method = getattr(type(self._resource), name, None)
            if inspect.iscoroutinefunction(method):
                return blocking(method).__get__(self)
            return getattr(self._resource, name) if self._loop is None else self.run(self._attribute(name))

        async def _attribute(self, name: str) -> Any:
            """Read in the loop's thread: some parts start work when they are first asked for."""
            return getattr(self._resource, name)

    def __enter__(self) -> Self:
        if self._loop is not None:
            raise StoreError("the gateway is open already", next_action="use one `with` block for each gateway")
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=_served, args=(loop,), name="toolfold", daemon=True)
        thread.start()
        self._loop, self._thread, self._process = loop, thread, os.getpid()
        try:
            self.run(self._resource.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends every server, lets go of the store and ends the thread. Safe to call twice."""
        if self._loop is None or self._process != os.getpid():
            return
        try:
            self.run(self._resource.aclose())
        finally:
            self._end()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Runs a coroutine in the gateway's loop and waits for it. Stopping the wait, as Ctrl-C does, cancels it."""
        waiting_for = _Work(work)
        if self._loop is not None and self._process != os.getpid():  # whoever held the lock may not be here, either
            work.close()
            raise StoreError(
                "the gateway was opened by the process that this one was forked from",
                next_action="open a gateway here: with BlockingGateway(settings) as gateway",
            )
        try:
            self._hand(waiting_for)
            return waiting_for.result.result()
        finally:
            with self._lock:
                self._works.discard(waiting_for)
                if self._loop is not None and not waiting_for.result.done():
                    self._loop.call_soon_threadsafe(waiting_for.cancel)

    def _hand(self, work: "_Work[Any]") -> None:
        with self._lock:
            if self._loop is None or self._thread is None:
                work.close()
                raise StoreError(
                    "the gateway is not open", next_action="use it as: with BlockingGateway(settings) as gateway"
                )
            if threading.get_ident() == self._thread.ident:
                work.close()
                raise StoreError(
                    "a call from inside the gateway's own loop would wait for itself",
                    next_action="call from another thread, or await the methods of `.gateway`",
                )
            self._works.add(work)
            self._loop.call_soon_threadsafe(work.start)

    def _end(self) -> None:
        """Ends the thread. Whoever waits in another one hears so."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
            for work in self._works:
                work.end()
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


class _Work(Generic[R]):
    """A coroutine on its way through the loop. It is there before the loop knows of it, so that an interrupt at any
    moment finds something to cancel."""

    def __init__(self, work: Coroutine[Any, Any, R]) -> None:
        self.result: Future[R] = Future()
        self.close = work.close
        self._work = work
        self._task: asyncio.Task[R] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work)
        self._task.add_done_callback(self._done)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def end(self) -> None:
        """The gateway is closed: whoever waits need not wait for the loop."""
        with suppress(InvalidStateError):  # it has just ended by itself
            self.result.set_exception(
                StoreError(
                    "the gateway was closed before this was done", next_action="close it when nobody asks any more"
                )
            )

    def _done(self, task: "asyncio.Task[R]") -> None:
        error = None if task.cancelled() else task.exception()
        with suppress(InvalidStateError):  # nobody waits any more
            if task.cancelled():
                self.result.cancel()
            elif error is not None:
                self.result.set_exception(error)
            else:
                self.result.set_result(task.result())


def _served(loop: asyncio.AbstractEventLoop) -> None:
    """The thread: runs the loop until it is stopped, then ends what is left in it."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
