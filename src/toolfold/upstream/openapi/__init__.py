"""OpenAPI documents as upstreams: each operation a tool.

    document ─► (swagger) ─► operations ◄─ schemas        what the tools are
                                 │
              arguments ─► requests ─► HTTP ─► responses   what a call does

`OpenApiUpstream` in `upstream.py` composes them and is the only name the layers above use.

Decided here: every parameter is a property of the tool's arguments under its own name (a second one of that name gets
its place in front: `query_id`), and the request body always stands whole under `body`. One rule for all bodies keeps
references, unions and required fields exactly as the document says them.
"""

from toolfold.upstream.openapi.upstream import OpenApiUpstream

__all__ = ["OpenApiUpstream"]
