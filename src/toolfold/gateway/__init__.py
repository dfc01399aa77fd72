"""The gateway: every stage composed into the one public object, async. Faces stand above it and translate.

It owns the store, the catalogue and the pool of servers of one configuration. Reading the catalogue opens no server
and loads nothing of the connecting side; building and calling do.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Self

from msgspec import Raw

from toolfold.catalogue.catalogue import Branch, Catalogue, Tree
from toolfold.config import Settings
from toolfold.disclosure.expansions import Expansions
from toolfold.errors import StoreError, UpstreamError
from toolfold.events import Events
from toolfold.gateway.looking import Looking
from toolfold.search.service import SearchService
from toolfold.storage.factory import create_store, placement_with_overrides, store_path
from toolfold.text import replace_surrogates
from toolfold.types import LOCAL, Caller, Listing, Outcome, ServerState
from toolfold.upstream.refresh import FRESHNESS_CHECK_S, UpstreamManager

if TYPE_CHECKING:
    import asyncio

    from toolfold import BlockingGateway
    from toolfold.agent.agent import Agent
    from toolfold.calls import Handler
    from toolfold.catalogue.build import Build as Build
    from toolfold.disclosure.describer import Describer
    from toolfold.live.manager import LiveManager, LiveSession
    from toolfold.outputs.service import OutputService
    from toolfold.policy.access import Governor
    from toolfold.scripts.runner import ScriptResult, ScriptRunner
    from toolfold.storage.base import Store
    from toolfold.upstream.base import Upstream
    from toolfold.upstream.pool import Pool
    from toolfold.wire.types import OnInput, OnProgress

__all__ = ["Branch", "Gateway", "OnServer", "Tree"]

OnServer = Callable[[str, "Listing | UpstreamError"], None]
"""Told each server of a build as it is done: its listing, or why there is none."""


class Gateway(Looking):
    """All tools of one configuration. Use it as `async with Gateway(Settings.load()) as gateway`.

    `upstreams` are further sources that a program brings itself, such as its own functions. With `create=False` it
    opens only a catalogue that is there, and raises `NotBuilt` otherwise. With `keep_outputs` what is stored for the
    local caller outlives the gateway, until its time is over.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        upstreams: "Iterable[Upstream]" = (),
        store: "Store | None" = None,
        create: bool = True,
        keep_outputs: bool = False,
    ) -> None:
        self.settings = settings if settings is not None else Settings()
        self.events = Events()
        self.expansions = Expansions()
        self._ready_made = tuple(upstreams)
        self._given_store = store
        self._create = create
        self._resources = AsyncExitStack()
        self._store: Store | None = None
        self._catalogue: Catalogue | None = None
        self._upstreams: UpstreamManager | None = None
        self._finder: SearchService | None = None
        self._describer: Describer | None = None
        self._calls: Handler | None = None
        self._scripts: ScriptRunner | None = None
        self._governor: Governor | None = None
        self._outputs: OutputService | None = None
        self._keep_outputs = keep_outputs
        self._check_s = FRESHNESS_CHECK_S

    async def __aenter__(self) -> Self:
        store = self._given_store if self._given_store is not None else create_store(self.settings, self._create)
        self._store = await self._resources.enter_async_context(store)
        self._catalogue = Catalogue(
            store, place=placement_with_overrides(self.settings.ontology_file), rules=self.settings.rules
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends every server and lets go of the store, each even where ending another failed. Safe to call twice."""
        async with AsyncExitStack() as closing:  # the last one in is closed first
            closing.push_async_callback(self._resources.aclose)
            if self._governor is not None:
                closing.callback(setattr, self, "_governor", None)  # after it was closed: calls that end need it
                closing.push_async_callback(self._governor.aclose)
            if self._describer is not None:
                closing.push_async_callback(self._describer.observer.settled)
            for part in (self._outputs, self._upstreams, self._scripts):
                if part is not None:
                    closing.push_async_callback(part.aclose)

    def blocking(self) -> "BlockingGateway":
        """The same for programs without `async`: `with Gateway(settings).blocking() as gateway`."""
        from toolfold import BlockingGateway  # by its public name: it stands above the gateway and is made from it

        return BlockingGateway(gateway=self)

    @property
    def store_path(self) -> FilePath:
        """The catalogue's file."""
        return store_path(self.settings)

    @property
    def registry_path(self) -> FilePath:
        return self.settings.home / "tool_registry.json"

    @property
    def catalogue(self) -> Catalogue:
        if self._catalogue is None:
            raise _not_open()
        return self._catalogue

    @property
    def finder(self) -> SearchService:
        """Search, opened with the first request."""
        if self._finder is None:
            self._finder = SearchService(
                self.catalogue,
                self._open_store(),
                self.settings.home / "search",
                self.events,
                learns=self.settings.audit.learn,
            )
        return self._finder

    @property
    def describer(self) -> "Describer":
        """What may be read of one tool."""
        if self._describer is None:
            from toolfold.disclosure.describer import Describer

            self._describer = Describer(self.catalogue, self._open_store(), self.events, self.finder.ids_like)
            self._describer.scenes = self.governor.scene
        return self._describer

    @property
    def governor(self) -> "Governor":
        """Policies, trust, the audit trail and telemetry."""
        if self._governor is None:
            from toolfold.policy.access import Governor

            self._governor = Governor(self, self._open_store(), self.settings, self.events, self.upstreams.secrets)
        return self._governor

    @property
    def upstreams(self) -> UpstreamManager:
        """The servers, none of them opened by this."""
        if self._upstreams is None:
            self._upstreams = UpstreamManager(
                self.settings, self._ready_made, self._open_store(), self.catalogue, self.events, check_s=self._check_s
            )
        return self._upstreams

    def _open_store(self) -> "Store":
        if self._store is None:
            raise _not_open()
        return self._store

    async def build(
        self,
        servers: Sequence[str] | None = None,
        *,
        registry: FilePath | None = None,
        on_server: OnServer | None = None,
    ) -> "Build":
        """Connects to all servers, or those named, and writes the catalogue and `tool_registry.json`.

        A server that fails is told to `on_server` and noted in the report; its earlier tools stay. Naming servers
        leaves all others as they are.
        """
        pool = await self.pool()
        listings: list[Listing] = []
        failures: dict[str, str] = {}
        with self.upstreams.building():
            async for name, found in pool.listings(servers):
                if isinstance(found, UpstreamError):
                    failures[name] = found.message
                else:
                    listings.append(found)
                if on_server is not None:
                    on_server(name, found)
            if servers is None:
                build = await self.catalogue.rebuild(listings, failures=failures)
            else:
                build = await self.catalogue.update(listings, failures=failures)
            await self.catalogue.write_registry(registry or self.registry_path)
            await self.governor.review()
            self.events.emit(
                "catalogue.built", generation=build.generation, tools=build.report.tools, changes=len(build.changes)
            )
        return build

    def begin(self) -> "asyncio.Task[None]":
        """Reads all servers in the background where the catalogue is missing, or is not of these servers. Whoever asks
        for tools before there is any catalogue waits for it."""
        from toolfold.upstream.initial_build import start_initial_build

        return start_initial_build(self, self.governor, self._open_store())

    async def call_tool(
        self,
        tool_id: str,
        args: Mapping[str, Any] | Raw,
        *,
        expect_version: int | None = None,
        timeout_s: float | None = None,
        caller: Caller = LOCAL,
        meta: Raw | None = None,
        on_progress: "OnProgress | None" = None,
        on_input: "OnInput | None" = None,
        capabilities: Raw | None = None,
        whole: bool = False,
        confirmed: bool = False,
        max_response: tuple[int | None, int | None] = (None, None),
    ) -> Outcome:
        """Calls a tool with arguments that fit its schema. The outcome is the server's result, undecoded.

        `expect_version` is the version that `expand_tool` showed: a tool that changed since raises `ToolChanged`.
        `whole` is for programs: a result too large for a model is then given as it is. `confirmed` is for faces with a
        person in front of them who has said yes. `max_response` are a caller's own limits in bytes and tokens.
        """
        from toolfold.gateway.calling import CallRequest, encoded

        caller = self.governor.standing(caller)
        tool = await self.governor.tool(replace_surrogates(tool_id), caller)
        request = CallRequest(
            tool=tool,
            arguments=encoded(tool, args),
            meta=meta,
            timeout_s=timeout_s,
            on_progress=on_progress,
            on_input=on_input,
            caller=caller,
            capabilities=capabilities,
            whole=whole,
            confirmed=confirmed,
            max_response=max_response,
            expect_version=expect_version,
        )
        return await self.calls(request)

    @property
    def calls(self) -> "Handler":
        """The stack of handlers that every call goes through."""
        if self._calls is None:
            from toolfold.gateway.calling import call_stack

            longest = self.settings.limits.call_timeout_s
            self._calls = call_stack(self.pool, self.describer, longest, self.governor, self.outputs)
        return self._calls

    @property
    def outputs(self) -> "OutputService":
        """Results that were too large for a model. `await gateway.outputs(caller)` lists those of a caller."""
        if self._outputs is None:
            from toolfold.outputs.service import OutputService

            self._outputs = OutputService(self.settings, self.events, keep=self._keep_outputs)
            self._outputs.start()
        return self._outputs

    async def tool_output(self, handle: str, extract: str, *, mode: str = "auto", caller: Caller = LOCAL) -> str:
        """Answers a request from a stored output, as plain text. Raises `UnknownHandle`."""
        return await self.outputs.extract(handle, extract, mode, caller)

    async def end_session(self, caller: Caller) -> None:
        """A client's session is over: what was kept for it alone goes. The gateway's own session ends with it."""
        if not caller.session:
            return
        if self._outputs is not None:
            await self._outputs.end(caller)
        if "living" in self.__dict__:
            await self.living.sessions.end(caller)

    @property
    def scripts(self) -> "ScriptRunner":
        """Scripts that declare their tools in plain words, and the confined processes they run in."""
        if self._scripts is None:
            from toolfold.scripts.runner import ScriptRunner

            self._scripts = ScriptRunner(self)
        return self._scripts

    async def run_script(self, code: str | bytes, *, caller: Caller = LOCAL, **options: Any) -> "ScriptResult":
        """Runs a script in the sandbox: see `Scripts.run` for the options (`locked`, `timeout_s`, `args`, …)."""
        return await self.scripts.run(code, caller=caller, **options)

    def agent(self, name: str = "", **options: Any) -> "Agent":
        """An agent on these tools: see `Agent` for the options (`model`, `caller`, `listener`, …)."""
        from toolfold.agent.agent import Agent

        return Agent(self, name, **options)

    @cached_property
    def living(self) -> "LiveManager":
        """Live Python sessions: what they share, closed with the gateway."""
        from toolfold.live.manager import LiveManager

        return LiveManager(self, self._resources)

    def live(self, *, caller: Caller = LOCAL, **options: Any) -> "LiveSession":
        """A live Python session, to be used as `async with gateway.live() as session`: see `Living.session`."""
        return self.living.session(caller=caller, **options)

    async def servers(self, *, connect: bool = False) -> Sequence[ServerState]:
        """Each configured server: with `connect`, as it is now; else as the last build left it."""
        return await self.upstreams.states(connect=connect)

    async def pool(self) -> "Pool":
        """The servers, each opened when it is first needed."""
        return await self.upstreams.pool()

    async def reread(self, server: str) -> None:
        """Reads one server again and takes its tools in; a failure is noted and its earlier tools stay."""
        await self.upstreams.reread(server)

    async def refresh(self) -> Sequence[str]:
        """Reads again every server whose list is no longer fresh, and tells which those were."""
        return await self.upstreams.refresh()


def _not_open() -> StoreError:
    return StoreError("the gateway is not open", next_action="use it as: async with Gateway(settings) as gateway")
