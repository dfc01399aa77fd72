"""The exit codes by which a child says how its function ended. Standard library only: both sides know them.

A script may leave with any of them by itself and gains nothing: the host believes them only as far as "it ended".
"""

import os
import signal
from typing import Any

from toolfold.sandbox.base import Ending

FAILED = 1
FINISHED = 230
OUT_OF_MEMORY = 231
UNCONFINED = 232


# --- What an ended process means to the host, told from what the operating system says of it.


def decode_exit(report: dict[str, Any] | None, cpu_limit: float) -> tuple[Ending, int | None, int | None]:
    """How it ended, its exit code, its signal. Without a report the shim itself was killed."""
    if report is None:
        return "killed", None, signal.SIGKILL
    status = report["status"]
    if os.WIFSIGNALED(status):
        return _signal_ending(report, cpu_limit), None, os.WTERMSIG(status)
    code = os.WEXITSTATUS(status)
    if code == FINISHED:
        return "finished", 0, None
    if code == OUT_OF_MEMORY:
        return "out_of_memory", FAILED, None
    return "exited", code, None


def _signal_ending(report: dict[str, Any], cpu_limit: float) -> Ending:
    number = os.WTERMSIG(report["status"])
    if number == signal.SIGXCPU or (number == signal.SIGKILL and report["cpu"] >= cpu_limit):
        return "timed_out"
    return "out_of_memory" if number == signal.SIGKILL and report["starved"] else "crashed"
