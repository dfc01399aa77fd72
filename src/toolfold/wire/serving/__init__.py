"""The server side of the protocol: both eras, over a pipe and over HTTP. It knows messages and no gateway.

    app.py        what an application looks like to a wire
    values.py     what it says of itself, what it refuses with, limits
    server.py     what an arriving request means, whatever it came on
    exchange.py   one request while it is answered: its notices, its questions to the client, its end
    asking.py     modern questions: a handler that is held while the client fetches answers
    sealing.py    the state that a client carries between those rounds, signed
    hub.py        who is told when lists and resources change
    faults.py     what is refused, and how that is said
    results.py    what the modern era adds to a result
    stdio.py      one message a line
    http*.py      streamable HTTP as an ASGI application

Above: `toolfold.faces.mcp_server`, which brings the application. Below: `wire.jsonrpc`.
"""

from toolfold.wire.serving.exchange import App, Client, Exchange
from toolfold.wire.serving.notifications import NotificationHub
from toolfold.wire.serving.server import Server
from toolfold.wire.serving.types import About, RpcError, ServeOptions

__all__ = ["About", "App", "Client", "Exchange", "NotificationHub", "RpcError", "ServeOptions", "Server"]
