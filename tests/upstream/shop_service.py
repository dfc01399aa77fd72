"""A real local HTTP service with an OpenAPI document, for the tests of OpenAPI upstreams. Not a test itself."""

import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

TOKEN = "very-secret-token-123"  # a value that must never be seen in an error

JSON = "application/json"


def _operation(name: str, *, parameters: list[Any] | None = None, body: Any = None, returns: Any = None) -> Any:
    content = {} if returns is None else {"content": {JSON: {"schema": returns}}}
    operation: dict[str, Any] = {"operationId": name, "responses": {"200": {"description": "good", **content}}}
    if parameters is not None:
        operation["parameters"] = parameters
    if body is not None:
        operation["requestBody"] = body
    return operation


def _parameter(name: str, place: str, schema: Any, **more: Any) -> Any:
    return {"name": name, "in": place, "schema": schema, **({"required": True} if place == "path" else {}), **more}


STRING, INTEGER, OBJECT = {"type": "string"}, {"type": "integer"}, {"type": "object"}
STRINGS = {"type": "array", "items": STRING}
ORDER = {"$ref": "#/components/schemas/Order"}

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "2.0", "description": "Orders of a small shop."},
    "servers": [{"url": "/api"}],
    "paths": {
        "/orders": {
            "get": {
                **_operation("listOrders", parameters=[_parameter("status", "query", STRING)]),
                "summary": "List orders",
                "description": "Newest first.",
                "responses": {
                    "200": {"description": "all", "content": {JSON: {"schema": {"type": "array", "items": ORDER}}}}
                },
            },
            "post": {
                **_operation("create order!", body={"required": True, "content": {JSON: {"schema": ORDER}}}),
                "responses": {"201": {"description": "made", "content": {JSON: {"schema": ORDER}}}},
            },
        },
        "/orders/{id}": {
            "parameters": [_parameter("id", "path", INTEGER)],
            "get": _operation("getOrder", returns=ORDER),
            "put": {"responses": {"204": {"description": "done"}}, "operationId": "putOrder"},
            "delete": {"responses": {"204": {"description": "gone"}}},
        },
        "/echo/{path}": {
            "get": _operation(
                "echo",
                parameters=[
                    _parameter("path", "path", STRING),
                    _parameter("plain", "query", STRING),
                    _parameter("many", "query", STRINGS),
                    _parameter("joined", "query", STRINGS, explode=False),
                    _parameter("piped", "query", STRINGS, style="pipeDelimited", explode=False),
                    _parameter("spaced", "query", STRINGS, style="spaceDelimited", explode=False),
                    _parameter("deep", "query", OBJECT, style="deepObject", explode=True),
                    _parameter("spread", "query", OBJECT),
                    _parameter("flat", "query", OBJECT, explode=False),
                    _parameter("reserved", "query", STRING, allowReserved=True),
                    {"name": "coded", "in": "query", "content": {JSON: {"schema": OBJECT}}},
                    _parameter("X-Many", "header", STRINGS),
                    _parameter("session", "cookie", STRING),
                    _parameter("path", "query", STRING),
                ],
            )
        },
        "/echo/{label}/{matrix}": {
            "get": _operation(
                "echoPath",
                parameters=[
                    _parameter("label", "path", STRINGS, style="label", explode=True),
                    _parameter("matrix", "path", OBJECT, style="matrix", explode=True),
                ],
            )
        },
        "/form": {
            "post": _operation(
                "sendForm",
                body={"content": {"application/x-www-form-urlencoded": {"schema": {"type": "object"}}}},
            )
        },
        "/upload": {
            "post": _operation(
                "upload",
                body={
                    "content": {
                        "multipart/form-data": {
                            "schema": {
                                "type": "object",
                                "properties": {"note": STRING, "file": {"type": "string", "format": "binary"}},
                            }
                        }
                    }
                },
            )
        },
        "/text": {"post": _operation("sendText", body={"content": {"text/plain": {"schema": STRING}}})},
        "/bytes": {"post": _operation("sendBytes", body={"content": {"application/octet-stream": {"schema": {}}}})},
        **{
            f"/{name}": {"get": _operation(name)}
            for name in ("picture", "page", "archive", "broken", "fails", "redirect", "away", "huge", "slow", "cut")
        },
        "/redirect-post": {"post": _operation("redirectPost")},
        "/elsewhere": {"get": {**_operation("elsewhere"), "servers": [{"url": "https://other.example"}]}},
    },
    "components": {
        "schemas": {
            "Order": {
                "type": "object",
                "required": ["id", "customer"],
                "properties": {
                    "id": {"type": "integer", "readOnly": True},
                    "customer": STRING,
                    "parent": {"anyOf": [ORDER, {"type": "null"}]},
                    "items": {"type": "array", "items": {"$ref": "#/components/schemas/Item"}},
                },
            },
            "Item": {"type": "object", "properties": {"title": STRING, "order": ORDER}},
        }
    },
}


async def _echo(request: Request) -> Response:
    body = await request.body()
    return JSONResponse(
        {
            "method": request.method,
            "path": request.scope["raw_path"].decode(),
            "query": request.url.query,
            "headers": dict(request.headers),
            "body": body.decode("latin-1"),
        }
    )


async def _orders(request: Request) -> Response:
    if request.method == "POST":
        return JSONResponse({"id": 7, **await request.json()}, 201)
    return JSONResponse([{"id": 1, "customer": "Mara"}, {"id": 2, "customer": "Jonas"}])


async def _order(request: Request) -> Response:
    if request.method != "GET":
        return Response(status_code=204)
    if request.path_params["id"] != "1":
        return JSONResponse({"error": "no such order", "sent": request.headers.get("authorization")}, 404)
    return JSONResponse({"id": 1, "customer": "Mara", "parent": None})


async def _huge(_: Request) -> Response:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b"x" * 65536

    return StreamingResponse(parts(), media_type="text/plain")


class Shop:
    """The running service: its address, and what the slow operation saw."""

    def __init__(self) -> None:
        self.address = ""
        self.slow_started = threading.Event()
        self.slow_ended = threading.Event()

    async def _slow(self, request: Request) -> Response:
        self.slow_started.set()
        # The first message is the end of the empty body, the next one that the client is gone.
        while (await request.receive())["type"] != "http.disconnect":
            continue
        self.slow_ended.set()
        return Response()

    async def _cut(self, request: Request) -> Response:
        async def parts() -> AsyncIterator[bytes]:
            yield b'{"half":'
            raise ConnectionResetError

        return StreamingResponse(parts(), media_type=JSON, headers={"content-length": "1000"})

    def app(self) -> Starlette:
        async def document(request: Request) -> Response:
            return JSONResponse(DOCUMENT, headers={"x-seen": request.headers.get("authorization", "")})

        async def away(request: Request) -> Response:
            return RedirectResponse(self.address.replace("127.0.0.1", "localhost") + "/api/echo/away", 302)

        def fixed(response: Response) -> Any:
            async def answer(_: Request) -> Response:
                return response

            return answer

        return Starlette(
            routes=[
                Route("/openapi.json", document),
                Route("/api/orders", _orders, methods=["GET", "POST"]),
                Route("/api/orders/{id}", _order, methods=["GET", "PUT", "DELETE"]),
                Route("/api/echo/{rest:path}", _echo),
                *(Route(f"/api/{name}", _echo, methods=["POST"]) for name in ("form", "upload", "text", "bytes")),
                Route("/api/picture", fixed(Response(b"\x89PNG", media_type="image/png"))),
                Route("/api/page", fixed(Response(b"<p>gr\xfcn</p>", media_type="text/html; charset=latin-1"))),
                Route("/api/archive", fixed(Response(b"PK\x03\x04", media_type="application/zip"))),
                Route("/api/broken", fixed(Response(b'{"half":', media_type=JSON))),
                Route("/api/fails", fixed(PlainTextResponse(f"token {TOKEN} is wrong", 500))),
                Route("/api/redirect", fixed(RedirectResponse("/api/echo/here", 302))),
                Route("/api/redirect-post", fixed(RedirectResponse("/api/echo/here", 307)), methods=["POST"]),
                Route("/api/away", away),
                Route("/api/huge", _huge),
                Route("/api/slow", self._slow),
                Route("/api/cut", self._cut),
            ]
        )  # fmt: skip


@contextmanager
def running_shop() -> Iterator[Shop]:
    """Runs the service on a free port of this machine, in a thread, for as long as the block lasts."""
    shop = Shop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        shop.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(shop.app(), log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield shop
        finally:
            server.should_exit = True
            thread.join()
