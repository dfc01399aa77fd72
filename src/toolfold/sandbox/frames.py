"""Frames over a blocking socket: a four-byte big-endian length and that many bytes. Standard library only.

This is the child's side of what `base.py` describes; the host's side is `channel.py`, with the same numbers. Above:
`child_main.py` and the functions that run in a child. Below: a connected socket.
"""

import socket
import struct

# Where a child finds its one socket.
CHANNEL_FD = 3
LENGTH = struct.Struct(">I")
_READ_BYTES = 1024 * 1024


class FrameError(Exception):
    """The bytes on the socket are not a frame, or the peer left in the middle of one."""


def frame_length(header: bytes, limit: int) -> int:
    """Decodes the length of a frame. Zero and anything above `limit` are refused."""
    length: int = LENGTH.unpack(header)[0]
    if length == 0:
        raise FrameError("a frame of length 0: each carries at least one byte")
    if length > limit:
        raise FrameError(f"a frame of {length} bytes, where {limit} are allowed")
    return length


def read_frame(sock: socket.socket, limit: int) -> bytes | None:
    """Reads the next frame; `None` when the peer closed between two frames."""
    header = _read_exactly(sock, LENGTH.size)
    if header is None:
        return None
    body = _read_exactly(sock, frame_length(header, limit))
    if body is None:
        raise FrameError("the peer left between a frame's length and its bytes")
    return body


def write_frame(sock: socket.socket, frame: bytes) -> None:
    # Two writes cost less than a copy of a long frame, one write less than two for a short one.
    if len(frame) > 65536:
        sock.sendall(LENGTH.pack(len(frame)))
        sock.sendall(frame)
    else:
        sock.sendall(LENGTH.pack(len(frame)) + frame)


def _read_exactly(sock: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        piece = sock.recv(min(_READ_BYTES, size - len(data)))
        if not piece:
            if data:
                raise FrameError(f"the peer left after {len(data)} of {size} bytes")
            return None
        data += piece
    return bytes(data)
