"""An HTTP server whose answers are as large as one asks for: an OpenAPI service under GET, an MCP server under POST.

Run as a process: it prints its port. It writes an answer piece by piece and holds nothing.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

# What the OpenAPI service answers with.
RECORD = '{"id": 1234567, "name": "café 😀 \\"x\\""},\n'.encode()
PIECE = RECORD * 10_000

# What the MCP server answers with: a line as it stands inside a JSON string.
LINE = '{\\"id\\": 1234567, \\"name\\": \\"caf\\u00e9 \\ud83d\\ude00\\"},\\n'
SCHEMA = {"type": "object", "properties": {"megabytes": {"type": "number"}, "form": {"type": "string"}}}
TOOL = {"name": "large", "description": "Returns a text of a given size.", "inputSchema": SCHEMA}


def number(name: str) -> dict[str, object]:
    return {"name": name, "in": "query", "schema": {"type": "integer"}}


class Large(BaseHTTPRequestHandler):
    """GET `/rows` and `/bytes` give `megabytes`; with `told` the length is announced. POST anywhere speaks MCP."""

    protocol_version = "HTTP/1.1"
    kinds: ClassVar = {"/rows": ("application/json", PIECE), "/bytes": ("application/zip", bytes(range(128)) * 2000)}

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/openapi.json":
            self.document()
        elif url.path in self.kinds:
            self.pieces(url.path, {key: int(values[0]) for key, values in parse_qs(url.query).items()})
        else:
            self.send_error(405)  # no stream of notifications is offered

    def do_DELETE(self) -> None:
        self.answer(None)

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, identifier = message.get("method"), message.get("id")
        if method == "initialize":
            info = {"name": "large", "version": "1"}
            version = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            self.answer({"jsonrpc": "2.0", "id": identifier, "result": version})
        elif method == "tools/list":
            self.answer({"jsonrpc": "2.0", "id": identifier, "result": {"tools": [TOOL]}})
        elif method == "tools/call":
            self.text(identifier, message["params"].get("arguments") or {})
        elif identifier is None:
            self.answer(None)
        else:
            self.answer({"jsonrpc": "2.0", "id": identifier, "error": {"code": -32601, "message": "no such method"}})

    def pieces(self, path: str, options: dict[str, int]) -> None:
        kind, piece = self.kinds[path]
        count = options["megabytes"] * 1_000_000 // len(piece)
        self.send_response(200)
        self.send_header("Content-Type", kind)
        if options.get("told"):
            self.send_header("Content-Length", str(count * len(piece)))
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            for _ in range(count):
                self.wfile.write(piece)
        except ConnectionError:
            self.close_connection = True

    def document(self) -> None:
        paths = {
            path: {
                "get": {
                    "operationId": path[1:],
                    "summary": "Much.",
                    "parameters": [number("megabytes"), number("told")],
                    "responses": {"200": {"description": "ok"}},
                }
            }
            for path in self.kinds
        }
        self.answer({"openapi": "3.1.0", "info": {"title": "large", "version": "1"}, "paths": paths})

    def answer(self, message: Any) -> None:
        body = b"" if message is None else json.dumps(message).encode()
        self.send_response(202 if message is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def text(self, identifier: object, arguments: dict[str, Any]) -> None:
        stream = arguments.get("form") != "json"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if stream else "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        head = f'{{"jsonrpc":"2.0","id":{json.dumps(identifier)},"result":{{"content":[{{"type":"text","text":"'
        note = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "soon"}})
        self.chunk(f"event: message\nid: 1\ndata: {note}\n\nid: 2\ndata: {head}" if stream else head)
        block, written = LINE * 5000, 0
        while written < arguments["megabytes"] * 1_000_000:
            self.chunk(block)
            written += len(block)
        # The members of an answer may stand on several data lines.
        self.chunk('"}],\ndata: "isError":false}}\n\n' if stream else '"}],"isError":false}}')
        self.wfile.write(b"0\r\n\r\n")

    def chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it has above
        pass


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), Large) as server:
        sys.stdout.write(f"{server.server_port}\n")
        sys.stdout.flush()
        server.serve_forever()
