"""The MCP server face: a profile of the gateway, served on stdio or over HTTP, to clients of both eras.

    surface_app.py   serves any `Surface`: discovery, direct, auto
    transparent.py   serves one upstream as it is
    profiles.py      the profiles by name
    http.py          the HTTP application: `/mcp`, and everything else

Above: `toolfold serve`. Below: `wire.serving` and the gateway.
"""
