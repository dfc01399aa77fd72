"""Secrets out of the results of tools, where the configuration wants that: each place says that something was cut.

A result stays the JSON it was: only the inside of strings is looked at, piece by piece, so that one of any size costs
little memory. Found are the secrets of the configuration, tokens and passwords of a known form, and private keys. What
has no telling form is not found: this is a net, not a promise.
"""

import mmap
import re
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from typing import BinaryIO

from msgspec import Raw
from msgspec.structs import replace

from toolfold.types import CallContext, Outcome, ToolCall
from toolfold.upstream.threads import run_in_thread

_MARK = "[secret removed]"
# A quote, an escape, or a run of neither that ends between words once it is long.
_PIECE = re.compile(rb'"|\\(?:u[0-9a-fA-F]{4}|.)|[^"\\]{1,65536}[^"\\\s]{0,4096}', re.DOTALL)
_KEY_BEGINS = re.compile(rb"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----")
_KEY_ENDS = re.compile(rb"-----END [A-Z ]{0,40}PRIVATE KEY-----")

# A text without its secrets; the second argument stands in their place.
RedactText = Callable[[str, str], str]


def redact_results(redact: RedactText) -> Callable[[ToolCall, CallContext, Outcome], Awaitable[Outcome]]:
    """The hook on results that takes secrets out."""

    def work(outcome: Outcome) -> Outcome:
        if outcome.spilled is None:
            return replace(outcome, raw=Raw(b"".join(_redacted(bytes(outcome.raw), redact))))
        with outcome.spilled as file:
            return replace(outcome, spilled=_rewritten(file, redact))

    def hook(call: ToolCall, context: CallContext, outcome: Outcome) -> Awaitable[Outcome]:
        del call, context
        return run_in_thread(lambda: work(outcome))

    return hook


def _rewritten(file: BinaryIO, redact: RedactText) -> BinaryIO:
    written = tempfile.TemporaryFile()  # noqa: SIM115 - whoever takes the outcome closes it
    try:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            for piece in _redacted(text, redact):
                written.write(piece)
    except BaseException:
        written.close()
        raise
    written.seek(0)
    return written


def _redacted(text: "bytes | mmap.mmap", redact: RedactText) -> Iterator[bytes]:
    """The same JSON, its strings without secrets."""
    inside = key = False
    for found in _PIECE.finditer(text):
        piece: bytes = found[0]
        if piece == b'"':
            inside, key = not inside, False
            yield piece
        elif not inside:
            yield piece
        elif key:  # its lines, up to the one that ends it
            ends = _KEY_ENDS.search(piece)
            key = ends is None
            yield piece[ends.end() :] if ends else b""
        elif begins := _KEY_BEGINS.search(piece):
            ends = _KEY_ENDS.search(piece)
            key = ends is None
            yield piece[: begins.start()] + _MARK.encode() + (piece[ends.end() :] if ends else b"")
        else:
            yield (
                piece
                if piece[:1] == b"\\"
                else redact(piece.decode("utf-8", "surrogateescape"), _MARK).encode("utf-8", "surrogateescape")
            )
