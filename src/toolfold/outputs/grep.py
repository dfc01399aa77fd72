"""Regular expressions over one file, in linear time whatever the pattern: by ripgrep where it is installed, else RE2.

The search runs in a process of its own, which is this file run as a script: it reads what to do as JSON from its input
and writes the result as JSON. The parent ends it at a deadline, so that no pattern and no file can hang the gateway.
Lines are searched one by one; of a long line every match is a hit. JSON in one line is searched value by value, each
with its path, and the lines of a text inside it one by one.
"""

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from toolfold.errors import OutputError
from toolfold.outputs.document import open_regular_file
from toolfold.outputs.json_path import Step, format_path

# Of a long line, so many bytes around the match are returned.
CLIP = 400
MAX_PATTERN = 10_000

# Bounds on the searching process, besides the deadline that the parent keeps.
MEMORY = 1 << 30
CPU_SECONDS = 120

# JSON up to this size is searched by its values: a larger one would take longer than a search may.
MAX_JSON = 8 << 20
_JSON_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)

UNSUPPORTED = (
    "Look-around, back-references and repetitions of over 1000 are not known here: they cannot be bounded in time."
)


class _Hit(Struct, frozen=True):
    """A matching line, or the part of a long one around the match. `start` is the first byte of `text` in the file."""

    line: int
    start: int
    end: int
    text: str


class _GrepResult(Struct, frozen=True):
    """The matching lines; `count` may be more than `hits` holds. `problem` says why the search did not work."""

    hits: tuple[_Hit, ...] = ()
    count: int = 0
    problem: str = ""


class _Job(Struct, frozen=True):
    """What the searching process is to do."""

    path: str
    pattern: str
    ignore_case: bool
    limit: int
    ripgrep: str


def grep_file(
    path: Path, pattern: str, *, ignore_case: bool = False, limit: int = 200, seconds: float = 20.0
) -> _GrepResult:
    """Searches a file; of the matching lines the first `limit` are returned. Raises `OutputError` where it cannot."""
    result = _run_search(path, pattern, ignore_case=ignore_case, limit=limit, seconds=seconds)
    if result.problem:
        raise OutputError(result.problem, next_action="use another pattern, `lines 1-100`, or say it in words")
    return result


def _run_search(path: Path, pattern: str, *, ignore_case: bool, limit: int, seconds: float) -> _GrepResult:
    if "\0" in pattern or "\n" in pattern or len(pattern) > MAX_PATTERN:
        return _GrepResult(problem="the pattern is too long, or holds a newline or a zero byte")
    job = _Job(str(path), pattern, ignore_case, limit, shutil.which("rg") or "")
    process = subprocess.Popen(
        # -P: modules come from where RE2 is installed, never from the folder that the gateway runs in.
        [sys.executable, "-P", __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # A process group of its own: at the deadline ripgrep ends with its parent.
        start_new_session=True,
    )
    with process:
        try:
            output, _ = process.communicate(msgspec.json.encode(job), timeout=seconds)
        except subprocess.TimeoutExpired:
            _kill(process)
            return _GrepResult(
                problem=f"the search for {pattern!r} took over {seconds:g} s and was stopped: the file is too "
                "large for it. Ask in words, or for lines 1-1000."
            )
        except BaseException:
            _kill(process)
            raise
    if process.returncode:
        return _GrepResult(problem=f"the search for {pattern!r} broke off (exit code {process.returncode})")
    return msgspec.json.decode(output, type=_GrepResult)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _main() -> None:
    """The searching process."""
    _limit_resources()
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=_Job)
    try:
        result = _search_json(job) or (_search_ripgrep(job) if job.ripgrep else None) or _search_re2(job)
    except MemoryError:
        result = _GrepResult(
            problem=f"the search for {job.pattern!r} took too much memory: the file has a line too long"
        )
    sys.stdout.buffer.write(msgspec.json.encode(result))


def _limit_resources() -> None:
    try:
        import resource
    except ImportError:
        return
    limits = ((resource.RLIMIT_CPU, CPU_SECONDS), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, MEMORY))
    for kind, limit in limits:
        with contextlib.suppress(ValueError, OSError):  # a lower limit is in force, or the system has none
            resource.setrlimit(kind, (limit, limit))


class _Unusable(Exception):
    """The pattern is no regular expression that can be used."""


def _compile(job: _Job) -> Any:
    import re2  # type: ignore[import-untyped]  # it carries no types

    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not job.ignore_case
    try:
        return re2.compile(job.pattern, options)
    except re2.error as error:
        raise _Unusable(error.args[0].decode(errors="replace")) from error


def _search_re2(job: _Job) -> _GrepResult:
    try:
        pattern = _compile(job)
    except _Unusable as error:
        return _GrepResult(problem=f"{job.pattern!r} is no regular expression that can be used: {error}. {UNSUPPORTED}")
    with open_regular_file(job.path) as file:
        return _search_lines(file, pattern, job.limit)


def _search_json(job: _Job) -> _GrepResult | None:
    """The values and keys of a JSON text in one line that fit; `None` where it is none, or where the pattern fits none:
    it may be about the JSON itself."""
    with open_regular_file(job.path) as file:
        raw = file.read(MAX_JSON + 1)
    if not _is_json_line(raw):
        return None
    try:
        pattern = _compile(job)
    except _Unusable:
        return None
    hits: list[_Hit] = []
    count = 0
    for steps, is_key, span, text in _json_leaves(raw):
        lines = text.split("\n")
        found = [(number, line, match) for number, line in enumerate(lines, 1) if (match := pattern.search(line))]
        count += len(found)
        for number, line, match in found[: job.limit - len(hits)]:
            what = " (the key)" if is_key else f", line {number}" if len(lines) > 1 else ""
            hits.append(_Hit(1, *span, f"{format_path(steps)}{what}: {_clip(line, *match.span())}"))
    return _GrepResult(tuple(hits), count) if count else None


def _is_json_line(raw: bytes) -> bool:
    if len(raw) > MAX_JSON or not raw.lstrip().startswith((b"{", b"[")) or b"\n" in raw.strip():
        return False
    try:
        msgspec.json.decode(raw, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _json_leaves(raw: bytes) -> Iterator[tuple[list[Step], bool, tuple[int, int], str]]:
    """Each key, and each value that holds no others: its path, which of the two it is, its place, what it says."""
    steps: list[Step] = []  # one list for all, since few of them are looked at
    in_key = False
    for token in _JSON_TOKEN.finditer(raw):
        sign = raw[token.start()]
        if sign in b"{[":
            steps.append("" if sign == 0x7B else 0)
            in_key = sign == 0x7B
        elif sign in b"}]":
            steps.pop()
            in_key = False
        elif sign == 0x2C:
            step = steps[-1]
            in_key = isinstance(step, str)
            if isinstance(step, int):
                steps[-1] = step + 1
        elif sign == 0x3A:
            in_key = False
        else:
            text = _decode_text(token[0]) if sign == 0x22 else token[0].decode(errors="replace")
            if in_key:
                steps[-1] = text
            yield steps, in_key, token.span(), text


def _decode_text(literal: bytes) -> str:
    try:
        return str(msgspec.json.decode(literal))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return literal[1:-1].decode(errors="replace")


def _clip(line: str, first: int, last: int) -> str:
    """A line, or the part of a long one around the match, with marks where it was cut."""
    if len(line) <= CLIP * 2:
        return line
    start, end = max(0, first - CLIP // 2), min(len(line), min(last, first + CLIP) + CLIP // 2)
    return ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")


def _search_lines(file: BinaryIO, pattern: Any, limit: int) -> _GrepResult:
    hits: list[_Hit] = []
    count = offset = 0
    for number, line in enumerate(file, 1):
        text = line.rstrip(b"\r\n")
        spans = (match.span() for match in pattern.finditer(text))
        found, more = _line_hits(number, offset, text, spans, limit - len(hits))
        hits += found
        count += more
        offset += len(line)
    return _GrepResult(tuple(hits), count)


def _line_hits(
    number: int, offset: int, line: bytes, spans: Iterable[tuple[int, int]], room: int
) -> tuple[list[_Hit], int]:
    """A line that fits is one hit. One as long as a document fits in many places: each is one, with what is near it."""
    if len(line) <= CLIP * 2:
        matches = next(iter(spans), None) is not None
        hit = _Hit(number, offset, offset + len(line), line.decode(errors="replace"))
        return ([hit] if matches and room > 0 else []), int(matches)
    runs: list[tuple[int, int]] = []
    count, end = 0, -1
    for first, last in spans:
        if first == end and runs:  # a pattern of one letter fits a word many times over
            runs[-1] = (runs[-1][0], last)
        else:
            count += 1
            runs += [(first, last)] if len(runs) < max(room, 1) else []
        end = last
    reach, hits = CLIP // 2 if count == 1 else CLIP // 8, []
    for first, last in runs[: max(room, 0)]:
        start, end = max(0, first - reach), min(len(line), min(last, first + CLIP) + reach)
        hits.append(_Hit(number, offset + start, offset + end, line[start:end].decode(errors="replace")))
    return hits, count


def _search_ripgrep(job: _Job) -> _GrepResult | None:
    """Searches with ripgrep; `None` where it does not accept the pattern: RE2 then says why."""
    command = [job.ripgrep, "--no-config", "--json", "--text", "--no-mmap", "--encoding", "none"]
    command += ["--ignore-case"] if job.ignore_case else []
    # The file is handed over open: ripgrep opens nothing by name, so it cannot be led to another file.
    with open_regular_file(job.path) as file:
        process = subprocess.Popen(
            [*command, "-e", job.pattern, "--", "-"], stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    hits: list[_Hit] = []
    count = 0
    with process:
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        for raw in process.stdout:
            event = json.loads(raw)
            if event["type"] != "match":
                continue
            data = event["data"]
            line = _ripgrep_bytes(data["lines"]).rstrip(b"\r\n")
            matches = data["submatches"] or [{"start": 0, "end": 0}]
            spans = ((match["start"], match["end"]) for match in matches)
            found, more = _line_hits(data["line_number"], data["absolute_offset"], line, spans, job.limit - len(hits))
            hits += found
            count += more
    return None if process.returncode > 1 else _GrepResult(tuple(hits), count)


def _ripgrep_bytes(value: dict[str, str]) -> bytes:
    # ripgrep writes what is no UTF-8 in Base64.
    return value["text"].encode() if "text" in value else base64.b64decode(value["bytes"])


if __name__ == "__main__":
    _main()
