"""Answers as MCP results: one text block of compact JSON, and errors that a model can act on.

Nothing goes twice: there is no `structuredContent` beside the text.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolfold import errors
from toolfold.calls.sign_in import SignInByAddress
from toolfold.errors import RemoteError, ToolfoldError, UpstreamError
from toolfold.text import truncate
from toolfold.types import CallContext
from toolfold.wire.jsonrpc import MISSING_CAPABILITY

log = logging.getLogger("toolfold.surface")

# How much of one text an error may quote: what was sent may be of any length.
MAX_QUOTED = 2_000

# What a caller learns of a bug.
INTERNAL_ERROR: dict[str, Any] = {
    "code": errors.INTERNAL_ERROR,
    "message": "toolfold itself failed on this request; the reason stands in its log",
    "hints": [],
    "next_action": "try it another way, and report it to whoever runs toolfold",
}


class TextAndData(Struct, frozen=True):
    """An answer that programs get as data and models as text."""

    data: Mapping[str, Any]
    text: str
    is_error: bool = False


# What an operation answers. A `Raw` is a whole `CallToolResult`, passed on as it is.
Answer = Mapping[str, Any] | str | Raw | TextAndData


def _error_json(error: dict[str, Any]) -> str:
    return to_json({"error": error})


async def to_result(
    work: Awaitable[Answer], context: CallContext, describe: Callable[[dict[str, Any]], str] = _error_json
) -> Raw:
    """The `CallToolResult` of an operation. What goes wrong in it is a result, too, in the words of `describe`."""
    try:
        answer = await work
    except ToolfoldError as error:
        if _is_for_client(error, context):
            raise
        return _text_result(describe(error_dict(error)), is_error=True)
    except Exception:  # a bug; its text may hold secrets of a server, so only the log gets it
        log.exception("an operation failed")
        return _text_result(describe(INTERNAL_ERROR), is_error=True)
    if isinstance(answer, Raw):
        return answer
    if isinstance(answer, TextAndData):
        return _text_result(answer.text, is_error=answer.is_error)
    return _text_result(answer if isinstance(answer, str) else to_json(answer))


def _is_for_client(error: ToolfoldError, context: CallContext) -> bool:
    """Whether a client acts on an error, and no model can: a sign-in, or a capability that it did not declare."""
    modern = getattr(context.on_input, "era", "") == "modern"  # the code is known to no earlier version
    missing = isinstance(error, RemoteError) and error.rpc_code == MISSING_CAPABILITY
    return isinstance(error, SignInByAddress) or (missing and modern)


def error_dict(error: ToolfoldError) -> dict[str, Any]:
    """An error as every face shows it. There is always something to do next."""
    data: dict[str, Any] = _truncated(error.as_dict())
    if not data["next_action"]:
        data["next_action"] = (
            "try again once, else use another tool; whoever runs toolfold can see why"
            if isinstance(error, UpstreamError)
            else "do it another way, or tell the user what happened"
        )
    return data


def _truncated(value: Any) -> Any:
    """The same value with every long text in it cut."""
    if isinstance(value, str):
        return truncate(value, MAX_QUOTED)
    if isinstance(value, dict):
        return {key: _truncated(entry) for key, entry in value.items()}
    return [_truncated(entry) for entry in value] if isinstance(value, list) else value


# What an error may advise that is listed in the profiles of discovery alone.
_OPERATIONS = re.compile(r"\b(?:call_tool|expand_tool|inspect_tool_output|search_\w+|with list|a search)\b|`list`")


def _without_operations(error: dict[str, Any]) -> dict[str, Any]:
    """The same error where tools are listed, and no operations to find them."""
    if not _OPERATIONS.search(error["next_action"]):
        return error
    action = "list the tools again, and call one of them with arguments that fit its schema as it is now"
    return {**error, "next_action": action}


def error_result(error: dict[str, Any]) -> Raw:
    return _text_result(_error_json(error), is_error=True)


def to_json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def _text_result(text: str, *, is_error: bool = False) -> Raw:
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
    return Raw(msgspec.json.encode({**result, "isError": True} if is_error else result))


def sent_once(result: Raw) -> Raw:
    """The result without its `structuredContent` where one text is all its content and says the same."""
    try:
        parts = msgspec.json.decode(result, type=dict[str, Raw])
        [block] = msgspec.json.decode(parts.get("content", Raw(b"[]")), type=list[dict[str, Any]])
        data = msgspec.json.decode(parts["structuredContent"])
    except (msgspec.DecodeError, LookupError, ValueError, RecursionError):  # there is none, or not one block beside it
        return result
    text = block.get("text") if block.get("type") == "text" else None
    wrapped = isinstance(data, dict) and data.keys() == {"result"}
    if not isinstance(text, str) or not any(
        _says(text, value) for value in (data, *(data.values() if wrapped else ()))
    ):
        return result
    return Raw(msgspec.json.encode({key: value for key, value in parts.items() if key != "structuredContent"}))


def _says(text: str, value: Any) -> bool:
    """Whether a text is a value, or its JSON. Python takes `True`, `1` and `1.0` for the same: their JSON is not."""
    if isinstance(value, str):
        return text in (value, msgspec.json.encode(value).decode())
    try:
        encoded = msgspec.json.encode(msgspec.json.decode(text), order="sorted")
    except (msgspec.DecodeError, RecursionError):
        return False
    return value is not None and encoded == msgspec.json.encode(value, order="sorted")
