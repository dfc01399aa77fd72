"""What an ended process means to the host, told from what the operating system says of it."""

import os
import signal
from typing import Any

from toolfold.sandbox.base import Ending
from toolfold.sandbox.codes import FAILED, FINISHED, OUT_OF_MEMORY


def ending_of(report: dict[str, Any] | None, cpu_limit: float) -> tuple[Ending, int | None, int | None]:
    """How it ended, its exit code, its signal. Without a report the shim itself was killed."""
    if report is None:
        return "killed", None, signal.SIGKILL
    status = report["status"]
    if os.WIFSIGNALED(status):
        return _by_signal(report, cpu_limit), None, os.WTERMSIG(status)
    code = os.WEXITSTATUS(status)
    if code == FINISHED:
        return "finished", 0, None
    if code == OUT_OF_MEMORY:
        return "out_of_memory", FAILED, None
    return "exited", code, None


def _by_signal(report: dict[str, Any], cpu_limit: float) -> Ending:
    number = os.WTERMSIG(report["status"])
    if number == signal.SIGXCPU or (number == signal.SIGKILL and report["cpu"] >= cpu_limit):
        return "timed_out"
    return "out_of_memory" if number == signal.SIGKILL and report["starved"] else "crashed"
