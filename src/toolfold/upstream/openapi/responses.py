"""An HTTP response as a `CallToolResult`.

JSON becomes text and, where the document says its shape, `structuredContent`; other text becomes text; pictures and
sound become content of their kind; other bytes become an embedded resource. A status outside 2xx is an error result.
"""

import base64
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolfold.masking import mask
from toolfold.types import Outcome
from toolfold.upstream.openapi.operations import Operation, is_json
from toolfold.upstream.signatures import error_result

MAX_ERROR_CHARACTERS = 16_384

_TEXT = ("text/", "application/xml", "application/yaml", "application/x-yaml", "application/javascript")


class Response(Struct, frozen=True):
    """What came back, read whole."""

    status: int
    reason: str
    media: str
    charset: str
    headers: dict[str, str]
    body: bytes
    url: str


def outcome(operation: Operation, response: Response, secrets: tuple[str, ...]) -> Outcome:
    """The result of a call. `secrets` never appear in the text of an error."""
    if not 200 <= response.status < 300:
        return Outcome(result=error_result(_failure(response, secrets)), is_error=True)
    body: dict[str, Any]
    if operation.method == "HEAD" or not response.body:
        body = {"content": [_text_block(_headline(response))]}
    elif is_json(response.media) and "*" not in response.media and _is_valid(response.body):
        body = {"content": [_text_block(_decoded(response))]}
        if operation.structured and operation.wrapped:
            body["structuredContent"] = {"result": Raw(response.body)}
        elif operation.structured and response.body.lstrip()[:1] == b"{":
            body["structuredContent"] = Raw(response.body)
    else:
        body = {"content": [_block(response)]}
    return Outcome(result=Raw(msgspec.json.encode(body)))


def _is_valid(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=Raw)
        body.decode("utf-8")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _decoded(response: Response) -> str:
    try:
        return response.body.decode(response.charset or "utf-8", "replace")
    except LookupError:
        return response.body.decode("utf-8", "replace")


def _headline(response: Response) -> str:
    lines = [f"{response.status} {response.reason}".strip()]
    shown = ("content-type", "content-length", "last-modified", "etag", "location")
    lines += [f"{name}: {response.headers[name]}" for name in shown if response.headers.get(name)]
    return "\n".join(lines)


def _block(response: Response) -> dict[str, Any]:
    media = response.media or "application/octet-stream"
    if media.startswith(_TEXT) or is_json(media) or media.endswith("+xml"):
        return _text_block(_decoded(response))
    data = base64.b64encode(response.body).decode()
    for kind in ("image", "audio"):
        if media.startswith(f"{kind}/"):
            return {"type": kind, "data": data, "mimeType": media}
    return {"type": "resource", "resource": {"uri": response.url, "mimeType": media, "blob": data}}


def _failure(response: Response, secrets: tuple[str, ...]) -> str:
    first = f"HTTP {response.status} {response.reason}".strip()
    if 300 <= response.status < 400 and (where := response.headers.get("location")):
        first += f"\nIt points to {where}, which is not followed: another origin, or a call that is not repeated."
    media = response.media
    readable = not media or media.startswith(_TEXT) or is_json(media) or media.endswith("+xml")
    text = _decoded(response) if readable else f"({len(response.body)} bytes of {media})"
    rest = len(text) - MAX_ERROR_CHARACTERS
    if rest > 0:
        text = f"{text[:MAX_ERROR_CHARACTERS]}\n… and {rest} characters more"
    return mask(f"{first}\n{text}" if response.body else first, secrets)
