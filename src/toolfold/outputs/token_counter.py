"""Exact counts of a text of any size: bytes, lines, o200k tokens.

A large file is counted in pieces by processes of its own, one for each core up to a few. Where a piece cannot be cut
between two tokens (64 KiB of one run), the count may be off by one. Above: `split.py`.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise

from msgspec import Struct

PIECE = 1 << 16
# The tokeniser holds the interpreter while it counts, and its tables take 76 MB: larger files are counted elsewhere.
SUBPROCESS_BYTES = 8 << 20

MAX_PROCESSES = 4

# The tokeniser splits a text by a pattern before it makes tokens, so no token reaches over such a split. A piece may
# therefore be cut where the pattern splits every text: in front of a space or punctuation, after a run of newlines.
_CUT_PATTERN = re.compile(
    rb"[A-Za-z0-9](?=[\t\n\r -&(-/:-@\[-`{-~])"  # a word or number ends, and no contraction follows
    rb"|\n(?=[ \t]*[!-.0-~\xc3-\xe0\xe4-\xf4])"  # the last newline of a run, and something visible follows
    rb"|[\xe4-\xe9][\x80-\xbf]{2}(?=\xe3\x80[\x81\x82]|\xef\xbc[\x81\x8c\x9a\x9b\x9f])"  # the same in Chinese, Japanese
)


class Counts(Struct, frozen=True):
    """How large a text is. A last line without a newline is a line."""

    bytes: int = 0
    lines: int = 0
    tokens: int = 0


class LineCounter:
    """Counts bytes and lines as they pass."""

    def __init__(self) -> None:
        self.bytes = 0
        self._newlines = 0
        self._last = b"\n"

    def add(self, piece: bytes) -> None:
        if piece:
            self.bytes += len(piece)
            self._newlines += piece.count(b"\n")
            self._last = piece[-1:]

    @property
    def lines(self) -> int:
        return self._newlines + (self._last != b"\n")


def _token_pieces(read: Callable[[int, int], bytes], start: int, end: int, *, size: int = PIECE) -> Iterator[bytes]:
    """The text from `start` to `end`, cut where no token is torn. Each piece is whole UTF-8 where the text is."""
    while start < end:
        piece = read(start, min(size, end - start))
        if not piece:
            return
        if start + len(piece) < end:
            piece = piece[: _cut_length(piece)]
        yield piece
        start += len(piece)


def _next_cut(read: Callable[[int, int], bytes], at: int, end: int) -> int:
    """The first good place to cut from `at` on, or `end`."""
    match = _CUT_PATTERN.search(read(at, PIECE))
    return min(at + match.end(), end) if match else end


def _cut_length(piece: bytes) -> int:
    for start in (max(0, len(piece) - 4096), 0):
        last = None
        for match in _CUT_PATTERN.finditer(piece, start):
            last = match
        if last is not None:
            return last.end()
    end = len(piece)
    while end > len(piece) - 4 and piece[end - 1] & 0xC0 == 0x80:
        end -= 1
    return end - 1 if piece[end - 1] >= 0xC0 else len(piece)


def _count_in_process(
    read: Callable[[int, int], bytes], start: int, end: int, check_cancelled: Callable[[], None]
) -> int:
    """Tokens, counted by this process. `check_cancelled` is called between pieces, and raises to stop."""
    # Imported here: `LineCounter` alone must not load the tokeniser.
    from toolfold import tokens

    total = 0
    for piece in _token_pieces(read, start, end):
        check_cancelled()
        total += tokens.count(piece.decode("utf-8", "replace"))
    return total


def count_tokens(descriptor: int, size: int, check_cancelled: Callable[[], None]) -> int:
    """Tokens of an open file. Bounded in memory; a large file costs this process hardly anything."""

    def read(at: int, length: int) -> bytes:
        return os.pread(descriptor, length, at)

    if size > SUBPROCESS_BYTES:
        count = _count_in_subprocesses(descriptor, size, read, check_cancelled)
        if count is not None:
            return count
    return _count_in_process(read, 0, size, check_cancelled)


def _count_in_subprocesses(
    descriptor: int, size: int, read: Callable[[int, int], bytes], check_cancelled: Callable[[], None]
) -> int | None:
    """Counted by other processes; `None` where that did not work."""
    number = max(1, min(MAX_PROCESSES, os.cpu_count() or 1))
    cuts = sorted({0, size, *(_next_cut(read, size * part // number, size) for part in range(1, number))})
    command = [sys.executable, "-P", "-m", "toolfold.outputs.token_counter"]
    children: list[subprocess.Popen[bytes]] = []
    try:
        for start, end in pairwise(cuts):
            children.append(
                subprocess.Popen(
                    [*command, str(start), str(end), str(os.getpid())],
                    stdin=descriptor,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            )
        return sum(int(_wait_for_count(child, check_cancelled)) for child in children)
    except (OSError, ValueError):
        return None
    finally:
        for child in children:
            child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()


def _wait_for_count(child: "subprocess.Popen[bytes]", check_cancelled: Callable[[], None]) -> bytes:
    while True:
        try:
            return child.communicate(timeout=0.2)[0]
        except subprocess.TimeoutExpired:
            check_cancelled()


def _main() -> None:
    """The other process: counts a part of the file that is its standard input, as long as its parent lives."""
    start, end, parent = (int(argument) for argument in sys.argv[1:])

    def check_cancelled() -> None:
        if os.getppid() != parent:
            raise SystemExit(1)

    sys.stdout.write(str(_count_in_process(lambda at, length: os.pread(0, length, at), start, end, check_cancelled)))


if __name__ == "__main__":
    _main()
