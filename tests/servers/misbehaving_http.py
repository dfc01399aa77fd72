"""An MCP server over HTTP that misbehaves on demand, to test clients with. Standard library only.

    async with MisbehavingHttp(era="legacy", session=True) as server:
        connection = await connect(server.target)

What it answers comes from `misbehaving.py`; what is here is HTTP and its faults. `seen` keeps every request. It stays
on loopback.
"""

import asyncio
import base64
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from misbehaving_stdio import META, Json, Server, options

if TYPE_CHECKING:
    from toolfold.wire import HttpTarget


@dataclass(frozen=True)
class Request:
    """One request as it came. Header names are in small letters."""

    verb: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> Json:
        found: Json = json.loads(self.body) if self.body else {}
        return found

    @property
    def method(self) -> str:
        return str(self.message.get("method", ""))


@dataclass
class MisbehavingHttp:
    """The switches. Methods are MCP methods, such as `tools/list`."""

    era: str = "dual"
    events: bool = False
    """Answer with event streams."""
    session: bool = False
    """Legacy: give out a session and insist on it."""
    forget_after: int = -1
    """Forget all sessions once, after so many requests within one."""
    forget_status: int = 404
    listen: bool = False
    """Legacy: offer the GET stream."""
    oldest: bool = False
    """Speak only the transport of 2024-11-05."""
    strict_headers: bool = False
    """Modern: refuse requests whose headers do not say what their body says."""
    parameter_headers: dict[str, str] = field(default_factory=dict)
    """Properties of the tool `echo` that are wanted in headers: property to header name."""
    refuse: dict[str, int] = field(default_factory=dict)
    """Method to an HTTP status without a useful body."""
    garbage: dict[str, bytes] = field(default_factory=dict)
    """Method to the body sent in place of an answer."""
    cut: str = ""
    """The method in the middle of whose answer the connection is closed."""
    hang: str = ""
    """The method that is never answered."""
    resume: str = ""
    """Legacy: the method whose stream ends before the answer, to be taken up again."""
    redirect: str = ""
    """Where everything is redirected to."""
    faults: tuple[str, ...] = ()
    """Switches of the stdio server that concern what is answered, such as `--bad-tools`."""

    def __post_init__(self) -> None:
        self.seen: list[Request] = []
        self.closed_early: list[str] = []
        self.sessions: set[str] = set()
        self._within = 0
        self._down: asyncio.StreamWriter | None = None
        self._held: dict[str, bytes] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers = _Answers(self)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def target(self) -> "HttpTarget":
        from toolfold.wire import HttpTarget

        return HttpTarget(self.url)

    @property
    def listened(self) -> bool:
        """Whether somebody reads the GET stream."""
        return self._down is not None

    def drop(self) -> None:
        """Breaks the GET stream off."""
        if self._down is not None:
            self._down.transport.abort()

    def change(self) -> None:
        """Says on the GET stream that the list of tools changed."""
        if self._down is not None:
            self._down.write(_event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))

    # --- HTTP

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            while (request := await read_request(reader)) is not None:
                self.seen.append(request)
                if not await self._respond(request, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _respond(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answers; false to close the connection."""
        if self.redirect:
            return send(writer, 307, b"", {"Location": self.redirect})
        if request.verb == "GET":
            return await self._get(request, reader, writer)
        if request.verb == "DELETE":
            self.sessions.discard(request.headers.get("mcp-session-id", ""))
            return send(writer, 200, b"")
        if self.oldest:
            return self._oldest_post(request, writer)
        return await self._post(request, reader, writer)

    async def _get(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        last = request.headers.get("last-event-id", "")
        if last in self._held:
            _start_stream(writer)
            writer.write(b"id: 2\n" + self._held.pop(last))
            return False
        if not (self.listen or self.oldest):
            return send(writer, 405, b"")
        _start_stream(writer)
        self._down = writer
        if self.oldest:
            writer.write(b"event: endpoint\ndata: /messages?session=1\n\n")
        await writer.drain()
        await reader.read()
        return False

    def _oldest_post(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        if not request.path.startswith("/messages"):
            return send(writer, 404, b"not found")
        for line in self._answers.to(request.message):
            if self._down is not None:
                self._down.write(b"event: message\ndata: " + line + b"\n\n")
        return send(writer, 202, b"Accepted")

    async def _post(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        method = request.method
        if method in self.refuse:
            return send(writer, self.refuse[method], b"no")
        if method and method == self.hang:
            await reader.read()
            self.closed_early.append(method)
            return False
        if method in self.garbage:
            return send(writer, 200, self.garbage[method])
        refusal = self._refusal(request)
        if refusal is not None:
            return send(writer, *refusal)
        return await self._answer(request, writer)

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        lines = self._answers.to(request.message)
        if not lines:
            return send(writer, 202, b"")
        headers = {}
        if request.method == "initialize" and self.session:
            headers["Mcp-Session-Id"] = name = f"session-{len(self.seen)}"
            self.sessions.add(name)
        if request.method == self.resume:
            _start_stream(writer)
            writer.write(b"id: 1\nretry: 50\ndata: \n\n")
            self._held["1"] = b"data: " + lines[-1] + b"\n\n"
            return False
        if request.method == self.cut:
            _start_stream(writer)
            writer.write(b"data: " + lines[-1][:-5])
            return False
        if self.events or len(lines) > 1:
            _start_stream(writer, headers)
            writer.write(b": hello\n\n" + b"".join(b"data: " + line + b"\n\n" for line in lines))
            return False
        status = 404 if b'"code":-32601' in lines[0] and _modern(request.message) else 200
        return send(writer, status, lines[0], headers)

    def _refusal(self, request: Request) -> tuple[int, bytes] | None:
        """What is wrong with a request before it is looked at."""
        if _modern(request.message):
            wrong = self.strict_headers and self._wrong_headers(request)
            return (400, _error(request, -32020, "Header mismatch")) if wrong else None
        if self.era == "modern":
            data = {"supported": ["2026-07-28"], "requested": "?"}
            return 400, _error(request, -32022, "Unsupported protocol version", data)
        if not self.session or request.method == "initialize":
            return None
        self._within += 1
        if self._within == self.forget_after:
            self.sessions.clear()
        if request.headers.get("mcp-session-id") not in self.sessions:
            return self.forget_status, _error(request, -32000, "Session not found")
        return None

    def _wrong_headers(self, request: Request) -> bool:
        headers, params = request.headers, request.message.get("params", {})
        if headers.get("mcp-method") != request.method or headers.get("mcp-protocol-version") != "2026-07-28":
            return True
        if request.method != "tools/call":
            return False
        wanted = {"mcp-name": params["name"]}
        if params["name"] == "echo":
            for name, header in self.parameter_headers.items():
                if params["arguments"].get(name) is not None:
                    wanted["mcp-param-" + header.lower()] = str(params["arguments"][name])
        return any(_plain(headers.get(name, "")) != value for name, value in wanted.items())


class _Answers(Server):
    """The answers of the stdio server, caught before they are written."""

    def __init__(self, http: MisbehavingHttp) -> None:
        super().__init__(options(["--era", http.era, *http.faults]))
        self.http = http
        self.lines: list[bytes] = []

    def to(self, message: Json) -> list[bytes]:
        self.lines = []
        self.read(json.dumps(message).encode())
        return self.lines

    def put(self, data: bytes) -> None:
        self.lines += [line for line in data.split(b"\n") if line]

    def tools(self) -> list[Any]:
        tools = super().tools()
        if self.http.parameter_headers:
            properties = {
                name: {"type": "string", "x-mcp-header": header} for name, header in self.http.parameter_headers.items()
            }
            tools[0] = {**tools[0], "inputSchema": {"type": "object", "properties": properties}}
        return tools


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request of a connection; `None` at its end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    verb, path, _ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Request(verb, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))


def send(writer: asyncio.StreamWriter, status: int, body: bytes, headers: dict[str, str] | None = None) -> bool:
    """Answers; true: the connection stays open."""
    shown = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in shown.items())
    writer.write(f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode() + body)
    return True


def _start_stream(writer: asyncio.StreamWriter, headers: dict[str, str] | None = None) -> None:
    shown = {"Content-Type": "text/event-stream", "Connection": "close", **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in shown.items())
    writer.write(f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode())


def _event(message: Json) -> bytes:
    return b"data: " + json.dumps(message).encode() + b"\n\n"


def _error(request: Request, code: int, words: str, data: object = None) -> bytes:
    error = {"code": code, "message": words, "data": data}
    return json.dumps({"jsonrpc": "2.0", "id": request.message.get("id"), "error": error}).encode()


def _modern(message: Json) -> bool:
    return META + "protocolVersion" in ((message.get("params") or {}).get("_meta") or {})


def _plain(value: str) -> str:
    if value.startswith("=?base64?") and value.endswith("?="):
        return base64.b64decode(value[9:-2]).decode()
    return value
