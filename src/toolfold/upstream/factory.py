"""Makes the right kind of upstream for a server's configuration. Each kind is imported only when it is needed."""

from toolfold.types import ServerSpec
from toolfold.upstream.base import Hooks, Upstream


def make_upstream(spec: ServerSpec, hooks: Hooks) -> Upstream:
    """An upstream that is not open yet."""
    match spec.transport:
        case "functions":
            from toolfold.upstream.functions import FunctionsUpstream

            return FunctionsUpstream(spec)
        case "openapi":
            from toolfold.upstream.openapi import OpenApiUpstream

            return OpenApiUpstream(spec, hooks.wire)
        case "stdio" | "http":
            from toolfold.upstream.mcp import McpUpstream

            return McpUpstream(spec, hooks)
