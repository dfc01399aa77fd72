"""The HTTP/JSON face: the discovery operations under `/v1`, an OpenAPI document, and a page to read and try them.

    app.py       routes, and one way through all of them
    reading.py   what comes in: content type, size
    statuses.py  the HTTP status of each error code
    openapi.py   the document, written from the same definitions as the model-facing tools (schemas.py: what comes out)
    page.py      `/docs`, one page that needs nothing from anywhere

Above: whatever serves ASGI. Below: the operations of `faces.surface`, and the gateway.
"""

from toolfold.faces.http_api.app import make_app

__all__ = ["make_app"]
