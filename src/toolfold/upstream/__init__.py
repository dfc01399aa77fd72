"""Upstreams: servers of tools, of every kind, behind one contract.

    base.py          the contract: open, listing, call, aclose
    mcp.py           MCP servers, over stdio and HTTP        (stands on toolfold.wire)
    openapi/         OpenAPI documents, each operation a tool
    functions.py     Python functions                        (function_tool.py, docstrings.py)
    definitions.py   tool objects as a server sent them
    factory.py       the right kind for a server's configuration, its secrets looked up first
    pool.py          all of them: opened side by side, restarted, closed (supervisor.py: one server of it)
    refresh.py       the pool of a gateway, its first build, and lists that stay fresh
    passthrough.py   everything of one server but its tools, for the transparent profile

An upstream knows nothing of catalogues and policies: what it needs of those above is handed to it.
"""
