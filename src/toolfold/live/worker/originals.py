"""The worker's own references to builtins and system calls, taken before any user code runs.

Above: every other module of the worker. Below: the standard library.
"""

import builtins
import importlib
import os
import signal
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

# A session may delete `builtins.len` or replace `os.fork`. Each module of the worker assigns this copy to its
# `__builtins__` before it defines a function, because a function takes its builtins when it is created.
BUILTINS: dict[str, Any] = dict(vars(builtins))
globals()["__builtins__"] = BUILTINS

fork: Callable[[], int] = os.fork
exit_process: Callable[[int], Any] = os._exit
getpid: Callable[[], int] = os.getpid
kill: Callable[[int, int], None] = os.kill
waitpid: Callable[[int, int], tuple[int, int]] = os.waitpid
SIGKILL = int(signal.SIGKILL)
SIGINT = int(signal.SIGINT)
SIGCHLD = int(signal.SIGCHLD)
SIGNAL_NAMES = {int(number): number.name for number in signal.Signals}
# The C functions below the module `signal`, whose own are written in Python and look up the session's builtins.
signal_functions: Any = importlib.import_module("_signal")
FORK_WARNS = sys.version_info >= (3, 12)


class Attempt:
    """A context that runs user code: whatever it raises is stored in `error` and goes no further."""

    error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        # A broken `__repr__` may raise `KeyboardInterrupt` or `SystemExit`, and the worker must go on.
        self.error = error
        return True

    @property
    def failed(self) -> bool:
        return self.error is not None


class NeedsFork(Exception):
    """The request may run user code and has to be answered in a forked child."""
