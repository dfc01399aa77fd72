"""An upstream whose secrets are looked up when it is opened, and not before.

A missing secret is then the trouble of the one server that needs it, and a keyring that asks a person holds up nobody
else. It wraps whatever `make_upstream` makes; the pool stands above.
"""

from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from msgspec import Raw

from toolfold.config import resolve
from toolfold.errors import SecretNotFound, ServerClosed, ServerUnavailable
from toolfold.types import Call, Listing, Outcome, ServerInfo, ServerSpec
from toolfold.upstream.base import (
    Hooks,
    OnInput,
    OnProgress,
    PassthroughRequest,
    PassthroughUpstream,
    Upstream,
    as_passthrough,
)
from toolfold.upstream.factory import make_upstream
from toolfold.upstream.threads import run_in_thread


class UpstreamWithSecrets:
    """Fills the references of `spec` in, then is the upstream that the filled spec describes. `on_secrets` is told what
    was looked up, before anything is sent."""

    def __init__(
        self, spec: ServerSpec, hooks: Hooks, *, on_secrets: Callable[[Iterable[str]], None] | None = None
    ) -> None:
        self._spec = spec
        self._hooks = hooks
        self._on_secrets = on_secrets
        self._inner: Upstream | None = None

    @property
    def spec(self) -> ServerSpec:
        return self._spec

    @property
    def pid(self) -> int | None:
        return self._inner.pid if self._inner is not None else None

    async def open(self) -> ServerInfo:
        try:
            filled = await run_in_thread(partial(resolve, self._spec))
        except SecretNotFound as error:
            raise ServerUnavailable(
                error.message, server=self._spec.name, hints=error.hints, next_action=error.next_action
            ) from error
        if self._on_secrets is not None:
            self._on_secrets(filled.secrets)
        inner = make_upstream(filled, self._hooks)
        info = await inner.open()
        self._inner = inner
        return info

    def _open_one(self) -> Upstream:
        if self._inner is None:
            raise ServerClosed(
                f"{self._spec.name} is not open", server=self._spec.name, next_action="Open it and call again."
            )
        return self._inner

    async def listing(self) -> Listing:
        return await self._open_one().listing()

    def call(
        self, call: Call, *, on_progress: OnProgress | None = None, on_input: OnInput | None = None
    ) -> Coroutine[Any, Any, Outcome]:
        return self._open_one().call(call, on_progress=on_progress, on_input=on_input)

    def _passing(self) -> PassthroughUpstream:
        inner = as_passthrough(self._open_one())
        if inner is None:
            raise ServerUnavailable(
                f"{self._spec.name} speaks no MCP, so only its tools can be called", server=self._spec.name
            )
        return inner

    @property
    def passes_on(self) -> bool:
        return as_passthrough(self._inner) is not None

    @property
    def capabilities(self) -> Raw:
        return self._passing().capabilities

    @property
    def info(self) -> ServerInfo:
        return self._passing().info

    async def request(
        self, question: PassthroughRequest, *, on_progress: OnProgress | None = None, on_input: OnInput | None = None
    ) -> Raw:
        return await self._passing().request(question, on_progress=on_progress, on_input=on_input)

    async def notify(self, method: str, params: Raw) -> None:
        await self._passing().notify(method, params)

    def subscribe(self, notifications: bytes, changed: tuple[str, ...]) -> Callable[[], None] | None:
        return self._passing().subscribe(notifications, changed)

    async def aclose(self) -> None:
        inner, self._inner = self._inner, None
        if inner is not None:
            await inner.aclose()
