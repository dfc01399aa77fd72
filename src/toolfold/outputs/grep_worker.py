"""The process that searches one file for a regular expression, in linear time whatever the pattern: by ripgrep or RE2.

It reads what to do as JSON from its input and writes what it found as JSON. It is run as a file, never imported, and
ended from outside.
"""

import contextlib
import json
import os
import stat
import subprocess
import sys
from typing import Any, BinaryIO

MEMORY = 1 << 30
CPU_SECONDS = 120

NEITHER = (
    "Look-around, back-references and repetitions of over 1000 are not known here: they cannot be bounded in time."
)


def main() -> None:
    limit()
    asked = json.load(sys.stdin)
    try:
        found = (by_ripgrep(asked) if asked["rg"] else None) or by_re2(asked)
    except MemoryError:
        found = {"problem": f"the search for {asked['pattern']!r} took too much memory: the file has a line too long"}
    json.dump(found, sys.stdout)


def limit() -> None:
    """Bounds on what a search can take, besides the deadline that the parent keeps."""
    try:
        import resource
    except ImportError:
        return
    bounds = ((resource.RLIMIT_CPU, CPU_SECONDS), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, MEMORY))
    for what, most in bounds:
        with contextlib.suppress(ValueError, OSError):  # a lower bound stands already, or the system knows none
            resource.setrlimit(what, (most, most))


def by_re2(asked: dict[str, Any]) -> dict[str, Any]:
    import re2  # type: ignore[import-untyped]  # it carries no types

    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not asked["ignore_case"]
    try:
        pattern = re2.compile(asked["pattern"], options)
    except re2.error as error:
        why = error.args[0].decode(errors="replace")
        return {"problem": f"{asked['pattern']!r} is no regular expression that can be used: {why}. {NEITHER}"}
    with open_plain(asked["path"]) as file:
        return search(file, pattern, asked["most"], asked["clip"])


def open_plain(path: str) -> BinaryIO:
    """A plain file; no link, device or pipe even if one was put there just now."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError("no plain file")
    return os.fdopen(descriptor, "rb")


def search(file: BinaryIO, pattern: Any, most: int, clip: int) -> dict[str, Any]:
    hits: list[dict[str, Any]] = []
    count = offset = 0
    for number, line in enumerate(file, 1):
        text = line.rstrip(b"\r\n")
        match = pattern.search(text)
        if match:
            count += 1
            if len(hits) < most:
                hits.append(hit(number, offset, text, match.span(), clip))
        offset += len(line)
    return {"hits": hits, "count": count}


def hit(number: int, offset: int, line: bytes, spot: tuple[int, int], clip: int) -> dict[str, Any]:
    """The line, or of a long one what stands around the match."""
    (first, last), start, end = spot, 0, len(line)
    if len(line) > clip * 2:
        start, end = max(0, first - clip // 2), min(len(line), min(last, first + clip) + clip // 2)
    text = line[start:end].decode(errors="replace")
    return {"line": number, "start": offset + start, "end": offset + end, "text": text}


def by_ripgrep(asked: dict[str, Any]) -> dict[str, Any] | None:
    """`None` where ripgrep does not know the pattern: RE2 is asked then, and says why."""
    command = [asked["rg"], "--no-config", "--json", "--text", "--no-mmap", "--encoding", "none"]
    command += ["--ignore-case"] if asked["ignore_case"] else []
    # Only the hits that are wanted are read; the rest is counted.
    with open_plain(asked["path"]) as file:
        process = subprocess.Popen(
            [*command, "-e", asked["pattern"], "--", "-"], stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    hits: list[dict[str, Any]] = []
    count = 0
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    for raw in process.stdout:
        event = json.loads(raw)
        if event["type"] != "match":
            continue
        count += 1
        if len(hits) < asked["most"]:
            data = event["data"]
            line = text_of(data["lines"]).rstrip(b"\r\n")
            spot = (data["submatches"] or [{"start": 0, "end": 0}])[0]
            found = hit(data["line_number"], data["absolute_offset"], line, (spot["start"], spot["end"]), asked["clip"])
            hits.append(found)
    return None if process.wait() > 1 else {"hits": hits, "count": count}


def text_of(value: dict[str, str]) -> bytes:
    """Text as ripgrep writes it: plain, or in base 64 where it is no UTF-8."""
    if "text" in value:
        return value["text"].encode()
    import base64

    return base64.b64decode(value["bytes"])


if __name__ == "__main__":
    main()
