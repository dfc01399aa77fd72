"""Many HTTP clients in one process, each on a connection of its own that stays open: sends, waits, compares, repeats.
With the name that the tool has over MCP, every second one speaks that.

Written on bare protocols, since a comfortable client would cost more than the server that is measured. Above:
`load.py`, which runs it as a process of its own.
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.measurement import percentile

_VERSION = "2026-07-28"
_KEYS = "io.modelcontextprotocol/"
META = {
    _KEYS + "protocolVersion": _VERSION,
    _KEYS + "clientInfo": {"name": "crowd", "version": "1"},
    _KEYS + "clientCapabilities": {},
}
HEADERS = (
    f"accept: application/json, text/event-stream\r\nmcp-protocol-version: {_VERSION}\r\n"
    "mcp-method: tools/call\r\nmcp-name: {}\r\n"
)


class Client(asyncio.Protocol):
    """One connection. `body` makes the request of a number; the answer must hold the number's own mark."""

    def __init__(self, number: int, tool_id: str, until: float, *, mcp: bool = False) -> None:
        self.number = number
        self._mcp = mcp
        self.times: list[float] = []
        self.errors: list[str] = []
        self.wrong = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tool_id = tool_id
        self._until = until
        self._count = 0
        self._sent = 0.0
        self._seen = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a TCP connection gives just this
        self._ask()

    def _ask(self) -> None:
        if time.perf_counter() >= self._until or self._transport is None:
            self._finish()
            return
        self._count += 1
        self._mark = f"client-{self.number}-call-{self._count}-end"
        body, path, more = self._request()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n{more}"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self._sent = time.perf_counter()
        self._transport.write(head.encode() + body)

    def _request(self) -> tuple[bytes, str, str]:
        """A call of the tool with this call's mark: body, address, further headers."""
        if not self._mcp:
            return msgspec.json.encode({"tool_id": self._tool_id, "args": {"text": self._mark}}), "/v1/call_tool", ""
        params = {"name": self._tool_id, "arguments": {"text": self._mark}, "_meta": META}
        message = {"jsonrpc": "2.0", "id": self._count, "method": "tools/call", "params": params}
        return msgspec.json.encode(message), "/mcp", HEADERS.format(self._tool_id)

    def data_received(self, data: bytes) -> None:
        self._seen += data
        split = self._seen.find(b"\r\n\r\n")
        if split < 0:
            return
        head = bytes(self._seen[:split]).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
        if len(self._seen) < split + 4 + length:
            return
        body = bytes(self._seen[split + 4 : split + 4 + length])
        self._seen.clear()
        self.times.append(time.perf_counter() - self._sent)
        if not head.startswith(b"http/1.1 200"):
            self.errors.append(body[:200].decode(errors="replace"))
        elif self._mark.encode() not in body:
            (self.errors.append(body[:200].decode(errors="replace")) if b'"error"' in body else None)
            self.wrong += 1
        self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.errors.append(f"the connection ended: {exc}")
            self.done.set_result(None)

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
        if self._transport is not None:
            self._transport.close()


async def load(port: int, clients: int, seconds: float, tool_id: str, mcp_name: str = "") -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    started = time.perf_counter()
    opened: list[Client] = []
    for number in range(clients):
        mcp = bool(mcp_name) and number % 2 == 1
        made = Client(number, mcp_name if mcp else tool_id, started + seconds, mcp=mcp)
        await loop.create_connection(lambda made=made: made, "127.0.0.1", port)  # type: ignore[misc]  # bound now
        opened.append(made)
    await asyncio.gather(*(one.done for one in opened))
    taken = time.perf_counter() - started
    times = [value for one in opened for value in one.times]
    errors = [error for one in opened for error in one.errors]
    return {
        "answers": len(times),
        "answered_clients": sum(bool(one.times) for one in opened),
        "errors": len(errors),
        "first_error": errors[0] if errors else "",
        "wrong_answers": sum(one.wrong for one in opened),
        "per_second": round(len(times) / taken, 1),
        "p50_ms": round(percentile(times, 0.5) * 1000, 1),
        "p99_ms": round(percentile(times, 0.99) * 1000, 1),
    }


if __name__ == "__main__":
    import uvloop

    port, clients, seconds, tool_id, out, *rest = sys.argv[1:7]
    found = uvloop.run(load(int(port), int(clients), float(seconds), tool_id, *rest))
    Path(out).write_bytes(msgspec.json.encode(found))
