"""Exit codes by which a child says how its entry ended, and what the host makes of them. Standard library only.

Used on both sides. A script may exit with any of these codes and gains nothing: they only name the ending.
"""

import os
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the child must not import msgspec for an annotation
    from toolfold.sandbox.base import Ending

FAILED = 1
FINISHED = 230
OUT_OF_MEMORY = 231
UNCONFINED = 232


def decode_exit(report: dict[str, Any] | None, cpu_limit: float) -> "tuple[Ending, int | None, int | None]":
    """Returns the ending, the exit code and the signal. Without a report the shim itself was killed."""
    if report is None:
        return "killed", None, signal.SIGKILL
    status = report["status"]
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return _signal_ending(number, report, cpu_limit), None, number
    code = os.WEXITSTATUS(status)
    if code == FINISHED:
        return "finished", 0, None
    if code == OUT_OF_MEMORY:
        return "out_of_memory", FAILED, None
    return "exited", code, None


def _signal_ending(number: int, report: dict[str, Any], cpu_limit: float) -> "Ending":
    # A child may ignore SIGXCPU; the kernel then sends SIGKILL at the hard limit, one second later.
    if number == signal.SIGXCPU or (number == signal.SIGKILL and report["cpu"] >= cpu_limit):
        return "timed_out"
    return "out_of_memory" if number == signal.SIGKILL and report["oom_killed"] else "crashed"
