"""Secrets out of the results of tools, where the configuration wants that: each place says that something was cut.

A result stays the JSON it was: each string is decoded, looked through and, only where something was cut, written anew.
Long ones go through piece by piece, so that one of any size costs little memory. Text in Base64, such as the blob of a
resource, is looked through, too. Found are the secrets of the configuration, tokens and passwords of a known form, and
private keys. What has no telling form is not found: this is a net, not a promise.
"""

import json
import mmap
import re
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterator
from typing import BinaryIO

from msgspec import Raw
from msgspec.structs import replace

from toolfold.types import CallContext, Outcome, ToolCall
from toolfold.upstream.threads import run_in_thread

_MARK = "[secret removed]"
# A quote, or a run of anything else, escapes never cut.
_PIECE = re.compile(rb'"|(?:\\(?:u[0-9a-fA-F]{4}|.)|[^"\\]{1,16384}+){1,64}+', re.DOTALL)
# A longer string is looked through in windows of this size; no secret is larger than what they share.
_WINDOW = 1 << 20
_SHARED = 1 << 14
_STEP = 509
_URL_SAFE = str.maketrans("-_", "+/")
_BASE64 = re.compile(r"[A-Za-z0-9+/\r\n]{16,}={0,2}|[A-Za-z0-9_-]{16,}={0,2}")

# A text without its secrets; the second argument stands in their place.
RedactText = Callable[[str, str], str]


def redact_results(redact: RedactText) -> Callable[[ToolCall, CallContext, Outcome], Awaitable[Outcome]]:
    """The hook on results that takes secrets out."""

    def work(outcome: Outcome) -> Outcome:
        if outcome.spilled is None:
            return replace(outcome, raw=_redact_json(outcome.raw, redact))
        with outcome.spilled as file:
            return replace(outcome, spilled=_rewritten(file, redact))

    def hook(call: ToolCall, context: CallContext, outcome: Outcome) -> Awaitable[Outcome]:
        del call, context
        return run_in_thread(lambda: work(outcome))

    return hook


def _redact_json(raw: Raw, redact: RedactText) -> Raw:
    """The same JSON, its strings without secrets."""
    return Raw(b"".join(_redacted(bytes(raw), redact)))


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
    inside = False
    held: list[bytes] = []
    size = 0
    for found in _PIECE.finditer(text):
        piece: bytes = found[0]
        if piece == b'"':
            yield _clean(b"".join(held), redact)
            yield piece
            inside, held, size = not inside, [], 0
        elif not inside:
            yield piece
        else:
            held.append(piece)
            size += len(piece)
            if size > _WINDOW:
                window = _decode(b"".join(held))
                cut = _between_secrets(window, redact)
                yield _encode(_without(window[:cut], redact))
                held = [_encode(window[cut:])]
                size = len(held[0])


def _clean(string: bytes, redact: RedactText) -> bytes:
    text = _decode(string)
    clean = _without(text, redact)
    return string if clean == text else _encode(clean)


def _without(text: str, redact: RedactText) -> str:
    def in_base64(found: re.Match[str]) -> str:
        whole = found[0]
        try:
            hidden = b64decode(whole.translate(_URL_SAFE) + "=" * (-len(whole) % 4)).decode()
        except ValueError:  # no Base64, or none of a text
            return whole
        clean = redact(hidden, _MARK)
        return whole if clean == hidden else b64encode(clean.encode()).decode()

    return redact(_BASE64.sub(in_base64, text), _MARK)


def _between_secrets(text: str, redact: RedactText) -> int:
    """Where a window may end: no secret stands on both sides."""
    end = text[-2 * _SHARED :]
    whole = redact(end, _MARK)
    for cut in range(_SHARED, 0, -_STEP):
        if redact(end[:cut], _MARK) + redact(end[cut:], _MARK) == whole:
            return len(text) - len(end) + cut
    return len(text) - len(end)


def _decode(string: bytes) -> str:
    text = string.decode("utf-8", "replace")
    try:
        return str(json.loads(f'"{text}"', strict=False)) if "\\" in text else text
    except ValueError:  # an escape that JSON does not know
        return text


def _encode(text: str) -> bytes:
    try:
        return json.dumps(text, ensure_ascii=False)[1:-1].encode()
    except UnicodeEncodeError:  # half of a pair, which JSON can only escape
        return json.dumps(text)[1:-1].encode()
