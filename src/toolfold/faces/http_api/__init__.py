"""The HTTP/JSON face: the discovery operations under `/v1`, an OpenAPI document, and a page to read and try them.

    app.py       routes, the one path that every request takes, the status of each error, the run of an agent
    admin.py     `/v1/admin`: what the command line changes, for callers whose policy allows it
    request.py   the bounded body of a request, and its errors
    drain.py     `/readyz`, and the end of a gateway: what is under way is answered first
    openapi.py   the document, written from the same definitions as the model-facing tools
    page.py      `/docs`, one page that loads nothing from anywhere

Above: whatever serves ASGI. Below: the operations of `faces.surface`, and the gateway.
"""

from toolfold.faces.http_api.app import make_app
from toolfold.faces.http_api.drain import _Drain

__all__ = ["_Drain", "make_app"]
