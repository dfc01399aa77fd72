"""Who may see and call what, what is trusted, and what is kept of each step: the policies joined with the gateway.

For a caller whose policy lets everything through this costs a look into a dictionary. Anybody else gets a `Sight`.
Above: `Gateway`, whose operations go through `told` and whose calls through `wraps`. Below: the policy stage, the
trail, telemetry.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from toolfold.audit.log import AuditLog
from toolfold.audit.record import StepName
from toolfold.audit.redaction import Redactor, printable_arguments
from toolfold.catalogue.catalogue import tool_batches
from toolfold.config import Settings
from toolfold.config.callers import LOCAL_NAME
from toolfold.errors import ConfigError, ToolfoldError
from toolfold.events import Event, Events
from toolfold.policy.rules import DEFAULT_POLICY, Rules, compile_policies, visible_to
from toolfold.policy.trust import TrustReview, TrustStore
from toolfold.policy.view import RestrictedScene, Scene, VisibleCatalogue
from toolfold.storage.base import Snapshot, Store
from toolfold.telemetry.metrics import Metrics
from toolfold.types import LOCAL, Caller, Tool, ToolDefinition

if TYPE_CHECKING:
    from toolfold.audit.middleware import CallObserver
    from toolfold.audit.savings import Savings
    from toolfold.calls import CallRequest, Check, Middleware
    from toolfold.telemetry.spans import Tracing

__all__ = ["Governor", "TrustReview"]

T = TypeVar("T")

SIGHTS = 256
STAMP_S = 1.0
"""How long it may take until an acceptance from another process is noticed."""
ACTIVE_S = 300.0

log = logging.getLogger("toolfold.gateway")


class Governor:
    """The policies, trust, trail and telemetry of one gateway."""

    def __init__(
        self, whole: Scene, store: Store, settings: Settings, events: Events, secrets: Collection[str] = ()
    ) -> None:
        self._whole = whole
        self._settings = settings
        self._events = events
        self._rules = compile_policies(settings.policies)
        self._local = next((entry for entry in settings.callers if entry.name == LOCAL_NAME), None)
        self._guards_groups = any(rule.access for rule in settings.rules)
        self._holds = settings.trust.hold_changed or not settings.trust.accept_new
        self._open = {name: self._lets_all_through(rules) for name, rules in self._rules.items()}
        self._sights: dict[tuple[str, tuple[str, ...]], RestrictedScene] = {}
        self._stamp: tuple[float, bytes] = (0.0, b"")
        self._reviewed: tuple[tuple[int, bytes], TrustReview] = ((0, b""), TrustReview())
        self._reported: set[tuple[str, str]] = set()
        self._reviewing = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None
        self._look_again = False
        self._unsubscribe = events.subscribe(self._heard, only="catalogue.updated")
        self.truster = TrustStore(store, settings.trust)
        self.metrics = Metrics()
        self._settle: list[Callable[[], None]] = []
        self._secrets = secrets
        self.first_build: asyncio.Future[None] | None = None
        """Where there is no catalogue yet: done when there is one. Whoever asks for a tool waits for it."""
        self._store = store
        self.trail = self.new_trail() if settings.audit.enabled else None
        self._tracing = _tracing(settings)

    def _lets_all_through(self, rules: Rules) -> bool:
        return rules.allows_everything and not (self._guards_groups or self._holds or rules.asks_flags)

    async def aclose(self) -> None:
        """Writes what is waiting, and ends what still runs."""
        self._unsubscribe()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait((self._looking,))
        if self.trail is not None:
            await self.trail.aclose()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)

    def new_trail(self) -> AuditLog:
        """A trail over the store: for reading what was kept where nothing is kept any more."""
        return AuditLog(self._store, self._settings, lambda: self.masker, self._learned, settle=self.settle)

    def settle(self) -> None:
        """Whoever reads what was kept and counted sees every call that is over."""
        for settle in self._settle:
            settle()

    @cached_property
    def masker(self) -> Redactor:
        """Takes out of texts what the configuration keeps secret, and what was looked up for servers since."""
        return Redactor(self._settings, os.environ.items(), self._secrets)

    async def savings(self) -> "Savings":
        """The tokens that all definitions would have cost, against what was shown."""
        from toolfold.audit.savings import compute_savings, count_definitions

        steps = await (self.trail or self.new_trail()).steps()
        return compute_savings(steps, *await count_definitions(self._whole.catalogue, self._store))

    def standing(self, caller: Caller) -> Caller:
        """The caller with its policy: what `[callers.local]` says holds for whoever runs the gateway."""
        if self._local is None or caller.name != LOCAL_NAME or caller.policy != DEFAULT_POLICY or caller.groups:
            return caller
        return replace(caller, policy=self._local.policy, groups=self._local.groups)

    def scene(self, caller: Caller = LOCAL) -> Scene:
        """What this caller works with."""
        caller = self.standing(caller)
        if self._is_open(caller):
            return self._whole
        key = (caller.policy, tuple(sorted(caller.groups)))
        known = self._sights.get(key)
        if known is None:
            while len(self._sights) >= SIGHTS:
                self._sights.pop(next(iter(self._sights)))
            known = self._sights[key] = self._sight(self._rules[caller.policy], key[1])
        return known

    def _is_open(self, caller: Caller) -> bool:
        found = self._open.get(caller.policy)
        if found is None:
            raise ConfigError(
                f"there is no policy {caller.policy[:80]!r}",
                hints=sorted(self._rules),
                next_action="name one of the policies in hints, or add a [policy.NAME] table to the configuration",
            )
        return found

    def _sight(self, rules: Rules, groups: tuple[str, ...]) -> RestrictedScene:
        async def compiled(view: Snapshot) -> VisibleCatalogue:
            tools = [tool async for batch in tool_batches(view) for tool in batch]
            reviewed = await self._review(view.generation, tools) if self._holds or rules.asks_flags else TrustReview()
            nodes = await view.nodes()
            return await asyncio.to_thread(
                visible_to, rules, groups, tools, nodes, flags=reviewed.flags, held=reviewed.held
            )

        return RestrictedScene(self._whole, compiled, self._trust_stamp)

    async def begun(self) -> None:
        """Waits for the first catalogue where it is being made right now."""
        if self.first_build is not None:
            await asyncio.wait((self.first_build,))

    async def told(self, name: StepName, caller: Caller, do: Callable[[Scene], Awaitable[T]], **asked: Any) -> T:
        """Runs a step of finding a tool in the caller's scene, and keeps it."""
        scene = self.scene(caller)

        async def work() -> T:
            await self.begun()
            return await self._counted(name, do(scene))

        with contextlib.nullcontext() if self._tracing is None else self._tracing.step(name, caller, **asked):
            return await (work() if self.trail is None else self.trail.told(name, caller, work, **asked))

    async def _counted(self, name: str, work: Awaitable[T]) -> T:
        code = ""
        try:
            return await work
        except ToolfoldError as error:
            code = error.code
            raise
        finally:
            self.metrics.stepped(name, code)

    async def tool(self, tool_id: str, caller: Caller) -> Tool:
        """The tool that a call is about. A call of one that is not there is kept, too."""
        if self.first_build is not None:
            await self.begun()
        trail = self.trail
        if trail is not None and trail.chains.get(caller.name, caller.session) is None:
            await trail.recall(caller)
        describer = self.scene(caller).describer
        try:
            return await describer.tool(tool_id)
        except ToolfoldError as error:
            self.refused(caller, tool_id, error)
            raise

    def refused(self, caller: Caller, tool_id: str, error: ToolfoldError) -> None:
        """Keeps a call that ended before it was one."""
        self.metrics.stepped("call", error.code)
        if self.trail is not None:
            self.trail.refused(caller, tool_id, error)

    def wraps(self) -> "tuple[list[Middleware], Check, Check]":
        """What goes around a call: outermost those that keep it; and what is checked before it: whether it is allowed,
        and, further in, whether somebody has to confirm it."""
        from toolfold.audit.middleware import AuditMiddleware
        from toolfold.calls.confirm import confirmation

        tellers: list[CallObserver] = [self.metrics.called]
        if self.trail is not None:
            tellers.append(self.trail.called)
        auditor = AuditMiddleware(tellers, self._events)
        self._settle.append(auditor.settle)
        outer: list[Middleware] = [auditor.wrap]
        if self._tracing is not None:
            outer.append(self._tracing.wrap)
        return outer, self._authorise, confirmation(self._wants_confirmation, self._shown_arguments)

    def _authorise(self, request: "CallRequest") -> "Awaitable[CallRequest] | None":
        """Refuses what the caller may not see, whoever built the request and however the tool was found."""
        scene = self.scene(request.caller)
        return None if scene is self._whole else self._looked_up(scene, request)

    async def _looked_up(self, scene: Scene, request: "CallRequest") -> "CallRequest":
        await scene.describer.tool(request.tool.tool_id)
        return request

    def _wants_confirmation(self, request: "CallRequest") -> bool:
        rules = self._rules[request.caller.policy]
        if rules.confirms_nothing:
            return False
        return rules.confirms(request.tool, self._reviewed[1].flags.get(request.tool.fingerprint, ()))

    def _shown_arguments(self, request: "CallRequest") -> str:
        return printable_arguments(self.masker, request.arguments)

    async def review(self) -> TrustReview:
        """Looks at the whole catalogue: what changed since it was accepted, and what its texts hide."""
        async with self._whole.catalogue.snapshot() as view:
            tools = [tool async for batch in tool_batches(view) for tool in batch]
            return await self._review(view.generation, tools)

    async def _review(self, generation: int, tools: list[Tool]) -> TrustReview:
        async with self._reviewing:  # whoever comes while another looks takes what that one found
            state = (generation, await self.truster.stamp())
            if state == self._reviewed[0]:
                return self._reviewed[1]
            found = await self.truster.review(tools)
            if generation >= self._reviewed[0][0]:
                self._reviewed = (state, found)
        self._report(found)
        return found

    def _report(self, found: TrustReview) -> None:
        """Tells of each tool that changed or is new, once."""
        for standing in found.standings:
            once = (standing.tool_id, standing.fingerprint)
            if standing.state == "accepted" or once in self._reported:
                continue
            self._reported.add(once)
            kinds = [flag.kind for flag in standing.flags]
            self._events.emit(f"trust.{standing.state}", tool_id=standing.tool_id, held=standing.held, flags=kinds)

    async def accept(self, tool_ids: Iterable[str] | None = None) -> list[str]:
        """Takes tools as they are now, by id or all of them, and gives the ids of those that were not accepted so."""
        catalogue = self._whole.catalogue
        if tool_ids is None:
            async with catalogue.snapshot() as view:
                tools = [tool async for batch in tool_batches(view) for tool in batch]
        else:
            tools = [await catalogue.tool(tool_id) for tool_id in tool_ids]
        done = await self.truster.accept(tools)
        self._stamp = (0.0, b"")
        for tool_id in done:
            self._events.emit("trust.accepted", tool_id=tool_id)
        return done

    async def definitions(self, tool_id: str) -> tuple[Tool, ToolDefinition | None]:
        """A tool as it is, whoever may see it, and its definition as it was accepted, while that is kept."""
        catalogue = self._whole.catalogue
        tool = await catalogue.tool(tool_id)
        accepted = await self.truster.accepted(tool)
        kept = {version.fingerprint: version.definition for version in await catalogue.versions(tool.tool_id)}
        return tool, kept.get(accepted)

    async def _trust_stamp(self) -> bytes:
        if not self._holds:
            return b""
        now = time.monotonic()
        if now - self._stamp[0] > STAMP_S:
            self._stamp = (now, await self.truster.stamp())
        return self._stamp[1]

    def _heard(self, event: Event) -> None:
        """After a server was read again, its tools are looked at, without anybody waiting for it. Many servers that are
        read at once are looked at together."""
        del event
        self._look_again = True
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look())

    async def _look(self) -> None:
        try:
            while self._look_again:
                self._look_again = False
                await self.review()
        except ToolfoldError as error:
            log.warning("changed tools could not be looked at: %s", error.message)
        finally:
            self._looking = None

    async def _learned(self, query: str, tool_id: str) -> object:
        return await self._whole.finder.learn(query, tool_id)

    async def render_metrics(self) -> tuple[str, bytes]:
        """The content type and text of `/metrics`."""
        self.settle()
        generations = await self._whole.catalogue.generations()
        gauges: dict[str, float] = {"tools": 0, "servers": 0}
        if generations:
            gauges.update(tools=generations[-1].tools, servers=generations[-1].servers)
        if self.trail is not None:
            gauges.update(sessions=self.trail.chains.active(time.time() - ACTIVE_S), audit_dropped=self.trail.dropped)
        gauges["tools_held"] = len(self._reviewed[1].held)
        return self.metrics.render(gauges)


def _tracing(settings: Settings) -> "Tracing | None":
    if not settings.telemetry.traces:
        return None
    from toolfold.telemetry.spans import Tracing

    return Tracing(endpoint=settings.telemetry.endpoint)
