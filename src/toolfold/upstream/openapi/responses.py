"""An HTTP response as a `CallToolResult`.

JSON becomes text and, where the document says its shape, `structuredContent`; other text becomes text; pictures and
sound become content of their kind; other bytes become an embedded resource. A status outside 2xx is an error result.
"""

import base64
import codecs
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolfold.redaction import redact
from toolfold.types import Outcome
from toolfold.upstream.function_tool import error_result
from toolfold.upstream.openapi.operations import Operation, is_json

_MAX_ERROR_CHARACTERS = 16_384
_BYTES = "application/octet-stream"
# Where the body stands in a message, while it is written. Nothing that the service wrote stands after it.
_PLACEHOLDER = "@BODY@"

_TEXT = ("text/", "application/xml", "application/yaml", "application/x-yaml", "application/javascript")


class Response(Struct, frozen=True):
    """What came back, read whole."""

    status: int
    reason: str
    media: str
    charset: str
    headers: dict[str, str]
    url: str
    body: bytes = b""


def to_outcome(operation: Operation, response: Response, secrets: tuple[str, ...]) -> Outcome:
    """The result of a call. `secrets` never appear in the text of an error."""
    if not 200 <= response.status < 300:
        return Outcome(result=error_result(_failure(response, secrets)), is_error=True)
    body: dict[str, Any]
    if operation.method == "HEAD" or not response.body:
        body = {"content": [_text_block(_headline(response))]}
    elif is_json(response.media) and "*" not in response.media and _is_valid(response.body):
        body = {"content": [_text_block(_decode(response))]} | _structured_content(operation, response.body)
    else:
        body = {"content": [_block(response)]}
    return Outcome(result=Raw(msgspec.json.encode(body)))


def _structured_content(operation: Operation, body: bytes) -> dict[str, Any]:
    if operation.structured and operation.wrapped:
        return {"structuredContent": {"result": Raw(body)}}
    return {"structuredContent": Raw(body)} if operation.structured and body.lstrip()[:1] == b"{" else {}


def _is_valid(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=Raw)
        body.decode("utf-8")  # msgspec does not look into the strings of a Raw
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _decode(response: Response) -> str:
    try:
        return response.body.decode(response.charset or "utf-8", "replace")
    except LookupError:
        return response.body.decode("utf-8", "replace")


def _headline(response: Response) -> str:
    lines = [f"{response.status} {response.reason}".strip()]
    reported = ("content-type", "content-length", "last-modified", "etag", "location")
    lines += [f"{name}: {response.headers[name]}" for name in reported if response.headers.get(name)]
    return "\n".join(lines)


def _block(response: Response) -> dict[str, Any]:
    if _is_text(response.media or _BYTES):
        return _text_block(_decode(response))
    return _binary_block(response, base64.b64encode(response.body).decode())


def _is_text(media: str) -> bool:
    return media.startswith(_TEXT) or is_json(media) or media.endswith("+xml")


def _binary_block(response: Response, data: str) -> dict[str, Any]:
    media = response.media or _BYTES
    for kind in ("image", "audio"):
        if media.startswith(f"{kind}/"):
            return {"type": kind, "mimeType": media, "data": data}
    return {"type": "resource", "resource": {"uri": response.url, "mimeType": media, "blob": data}}


def message_rewriter(response: Response) -> Callable[[bytes], bytes]:
    """Makes the pieces of a body into those of a message whose result holds it. Nothing stands for the end.

    It is what `outcome` makes of a whole body, without `structuredContent`: that would say everything twice.
    """
    text = _is_text(response.media or _BYTES)
    block = _text_block(_PLACEHOLDER) if text else _binary_block(response, _PLACEHOLDER)
    message = msgspec.json.encode({"jsonrpc": "2.0", "id": 0, "result": {"content": [block]}})
    begin, _, end = message.rpartition(_PLACEHOLDER.encode())
    written = _text_writer(response) if text else _base64_writer()

    def rewrite(piece: bytes) -> bytes:
        nonlocal begin
        start, begin = begin, b""
        return start + written(piece) + (b"" if piece else end)

    return rewrite


def _text_writer(response: Response) -> Callable[[bytes], bytes]:
    try:
        decoder = codecs.getincrementaldecoder(response.charset or "utf-8")("replace")
    except LookupError:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return lambda piece: msgspec.json.encode(decoder.decode(piece, not piece))[1:-1]


def _base64_writer() -> Callable[[bytes], bytes]:
    rest = b""

    def write(piece: bytes) -> bytes:
        nonlocal rest
        piece, last = rest + piece, not piece
        # Base64 takes three bytes at a time: the rest waits for the next piece.
        end = len(piece) if last else len(piece) - len(piece) % 3
        rest = piece[end:]
        return base64.b64encode(piece[:end])

    return write


def _failure(response: Response, secrets: tuple[str, ...]) -> str:
    first = f"HTTP {response.status} {response.reason}".strip()
    if 300 <= response.status < 400 and (where := response.headers.get("location")):
        first += f"\nIt points to {where}, which is not followed: another origin, or a call that is not repeated."
    media = response.media
    readable = not media or _is_text(media)
    text = _decode(response) if readable else f"(not shown: it is {media})"
    if len(text) > _MAX_ERROR_CHARACTERS:
        text = f"{text[:_MAX_ERROR_CHARACTERS]}\n… and more"
    return redact(f"{first}\n{text}" if response.body else first, secrets)
