"""Frames between the processes of a session: four bytes of length, big end first, and that many bytes of JSON.

The encoder writes plain ASCII, so that its length is the widest that any encoder would need. Lone surrogates are
written as escapes.
"""

import json
import json.encoder
import math
import socket
import struct
from typing import Any

from toolfold.live.worker.originals import BUILTINS

globals()["__builtins__"] = BUILTINS

_FRAME_MAX_BYTES = 4 * 1024 * 1024
# The C parts of `json`: its Python parts would look up builtins that a session may have replaced.
_quote = json.encoder.encode_basestring_ascii
_scan: Any = vars(json.JSONDecoder())["scan_once"]
_pack = struct.Struct(">I").pack
_unpack = struct.Struct(">I").unpack_from
_isfinite = math.isfinite


class FrameError(Exception):
    """The bytes are not a frame: too long, or not a JSON object."""


def dumps(value: Any) -> str:
    """JSON of the plain values that the worker creates."""
    parts: list[str] = []
    _dump(value, parts)
    return "".join(parts)


def _dump(value: Any, parts: list[str]) -> None:
    cls = type(value)
    if cls is dict:
        separator = "{"
        for key, item in value.items():
            parts.append(f"{separator}{_text(key)}:")
            _dump(item, parts)
            separator = ","
        parts.append("}" if value else "{}")
    elif cls is list or cls is tuple:
        separator = "["
        for item in value:
            parts.append(separator)
            _dump(item, parts)
            separator = ","
        parts.append("]" if value else "[]")
    else:
        parts.append(_atom(value, cls))


def _atom(value: Any, cls: type) -> str:
    if value is None:
        return "null"
    if cls is bool:
        return "true" if value else "false"
    if cls is int:
        return int.__repr__(value)
    if cls is float:
        return float.__repr__(value) if _isfinite(value) else "null"
    return _text(value)


def _text(value: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        value = value.encode("utf-8", "backslashreplace").decode("utf-8")
    return _quote(value)


def encode_frame(value: dict[str, Any]) -> bytes:
    body = dumps(value).encode("ascii")
    return _pack(len(body)) + body


class FrameReader:
    """Takes bytes as they arrive and returns whole frames."""

    def __init__(self, limit: int = _FRAME_MAX_BYTES) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The frames that are complete now. Raises `FrameError`: where frames came before the bad one, at the next."""
        self._buffer += data
        frames: list[dict[str, Any]] = []
        try:
            while (size := self._frame_size()) is not None:
                frames.append(_loads(bytes(self._buffer[4:size])))
                del self._buffer[:size]  # a bad one stays: from here on nothing can be read
        except FrameError:
            if not frames:
                raise
        return frames

    def _frame_size(self) -> int | None:
        """The bytes of the frame that stands first, None where it is not whole yet."""
        if len(self._buffer) < 4:
            return None
        (length,) = _unpack(self._buffer)
        if length > self._limit:
            raise FrameError(f"a frame of {length} bytes")
        return 4 + length if len(self._buffer) >= 4 + length else None


def _loads(body: bytes) -> dict[str, Any]:
    try:
        value, _ = _scan(body.decode("utf-8"), 0)
    except (StopIteration, ValueError, RecursionError) as error:
        raise FrameError("a frame that is no JSON") from error
    if type(value) is not dict:
        raise FrameError("a frame that is no JSON object")
    return value


def drain(link: socket.socket) -> None:
    """Drops what was sent by, or to, a session that died: half a frame of it would spoil the next one."""
    link.setblocking(False)
    try:
        while link.recv(65536):
            pass
    except OSError:  # nothing is left
        pass
    link.setblocking(True)
