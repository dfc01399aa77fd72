"""What the tools and prompts of the fixture server share: content of every kind, and asking the client for input.

One helper asks the way of the era that the request came in: on the way, or with a result that wants answers.
"""

import base64
import struct
import zlib
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from pydantic import BaseModel, TypeAdapter

Context = ServerRequestContext[Any, Any]
Result = BaseModel | dict[str, Any]

MODERN = "2026-07-28"


def red_pixel() -> str:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")), chunk(b"IEND", b""))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()


def silence() -> str:
    data = b"\0\0" * 8
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16, 1, 1, 8000, 16000, 2, 16,
                       b"data", len(data))  # fmt: skip
    return base64.b64encode(head + data).decode()


IMAGE = {"type": "image", "data": red_pixel(), "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": silence(), "mimeType": "audio/wav"}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def content(*blocks: dict[str, Any], error: bool = False) -> dict[str, Any]:
    return {"content": list(blocks), "isError": error}


def resource(uri: str, mime: str, value: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "text": value}}


# --- asking the client


def form(message: str, properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required or []}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sampling(prompt: str, tokens: int) -> dict[str, Any]:
    message = {"role": "user", "content": text(prompt)}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": tokens}}


ROOTS: dict[str, Any] = {"method": "roots/list", "params": {}}
NAME = form("What is your name?", {"name": {"type": "string"}}, ["name"])
CAPABILITY = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
ANSWERS: dict[str, type[BaseModel]] = {
    "elicitation/create": types.ElicitResult,
    "sampling/createMessage": types.CreateMessageResult,
    "roots/list": types.ListRootsResult,
}
_request: TypeAdapter[Any] = TypeAdapter(types.ServerRequest)


class Wanted(Exception):
    def __init__(self, requests: dict[str, Any], state: str | None) -> None:
        self.result = {"resultType": "input_required", "inputRequests": requests}
        if state is not None:
            self.result["requestState"] = state


def declared(ctx: Context, method: str) -> bool:
    found = ctx.session.client_capabilities
    return found is not None and getattr(found, CAPABILITY[method]) is not None


async def asked(
    ctx: Context, params: Any, requests: dict[str, dict[str, Any]], state: str | None = None
) -> dict[str, dict[str, Any]]:
    """The client's answers by key: asked on the way, or in the modern era with a result that wants them."""
    if ctx.protocol_version == MODERN:
        given = params.input_responses or {}
        if not set(requests) <= set(given):
            raise Wanted(requests, state)
        return {key: given[key].model_dump(by_alias=True, mode="json") for key in requests}
    answers = {}
    for key, request in requests.items():
        metadata = ServerMessageMetadata(related_request_id=ctx.request_id)
        asked_for = _request.validate_python(request)
        answer = await ctx.session.send_request(asked_for, ANSWERS[request["method"]], metadata=metadata)
        answers[key] = answer.model_dump(by_alias=True, mode="json")
    return answers
