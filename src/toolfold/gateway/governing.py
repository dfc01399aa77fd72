"""Who may see and call what, what is trusted, and what is kept of each step: the policies joined with the gateway.

For a caller whose policy lets everything through this costs a look into a dictionary. Anybody else gets a `Sight`.
Above: `Gateway`, whose operations go through `told` and whose calls through `wraps`. Below: the policy stage, the
trail, telemetry.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from toolfold.catalogue.catalogue import batches
from toolfold.catalogue.visible import Shown
from toolfold.config import Settings
from toolfold.config.callers import LOCAL_NAME
from toolfold.errors import ConfigError, ToolfoldError
from toolfold.events import Event, Events
from toolfold.gateway.sight import Scene, Sight
from toolfold.gateway.steps import StepName
from toolfold.gateway.trail import Trail
from toolfold.policy.rules import DEFAULT, Rules, rules_of, shown_to
from toolfold.policy.trusting import Reviewed, Truster
from toolfold.storage.base import Store, View
from toolfold.telemetry.metrics import Metrics
from toolfold.types import LOCAL, Caller, Tool, ToolDefinition

if TYPE_CHECKING:
    from toolfold.calls import Request, Wrap
    from toolfold.calls.auditing import Teller
    from toolfold.gateway.savings import Savings
    from toolfold.telemetry.spans import Tracing

__all__ = ["Governor", "Reviewed"]

T = TypeVar("T")

SIGHTS = 256
STAMP_S = 1.0
"""How long it may take until an acceptance from another process is noticed."""
ACTIVE_S = 300.0

log = logging.getLogger("toolfold.gateway")


class Governor:
    """The policies, trust, trail and telemetry of one gateway."""

    def __init__(self, whole: Scene, store: Store, settings: Settings, events: Events) -> None:
        self._whole = whole
        self._settings = settings
        self._events = events
        self._rules = rules_of(settings.policies)
        self._local = next((entry for entry in settings.callers if entry.name == LOCAL_NAME), None)
        self._guards_groups = any(rule.access for rule in settings.rules)
        self._holds = settings.trust.hold_changed or not settings.trust.accept_new
        self._open = {name: self._lets_all_through(rules) for name, rules in self._rules.items()}
        self._sights: dict[tuple[str, tuple[str, ...]], Sight] = {}
        self._stamp: tuple[float, bytes] = (0.0, b"")
        self._reviewed: tuple[int, Reviewed] | None = None
        self._reported: set[tuple[str, str]] = set()
        self._tasks: set[asyncio.Task[object]] = set()
        self._unsubscribe = events.subscribe(self._heard, only="catalogue.updated")
        self.truster = Truster(store, settings.trust)
        self.metrics = Metrics()
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
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.trail is not None:
            await self.trail.aclose()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)

    def new_trail(self) -> Trail:
        """A trail over the store: for reading what was kept where nothing is kept any more."""
        return Trail(self._store, self._settings, self._learned)

    async def savings(self) -> "Savings":
        """The tokens that all definitions would have cost, against what was shown."""
        from toolfold.gateway.savings import definition_tokens, savings_of

        steps = await (self.trail or self.new_trail()).steps()
        return savings_of(steps, *await definition_tokens(self._whole.catalogue, self._store))

    def standing(self, caller: Caller) -> Caller:
        """The caller with its policy: what `[callers.local]` says holds for whoever runs the gateway."""
        if self._local is None or caller.name != LOCAL_NAME or caller.policy != DEFAULT or caller.groups:
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

    def _sight(self, rules: Rules, groups: tuple[str, ...]) -> Sight:
        async def compiled(view: View) -> Shown:
            tools = [tool async for batch in batches(view) for tool in batch]
            reviewed = await self._review(view.generation, tools) if self._holds or rules.asks_flags else Reviewed()
            nodes = await view.nodes()
            return await asyncio.to_thread(
                shown_to, rules, groups, tools, nodes, flags=reviewed.flags, held=reviewed.held
            )

        return Sight(self._whole, compiled, self._trust_stamp)

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
        await self.begun()
        trail = self.trail
        if trail is not None and trail.chains.get(caller.name, caller.session) is None:
            await trail.recall(caller)
        describer = self.scene(caller).describer
        try:
            return await describer.tool(tool_id)
        except ToolfoldError as error:
            self.metrics.stepped("call", error.code)
            if trail is not None:
                trail.refused(caller, tool_id, error)
            raise

    def wraps(self) -> "tuple[list[Wrap], Wrap, Wrap]":
        """What goes around a call: outermost those that keep it, then authorising it; and confirming it, further in."""
        from toolfold.calls.auditing import audited
        from toolfold.calls.authorising import authorised
        from toolfold.calls.confirming import confirmed

        tellers: list[Teller] = [self.metrics.called]
        if self.trail is not None:
            tellers.append(self.trail.called)
        outer = [audited(tellers)]
        if self._tracing is not None:
            outer.append(self._tracing.wrap)
        return outer, authorised(self._authorise), confirmed(self._wants_confirmation, self._shown_arguments)

    def _authorise(self, request: "Request") -> Awaitable[None] | None:
        scene = self.scene(request.caller)
        return None if scene is self._whole else self._look_up(scene, request.tool.tool_id)

    async def _look_up(self, scene: Scene, tool_id: str) -> None:
        await scene.describer.tool(tool_id)

    def _wants_confirmation(self, request: "Request") -> bool:
        rules = self._rules[self.standing(request.caller).policy]
        if rules.confirms_nothing:
            return False
        known = self._reviewed[1].flags if self._reviewed is not None else {}
        return rules.confirms(request.tool, known.get(request.tool.fingerprint, ()))

    def _shown_arguments(self, request: "Request") -> str:
        from toolfold.gateway.shapes import shown_arguments

        return shown_arguments(self._settings, request.arguments)

    async def review(self) -> Reviewed:
        """Looks at the whole catalogue: what changed since it was accepted, and what its texts hide."""
        async with self._whole.catalogue.snapshot() as view:
            tools = [tool async for batch in batches(view) for tool in batch]
            return await self._review(view.generation, tools)

    async def _review(self, generation: int, tools: list[Tool]) -> Reviewed:
        found = await self.truster.review(tools)
        self._reviewed = (generation, found)
        for standing in found.standings:
            once = (standing.tool_id, standing.fingerprint)
            if standing.state == "accepted" or once in self._reported:
                continue
            self._reported.add(once)
            kinds = [flag.kind for flag in standing.flags]
            self._events.emit(f"trust.{standing.state}", tool_id=standing.tool_id, held=standing.held, flags=kinds)
        return found

    async def accept(self, tool_ids: Iterable[str] | None = None) -> list[str]:
        """Takes tools as they are now, by id or all of them, and gives the ids of those that were not accepted so."""
        catalogue = self._whole.catalogue
        if tool_ids is None:
            async with catalogue.snapshot() as view:
                tools = [tool async for batch in batches(view) for tool in batch]
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
        """After a server was read again, its tools are looked at, without anybody waiting for it."""
        del event
        task = asyncio.ensure_future(self.review())
        self._tasks.add(task)
        task.add_done_callback(self._looked)

    def _looked(self, task: "asyncio.Task[object]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("looking at changed tools failed", exc_info=task.exception())

    async def _learned(self, query: str, tool_id: str) -> object:
        return await self._whole.finder.learn(query, tool_id)

    async def render_metrics(self) -> tuple[str, bytes]:
        """The content type and text of `/metrics`."""
        generations = await self._whole.catalogue.generations()
        gauges: dict[str, float] = {"tools": 0, "servers": 0}
        if generations:
            gauges.update(tools=generations[-1].tools, servers=generations[-1].servers)
        if self.trail is not None:
            gauges.update(sessions=self.trail.chains.active(time.time() - ACTIVE_S), audit_dropped=self.trail.dropped)
        if self._reviewed is not None:
            gauges["tools_held"] = len(self._reviewed[1].held)
        return self.metrics.render(gauges)


def _tracing(settings: Settings) -> "Tracing | None":
    if not settings.telemetry.traces:
        return None
    from toolfold.telemetry.spans import Tracing

    return Tracing(endpoint=settings.telemetry.endpoint)
