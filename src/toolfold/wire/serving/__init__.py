"""The server side of the protocol: both eras, over a pipe and over HTTP. It knows messages and no gateway.

    server.py          what an arriving request means, whatever it came on
    exchange.py        one request while it is answered, its client, the application and how it describes itself
    input_requests.py  questions to a modern client while its request is answered, and the signed state between rounds
    notifications.py   who subscribes to changes of lists and resources
    session.py         a legacy client from its handshake to its end
    stdio.py           one message a line
    http*.py           streamable HTTP as an ASGI application

Above: `toolfold.faces.mcp_server`, which brings the application. Below: `wire.jsonrpc`.
"""

from toolfold.wire.serving.exchange import About, App, Client, Exchange, RpcError, ServeOptions
from toolfold.wire.serving.notifications import NotificationHub
from toolfold.wire.serving.server import Server

__all__ = ["About", "App", "Client", "Exchange", "NotificationHub", "RpcError", "ServeOptions", "Server"]
