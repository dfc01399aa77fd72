"""Stands between the conformance suite and a gateway that folds its server, as a client that knows what is folded.

    python folded_client.py PORT URL SERVER

The suite asks for the fixture's tools, prompts and templates by the names that the fixture gave them. What is asked for
here on loopback is asked for at URL under the address that the gateway gives it: a tool through `call_tool`, or by the
name under which it is listed; nothing else is changed, and answers pass through as they are.
"""

import json
import sys
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

# Of one hop alone; the rest, `Host` and `Origin` among it, is what the suite tests.
HOP = {"connection", "content-length", "transfer-encoding", "keep-alive"}


class Folded:
    def __init__(self, url: str, server: str) -> None:
        self._url, self._server = url, server
        self._http = httpx2.AsyncClient(timeout=60)

    async def __call__(self, request: Request) -> StreamingResponse:
        body, headers = await request.body(), {k: v for k, v in request.headers.items() if k not in HOP}
        if request.method == "POST":
            body = self._translated(body, headers)
        sent = self._http.build_request(request.method, self._url, content=body, headers=headers)
        answer = await self._http.send(sent, stream=True)
        kept = {k: v for k, v in answer.headers.items() if k not in HOP}
        return StreamingResponse(passed(answer), answer.status_code, kept)

    def _translated(self, body: bytes, headers: dict[str, str]) -> bytes:
        try:
            message = json.loads(body)
            method, params = message["method"], message["params"]
        except (ValueError, TypeError, KeyError):
            return body
        name = self._address(method, params)
        if name is not None and headers.get("mcp-name"):
            headers["mcp-name"] = name
        return json.dumps(message).encode() if name is not None else body

    def _address(self, method: str, params: dict[str, Any]) -> str | None:
        """Writes the gateway's address into `params`, and returns it where a header repeats it."""
        if method == "tools/call" and isinstance(params.get("name"), str):
            args = params.get("arguments", {})
            params["arguments"] = {"tool_id": f"{self._server}.{params['name']}", "args": args}
            params["name"] = "call_tool"
            return "call_tool"
        if method == "prompts/get" and isinstance(params.get("name"), str):
            params["name"] = f"{self._server}.{params['name']}"
            return str(params["name"])
        ref = params.get("ref", {})
        if method == "completion/complete" and ref.get("type") == "ref/prompt":
            ref["name"] = f"{self._server}.{ref['name']}"
            return ""
        return None


async def passed(answer: httpx2.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in answer.aiter_raw():
            yield chunk
    finally:
        await answer.aclose()


def main() -> None:
    port, url, server = int(sys.argv[1]), sys.argv[2], quote(sys.argv[3])
    routes = [Route("/mcp", Folded(url, server).__call__, methods=["GET", "POST", "DELETE", "OPTIONS", "PUT"])]
    uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=port, log_level="error")


if __name__ == "__main__":
    main()
