"""Regular expressions over a file that cannot hang anything: another process searches, and is ended at a deadline.

ripgrep where it is installed, else RE2: both take linear time whatever the pattern. They read the one file they are
given and nothing else. Lines are searched one by one.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

WORKER = Path(__file__).with_name("grep_worker.py")
CLIP = 400
"""How much of a long line is given, around what fits."""


class _Hit(Struct, frozen=True):
    """A line that fits, or the part of a long one around what fits."""

    line: int
    start: int
    """The first byte of `text` in the file."""
    end: int
    text: str


class GrepResult(Struct, frozen=True):
    """What was found. `problem` says why nothing could be."""

    hits: tuple[_Hit, ...] = ()
    count: int = 0
    problem: str = ""


def grep_file(
    path: Path, pattern: str, *, ignore_case: bool = False, most: int = 200, seconds: float = 20.0
) -> GrepResult:
    """Every line that fits, to `most`."""
    if "\0" in pattern or "\n" in pattern or len(pattern) > 10_000:
        return GrepResult(problem="the pattern is too long, or holds a newline or a zero byte")
    asked = msgspec.json.encode(
        {
            "path": str(path),
            "pattern": pattern,
            "ignore_case": ignore_case,
            "most": most,
            "clip": CLIP,
            "rg": _find_ripgrep(),
        }
    )
    # A group of its own, so that at the deadline whatever it started ends with it.
    process = subprocess.Popen(
        [sys.executable, "-P", str(WORKER)],  # not the folder it runs in, but wherever RE2 is installed
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with process:
        try:
            found, _ = process.communicate(asked, timeout=seconds)
        except subprocess.TimeoutExpired:
            _kill(process)
            return GrepResult(
                problem=f"the search for {pattern!r} took over {seconds:g} s and was stopped: the file is too "
                "large for it. Ask in words, or for lines 1-1000."
            )
        except BaseException:
            _kill(process)
            raise
    if process.returncode:
        return GrepResult(problem=f"the search for {pattern!r} broke off (exit code {process.returncode})")
    return msgspec.json.decode(found, type=GrepResult)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _find_ripgrep() -> str:
    """Where ripgrep is; nothing where it is not installed."""
    return shutil.which("rg") or ""
