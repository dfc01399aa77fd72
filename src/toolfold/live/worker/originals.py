"""The worker's own references, taken before any of a person's code runs.

A session may delete `builtins.len` or replace `os.fork`. Each module of the worker sets its `__builtins__` to
`BUILTINS` before it defines a function, so that its functions never look at the session's builtins.
"""

import builtins
import importlib
import os
import signal
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

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
SIGNAL_NAMES = {int(known): known.name for known in signal.Signals}
signal_functions: Any = importlib.import_module("_signal")
"""The functions below the module `signal`, whose own are written in Python and need the session's builtins."""
FORK_WARNS = sys.version_info >= (3, 12)


class Attempt:
    """Runs a person's code: whatever it raises is kept in `error`, and nothing goes further.

    A broken `__repr__` may raise anything, `KeyboardInterrupt` and `SystemExit` included, and the worker must go on.
    """

    error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.error = error
        return True

    @property
    def failed(self) -> bool:
        return self.error is not None


class NeedsFork(Exception):
    """What was asked may run a person's code, so it belongs into a forked child."""
