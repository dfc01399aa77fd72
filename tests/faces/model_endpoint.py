"""An endpoint on loopback that plays a model: it answers chat completions with one command after the other."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def model_endpoint(
    says: list[dict[str, Any]], reached: threading.Event | None = None, asked: list[str] | None = None
) -> Iterator[str]:
    """The endpoint's address. A command of `{"type": "hang"}` is never answered; `reached` is set when it is asked.

    One of `{"type": "text"}` is answered with its `text`. `asked` gets the names of the models that requests ask for.
    """
    remaining = list(says)
    hung = threading.Event()

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if asked is not None:
                asked.append(body["model"])
            command = dict(remaining.pop(0))
            if command["type"] == "hang":
                if reached is not None:
                    reached.set()
                hung.wait()
                return
            name = command.pop("type")
            call = {"id": "1", "type": "function", "function": {"name": name, "arguments": json.dumps(command)}}
            message: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [call]}
            if name == "text":
                message = {"role": "assistant", "content": command["text"]}
            usage = {"prompt_tokens": 10, "completion_tokens": 5}
            answer = json.dumps(
                {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": usage}
            ).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        hung.set()
        server.shutdown()
        thread.join()
        server.server_close()
