"""Upstreams: servers of tools, of every kind, behind one contract.

    base.py         the contract: open, listing, call, aclose
    mcp.py          MCP servers, over stdio and HTTP        (stands on toolfold.wire)
    openapi/        OpenAPI documents, each operation a tool
    functions.py    Python functions                        (signatures.py, hints.py, docstrings.py)
    definitions.py  one tool object as a server sent it, read kindly
    making.py       the right kind for a server's configuration
    pool.py         all of them: opened side by side, restarted, closed (slot.py: one server's place in it)

An upstream knows nothing of catalogues and callers.
"""
