"""An HTTP service with an OpenAPI document and large answers, in a process of its own. Prints its port."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

RECORD = '{"id": 1234567, "name": "café 😀 \\"x\\""},\n'.encode()
PIECE = RECORD * 10_000


def number(name: str) -> dict[str, object]:
    return {"name": name, "in": "query", "schema": {"type": "integer"}}


class Large(BaseHTTPRequestHandler):
    """`/rows` and `/bytes` give `megabytes`; with `told` their length is told before."""

    protocol_version = "HTTP/1.1"
    kinds: ClassVar = {"/rows": ("application/json", PIECE), "/bytes": ("application/zip", bytes(range(128)) * 2000)}

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        if asked.path == "/openapi.json":
            self.document()
            return
        given = {key: int(values[0]) for key, values in parse_qs(asked.query).items()}
        kind, piece = self.kinds[asked.path]
        count = given["megabytes"] * 1_000_000 // len(piece)
        self.send_response(200)
        self.send_header("Content-Type", kind)
        if given.get("told"):
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
        body = json.dumps({"openapi": "3.1.0", "info": {"title": "large", "version": "1"}, "paths": paths}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), Large) as server:
        sys.stdout.write(f"{server.server_address[1]}\n")
        sys.stdout.flush()
        server.serve_forever()
