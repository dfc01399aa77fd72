"""Answers as MCP results: one text block of compact JSON, and errors that a model can act on.

Nothing is ever said twice: there is no `structuredContent` beside the text.
"""

import logging
from collections.abc import Awaitable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolfold import errors
from toolfold.errors import ToolfoldError, UpstreamError

log = logging.getLogger("toolfold.surface")


class TextAndData(Struct, frozen=True):
    """An answer that programs get as data and models as text."""

    data: dict[str, Any]
    text: str
    is_error: bool = False


Answer = dict[str, Any] | str | Raw | TextAndData
"""What an operation answers: an object, plain text, a whole `CallToolResult` that is passed on as it is, or `Told`."""

MAX_QUOTED = 2_000

INTERNAL_ERROR: dict[str, Any] = {
    "code": errors.INTERNAL_ERROR,
    "message": "toolfold itself failed on this request; the reason stands in its log",
    "hints": [],
    "next_action": "try it another way, and report it to whoever runs toolfold",
}
"""What a caller learns of a bug."""


async def to_result(work: Awaitable[Answer]) -> Raw:
    """The `CallToolResult` of an operation. What goes wrong in it is a result, too."""
    try:
        return _result(await work)
    except ToolfoldError as error:
        return error_result(error_dict(error))
    except Exception:
        log.exception("an operation failed")
        return error_result(INTERNAL_ERROR)


def error_dict(error: ToolfoldError) -> dict[str, Any]:
    """An error as every face shows it. There is always something to do next."""
    shown: dict[str, Any] = _bounded(error.as_dict())
    if shown["next_action"]:
        return shown
    if isinstance(error, UpstreamError):
        return {**shown, "next_action": "try again once, else use another tool; whoever runs toolfold can see why"}
    return {**shown, "next_action": "do it another way, or tell the user what happened"}


def _bounded(value: Any) -> Any:
    """The same with long texts cut: an error may quote what was sent, and that may be of any length."""
    if isinstance(value, str):
        return value if len(value) <= MAX_QUOTED else f"{value[:MAX_QUOTED]}…"
    if isinstance(value, dict):
        return {key: _bounded(one) for key, one in value.items()}
    return [_bounded(one) for one in value] if isinstance(value, list) else value


def _result(answer: Answer) -> Raw:
    """A `CallToolResult`."""
    if isinstance(answer, Raw):
        return answer
    if isinstance(answer, TextAndData):
        return _text(answer.text, is_error=answer.is_error)
    return _text(answer if isinstance(answer, str) else to_json(answer))


def error_result(error: dict[str, Any]) -> Raw:
    return _text(to_json({"error": error}), is_error=True)


def to_json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def _text(text: str, *, is_error: bool = False) -> Raw:
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
    return Raw(msgspec.json.encode({**result, "isError": True} if is_error else result))
