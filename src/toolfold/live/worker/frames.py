"""Frames between the processes of a session: four bytes of length, big end first, and that many bytes of JSON.

The writer here needs no builtins that a session could have replaced, and writes plain ASCII, so that its length is the
widest that any encoder would need. Lone surrogates are written out as text.
"""

import json
import json.encoder
import math
import os
import struct
from typing import Any

from toolfold.live.worker.originals import BUILTINS

globals()["__builtins__"] = BUILTINS

_FRAME_MAX_BYTES = 4 * 1024 * 1024
_quote = json.encoder.encode_basestring_ascii
_scan: Any = vars(json.JSONDecoder())["scan_once"]
_pack = struct.Struct(">I").pack
_unpack = struct.Struct(">I").unpack_from
_write = os.write
_isfinite = math.isfinite


class FrameError(Exception):
    """What came is no frame: too long, or no JSON object."""


def dumps(value: Any) -> str:
    """JSON of the plain values that the worker makes."""
    parts: list[str] = []
    _dump(value, parts)
    return "".join(parts)


def _dump(value: Any, parts: list[str]) -> None:
    cls = type(value)
    if cls is dict:
        opening = "{"
        for key, item in value.items():
            parts.append(f"{opening}{_text(key)}:")
            _dump(item, parts)
            opening = ","
        parts.append("}" if value else "{}")
    elif cls is list or cls is tuple:
        opening = "["
        for item in value:
            parts.append(opening)
            _dump(item, parts)
            opening = ","
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


def write_frame(descriptor: int, value: dict[str, Any]) -> None:
    data = memoryview(encode_frame(value))
    while data:
        data = data[_write(descriptor, data) :]


class FrameReader:
    """Takes bytes as they come and gives whole frames."""

    def __init__(self, limit: int = _FRAME_MAX_BYTES) -> None:
        self._limit = limit
        self._held = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The frames that are complete now. Raises `BadFrame`."""
        self._held += data
        found: list[dict[str, Any]] = []
        while len(self._held) >= 4:
            (length,) = _unpack(self._held)
            if length > self._limit:
                raise FrameError(f"a frame of {length} bytes")
            if len(self._held) < 4 + length:
                break
            body = bytes(self._held[4 : 4 + length])
            del self._held[: 4 + length]
            found.append(_loads(body))
        return found


def _loads(body: bytes) -> dict[str, Any]:
    try:
        value, _ = _scan(body.decode("utf-8"), 0)
    except (StopIteration, ValueError, RecursionError) as error:
        raise FrameError("a frame that is no JSON") from error
    if type(value) is not dict:
        raise FrameError("a frame that is no JSON object")
    return value
