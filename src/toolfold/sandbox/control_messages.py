"""Small messages with descriptors between the host, its zygotes and their shims. Standard library only.

A message is one line of JSON; its field `fds` counts the descriptors that travel with it. Children exchange frames
instead (`frames.py`). The zygote reads blocking, the host from its event loop.
"""

import json
import os
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]
_MAX_FDS = 16


class MessageReader:
    """Reads messages and their descriptors from one socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._pending = b""
        self._fds: deque[int] = deque()

    def read(self) -> list[tuple[Message, list[int]]] | None:
        """Returns the messages that are complete now, `None` once the peer is gone."""
        try:
            data, fds, _, _ = socket.recv_fds(self._socket, 65536, _MAX_FDS)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        self._fds.extend(fds)
        *lines, self._pending = (self._pending + data).split(b"\n")
        messages = [json.loads(line) for line in lines]
        return [(message, [self._fds.popleft() for _ in range(message["fds"]) if self._fds]) for message in messages]

    def close(self) -> None:
        """Closes the descriptors that no message claimed."""
        while self._fds:
            os.close(self._fds.popleft())


def send(sock: socket.socket, message: Message, fds: Sequence[int] = ()) -> None:
    data = json.dumps({**message, "fds": len(fds)}).encode() + b"\n"
    # Descriptors travel with the first byte; the rest may follow alone.
    sent = socket.send_fds(sock, [data], list(fds)) if fds else sock.send(data)
    if sent < len(data):
        sock.sendall(data[sent:])
