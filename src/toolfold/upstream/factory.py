"""Makes the right kind of upstream for a server's configuration. Each kind is imported only when it is needed.

Secrets are looked up when a server is opened, and not before: a missing one then fails only the server that needs it,
and a keyring that asks a person holds up nobody else. Above: the pool.
"""

from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from toolfold.config import resolve
from toolfold.errors import SecretNotFound, ServerClosed, ServerUnavailable
from toolfold.types import CallContext, Listing, Outcome, ServerInfo, ServerSpec, ToolCall
from toolfold.upstream.base import Hooks, PassthroughUpstream, Upstream, as_passthrough
from toolfold.upstream.threads import run_in_thread


def make_upstream(spec: ServerSpec, hooks: Hooks) -> Upstream:
    """An upstream that is not open yet."""
    match spec.transport:
        case "functions":
            from toolfold.upstream.functions import FunctionsUpstream

            return FunctionsUpstream(spec, default_timeout_s=hooks.wire.request_timeout_s)
        case "openapi":
            from toolfold.upstream.openapi import OpenApiUpstream

            return OpenApiUpstream(spec, hooks.wire, hooks.vault, hooks.caller)
        case "skills":
            from toolfold.upstream.skill_folder import SkillFolder

            return SkillFolder(spec)
        case "stdio" | "http":
            from toolfold.upstream.mcp import McpUpstream

            return McpUpstream(spec, hooks)


class UpstreamWithSecrets:
    """Fills the references of `spec` in, then delegates to the upstream that the filled spec describes.

    `on_secrets` gets the values that were looked up, before anything is sent.
    """

    def __init__(
        self, spec: ServerSpec, hooks: Hooks, *, on_secrets: Callable[[Iterable[str]], None] | None = None
    ) -> None:
        self.spec = spec
        self._hooks = hooks
        self._on_secrets = on_secrets
        self._inner: Upstream | None = None

    @property
    def pid(self) -> int | None:
        return self._inner.pid if self._inner is not None else None

    @property
    def passthrough(self) -> PassthroughUpstream | None:
        return as_passthrough(self._inner)

    @property
    def outdated(self) -> bool:
        return getattr(self._inner, "outdated", False)

    async def open(self) -> ServerInfo:
        try:
            filled = await run_in_thread(partial(resolve, self.spec))
        except SecretNotFound as error:
            raise ServerUnavailable(
                error.message, server=self.spec.name, hints=error.hints, next_action=error.next_action
            ) from error
        if self._on_secrets is not None:
            self._on_secrets(filled.secrets)
        inner = make_upstream(filled, self._hooks)
        info = await inner.open()
        self._inner = inner
        return info

    async def listing(self) -> Listing:
        return await self._opened().listing()

    def call(self, call: ToolCall, context: CallContext) -> Coroutine[Any, Any, Outcome]:
        # The inner coroutine itself, so that the wrapper adds no frame to every call.
        return self._opened().call(call, context)

    def _opened(self) -> Upstream:
        if self._inner is None:
            raise ServerClosed(
                f"{self.spec.name} is not open", server=self.spec.name, next_action="Open it and call again."
            )
        return self._inner

    async def aclose(self) -> None:
        inner, self._inner = self._inner, None
        if inner is not None:
            await inner.aclose()
