"""JSON-RPC messages: parses the envelope and no more, writes by joining bytes.

What is inside `params`, `result` and `error` stays undecoded. What is not quite a message goes to `repair.py`. Above:
`dispatcher.py`, `serving/` and the transports.
"""

from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from toolfold.errors import RemoteError

__all__ = [
    "ABSENT",
    "DECODE_ERRORS",
    "HEADER_MISMATCH",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "METHOD_NOT_FOUND",
    "MISSING_CAPABILITY",
    "encode",
    "parse_number",
]

# A text in pieces: joining large ones would copy them.
Parts = tuple[bytes | memoryview, ...]

# Stands for a member that the message does not have.
ABSENT = Raw(b"")

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
# Up to 2025-11-25: nothing can be done before a person opens an address, which stands in the error.
URL_ELICITATION_REQUIRED = -32042

_MESSAGE_LIMIT = 2000

# A client says the same of itself with every request. What is no longer than this is read once and remembered, so that
# nobody can fill the memory with it.
CACHEABLE_BYTES = 4096

_NEXT_ACTIONS = {
    INVALID_PARAMS: "correct the arguments, and call again",
    METHOD_NOT_FOUND: "read the server's list again: it does not know this",
    MISSING_CAPABILITY: "call it from a client that declares this capability",
    UNSUPPORTED_VERSION: "connect again: the server changed the version it speaks",
    HEADER_MISMATCH: "connect again; if it stays, a proxy on the way changes headers",
}

# What reading bytes that are no proper JSON may raise.
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeError, RecursionError)


class Envelope(Struct, gc=False):
    """The outside of a message. `jsonrpc` is not insisted on: servers that forget it are understood all the same."""

    jsonrpc: Raw = ABSENT
    id: int | float | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw = ABSENT
    result: Raw = ABSENT
    error: Raw = ABSENT


def is_message(parsed: Envelope) -> bool:
    """Whether an object is a request, a notification or an answer: logs written to stdout are often JSON, too."""
    if parsed.method is not UNSET:
        return True
    return parsed.id is not UNSET and (
        parsed.result is not ABSENT or parsed.error is not ABSENT or parsed.jsonrpc is not ABSENT
    )


class _Error(Struct):
    code: int = 0
    message: str = ""
    data: Any = None


class _Cancelled(Struct):
    requestId: int | float | str | None = None  # noqa: N815 - the protocol's spelling


_envelope = msgspec.json.Decoder(Envelope)
_error = msgspec.json.Decoder(_Error)
_cancelled = msgspec.json.Decoder(_Cancelled)

# Bytes to an `Envelope`; raises one of `DECODE_ERRORS`.
parse_envelope = _envelope.decode

encode = msgspec.json.Encoder().encode


def parse_string(raw: Raw) -> str | None:
    """A JSON string, or nothing."""
    if raw is ABSENT:
        return None
    try:
        return msgspec.json.decode(raw, type=str)
    except DECODE_ERRORS:
        return None


def parse_number(identifier: object) -> int | None:
    """The request number that an answer means. Some servers give `7` back as `"7"` or `7.0`."""
    if isinstance(identifier, bool):
        return None
    if isinstance(identifier, int):
        return identifier
    if isinstance(identifier, float):
        return int(identifier) if identifier.is_integer() else None
    if isinstance(identifier, str) and len(identifier) < 20 and identifier.isascii() and identifier.isdigit():
        return int(identifier)
    return None


@lru_cache(maxsize=256)
def quote(text: str) -> bytes:
    return encode(text)


def request_message(number: int, method: str, params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}' % (number, quote(method), params)


def notification_message(method: str, params: bytes | None) -> bytes:
    if params is None:
        return b'{"jsonrpc":"2.0","method":%b}' % quote(method)
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (quote(method), params)


def cancelled_message(number: int, reason: str) -> bytes:
    """Tells the other end that nobody waits for a request any more."""
    return notification_message("notifications/cancelled", encode({"requestId": number, "reason": reason}))


def cancelled_id(params: Raw) -> int | float | str | None:
    """The id of the request that such a notification means."""
    try:
        return _cancelled.decode(params).requestId
    except DECODE_ERRORS:
        return None


def result_message(identifier: object, result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (_identifier(identifier), result)


def result_parts(identifier: object, result: Parts) -> Parts:
    """The same in pieces, for a result that should not be copied."""
    return b'{"jsonrpc":"2.0","id":%b,"result":' % _identifier(identifier), *result, b"}"


def error_message(identifier: object, code: int, text: str, data: Any = None) -> bytes:
    error = {"code": code, "message": text} | ({"data": data} if data is not None else {})
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (_identifier(identifier), encode(error))


def _identifier(identifier: object) -> bytes:
    """A server's own id, given back as it came; its integers may be larger than the encoder takes."""
    return b"%d" % identifier if isinstance(identifier, int) else encode(identifier)


def single_line(raw: Raw | bytes) -> bytes:
    """The same JSON without line breaks, which would cut it in two on a pipe. Usually nothing is to do."""
    text = bytes(raw)
    if b"\n" in text or b"\r" in text:
        return msgspec.json.format(text, indent=-1)
    return text


def remote_error(error: Raw) -> RemoteError:
    """A server's error, read leniently: members may be missing, of the wrong kind, or the whole may be a string."""
    try:
        parsed = _error.decode(error)
    except DECODE_ERRORS:
        parsed = _lenient_error(error)
    message = parsed.message or "the server gave no reason"
    return RemoteError(
        message[:_MESSAGE_LIMIT], rpc_code=parsed.code, data=parsed.data, next_action=_NEXT_ACTIONS.get(parsed.code, "")
    )


def _lenient_error(error: Raw) -> _Error:
    try:
        value = msgspec.json.decode(error)
    except DECODE_ERRORS:
        return _Error()
    if not isinstance(value, dict):
        return _Error(message=value if isinstance(value, str) else "")
    code, message = value.get("code"), value.get("message")
    return _Error(parse_number(code) or 0, message if isinstance(message, str) else "", value.get("data"))
