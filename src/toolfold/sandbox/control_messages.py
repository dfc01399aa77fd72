"""Small messages with descriptors: what the host and a zygote say to each other. Standard library only.

A message is one line of JSON; its field `fds` says how many descriptors came with it. It is no channel for children:
those get frames. Both sides use `Assembler`; the zygote sends and receives blocking, the host from its event loop.
"""

import json
import os
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]
_MAX_FDS = 16


class MessageAssembler:
    """Puts messages together from the pieces and descriptors that arrive."""

    def __init__(self) -> None:
        self._pending = b""
        self._fds: deque[int] = deque()

    def feed(self, data: bytes, fds: Sequence[int] = ()) -> list[tuple[Message, list[int]]]:
        self._fds.extend(fds)
        *lines, self._pending = (self._pending + data).split(b"\n")
        whole = []
        for line in lines:
            message = json.loads(line)
            whole.append((message, [self._fds.popleft() for _ in range(message.get("fds", 0)) if self._fds]))
        return whole

    def close(self) -> None:
        """Closes descriptors that no message claimed."""
        while self._fds:
            os.close(self._fds.popleft())


def send(sock: socket.socket, message: Message, fds: Sequence[int] = ()) -> None:
    data = json.dumps({**message, "fds": len(fds)}).encode() + b"\n"
    sent = socket.send_fds(sock, [data], list(fds)) if fds else sock.send(data)
    if sent < len(data):
        sock.sendall(data[sent:])


def receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """What is there now; no bytes when the peer is gone."""
    data, fds, _, _ = socket.recv_fds(sock, 65536, _MAX_FDS)
    return data, list(fds)
