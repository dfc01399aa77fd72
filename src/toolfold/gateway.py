"""The gateway: every stage composed into the one public object, async. Faces stand above it and translate.

It owns the store, the catalogue and the servers of one configuration. Each part is made when it is first needed and
imported then, so that a command which only reads the catalogue opens no server and loads nothing of the connecting
side. What a part does is written in its stage; here stands which parts there are, and how they meet.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from functools import cached_property, partial, update_wrapper
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Self, Unpack

from msgspec import Raw
from msgspec.structs import replace

from toolfold.answers import ExpandedTool, InspectedOutput, NodePage, ToolDescriptor, ToolList, ToolPage
from toolfold.audit.record import A, Operation, StepName, StepResult
from toolfold.catalogue.catalogue import DEFAULT_LIMIT, Branch, Catalogue, Tree
from toolfold.config import Settings
from toolfold.disclosure.render import Expansions, render_list_page, render_listing, render_node_page, render_tool_page
from toolfold.errors import StoreError, ToolfoldError, UpstreamError
from toolfold.events import Events
from toolfold.loop_thread import LoopThread, blocking
from toolfold.policy.access import AccessControl
from toolfold.policy.trust import TrustMonitor
from toolfold.policy.view import CatalogueView
from toolfold.scripts import kept_scripts
from toolfold.telemetry.metrics import Metrics
from toolfold.text import as_path, replace_surrogates, replace_surrogates_all
from toolfold.types import LOCAL, CallContext, Caller, Change, Listing, Outcome, ServerState, Tool, ToolCall
from toolfold.upstream.initial_build import InitialBuild
from toolfold.upstream.refresh import UpstreamManager, upstream_of

if TYPE_CHECKING:
    import asyncio

    from toolfold.agent.agent import Agent
    from toolfold.audit.call_recorder import CallRecorder
    from toolfold.audit.log import AuditLog
    from toolfold.audit.redaction import Redactor
    from toolfold.audit.savings import Savings
    from toolfold.calls import Handler
    from toolfold.calls.leaves import Leaves
    from toolfold.calls.toolbox import Programs
    from toolfold.catalogue.build import Build
    from toolfold.disclosure.describer import Describer
    from toolfold.live.manager import LiveManager, LiveSession
    from toolfold.outputs.service import OutputService
    from toolfold.scripts.runner import ScriptResult, ScriptRunner
    from toolfold.search.service import SearchService
    from toolfold.storage.base import Store
    from toolfold.telemetry.spans import Tracing
    from toolfold.types import CallOptions
    from toolfold.upstream.base import Upstream
    from toolfold.upstream.function_tool import Function
    from toolfold.upstream.pool import Pool
    from toolfold.wire.serving.peers import Peers

__all__ = ["BlockingGateway", "Branch", "Gateway", "OnServer", "Tree"]

# Receives each server of a build as it is done: its listing, or why there is none.
OnServer = Callable[[str, "Listing | UpstreamError"], None]

# Calls that end while the servers close are still recorded: the audit log closes after everything that calls.
_CLOSING_ORDER = "scripts search upstreams outputs live_sessions describer trust access audit_log tracing"


class Gateway:
    """All tools of one configuration. Use it as `async with Gateway(Settings.load()) as gateway`.

    `functions` and `upstreams` are sources that a program brings itself: `Gateway(functions=[add, weather])`. Such a
    gateway, and one whose settings name no `home`, keeps its state in a folder that goes with it, and builds its
    catalogue when it is first asked for. Of the others: with `create=False` one opens only a catalogue that is there,
    and raises `NotBuilt` otherwise. With `keep_outputs` what is stored for the local caller outlives the gateway.
    """

    # The other gateways on the same store, where clients may reach any of them; set by the face that serves.
    peers: "Peers | None" = None

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        functions: "Iterable[Function]" = (),
        upstreams: "Iterable[Upstream]" = (),
        store: "Store | None" = None,
        create: bool = True,
        keep_outputs: bool = False,
    ) -> None:
        self.settings = self._given = settings or Settings()
        self.events, self.expansions, self.metrics = Events(), Expansions(), Metrics()
        self._given_upstreams = (*upstreams, *upstream_of(functions))
        self._given_store, self._create, self._keep_outputs = store, create, keep_outputs
        self._resources = AsyncExitStack()
        self._store: Store | None = None

    # --- opening and closing

    async def __aenter__(self) -> Self:
        from toolfold.storage.factory import open_store

        self.settings = self._resources.enter_context(self._given.with_state(shared=not self._given_upstreams))
        _ = self.tracing  # where it is on and cannot be, that is said before anything starts, not call by call
        store = self._given_store
        self._store = await self._resources.enter_async_context(store or open_store(self.settings, self._create))
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends every server and closes the store, each even where ending another failed. Safe to call twice."""
        closing, self._resources = self._resources, AsyncExitStack()
        try:
            async with closing:  # it closes in reverse, and what it holds already is the store
                for part in filter(None, map(self.__dict__.get, reversed(_CLOSING_ORDER.split()))):
                    closing.push_async_callback(part.aclose)
        finally:
            self._store = None
            for name in [name for name, part in vars(Gateway).items() if isinstance(part, cached_property)]:
                self.__dict__.pop(name, None)  # opened again, it starts anew

    def blocking(self) -> "BlockingGateway":
        """The same for programs without `async`: `with Gateway(settings).blocking() as gateway`."""
        return BlockingGateway(gateway=self)

    # --- the parts, each made when it is first needed

    @property
    def store(self) -> "Store":
        if self._store is None:
            raise StoreError("the gateway is not open", next_action="use it as: async with Gateway(…) as gateway")
        return self._store

    @cached_property
    def catalogue(self) -> Catalogue:
        """The whole catalogue, whoever may see it."""
        return Catalogue(self.store, ontology_file=self.settings.ontology_file, rules=self.settings.rules)

    @cached_property
    def upstreams(self) -> UpstreamManager:
        """The servers, none of them opened by this."""
        given = (*self._given_upstreams, *kept_scripts(self.settings, lambda: self.scripts))
        return UpstreamManager(self.settings, given, self.store, self.catalogue, self.events)

    @cached_property
    def initial_build(self) -> InitialBuild:
        """The first catalogue, where it is being built right now."""
        build = partial(self.build, index=False, tell=False)
        return InitialBuild(self.store, self.upstreams, build, when_asked=self.settings is not self._given)

    @cached_property
    def trust(self) -> TrustMonitor:
        """Which tools changed since the owner accepted them, and what their texts hide."""
        return TrustMonitor(self.catalogue, self.store, self.settings.trust, self.events)

    @cached_property
    def access(self) -> AccessControl:
        """Who may see and call what."""
        return AccessControl(self.catalogue, self.settings, self.trust, self.upstreams, self.store)

    @cached_property
    def search(self) -> "SearchService":
        from toolfold.search.service import SearchService

        return SearchService(self.catalogue, self.store, self.settings, self.events)

    @cached_property
    def describer(self) -> "Describer":
        """What may be read of one tool, and what tools were observed to return."""
        from toolfold.disclosure.describer import Describer

        return Describer(self.store, self.events, suggest=self.search.similar_ids)

    @cached_property
    def redactor(self) -> "Redactor":
        """Removes what the configuration keeps secret, and what was looked up for servers since."""
        from toolfold.audit.redaction import Redactor

        return Redactor(self.settings, looked_up=self.upstreams.secrets)

    @cached_property
    def tracing(self) -> "Tracing | None":
        from toolfold.telemetry import _tracing_of

        return _tracing_of(self.settings.telemetry)

    @cached_property
    def audit_log(self) -> "AuditLog":
        """Where steps and calls are recorded, and read. With `audit.enabled = false` it records nothing."""
        from toolfold.audit.log import AuditLog

        return AuditLog(self.store, self.settings, lambda: self.redactor, self.search.learn_choice, settle=self._settle)

    @cached_property
    def call_recorder(self) -> "CallRecorder":
        from toolfold.audit.call_recorder import CallRecorder

        return CallRecorder(self.events, self.access.quotas.ended, self.metrics.record_call, self.audit_log.record_call)

    @cached_property
    def outputs(self) -> "OutputService":
        """Results that were too large for a model. `await gateway.outputs(caller)` lists those of a caller."""
        from toolfold.models.factory import configured_model
        from toolfold.outputs.service import OutputService

        model = partial(configured_model, self.settings.model)
        return OutputService(self.settings, self.events, model=model, keep=self._keep_outputs, store=self.store)

    @cached_property
    def calls(self) -> "Handler":
        """The pipeline that every call goes through."""
        from toolfold.calls import CallPipeline
        from toolfold.calls.authorize import Authorizer
        from toolfold.calls.confirm import confirm
        from toolfold.calls.dispatch import dispatcher
        from toolfold.calls.sign_in import SignInRequester
        from toolfold.calls.toolbox import answer_toolbox
        from toolfold.calls.validate import ArgumentValidator

        authorizer = Authorizer(self.access.view, self.describer, self.upstreams, self.expansions)
        store_large = self.access.quotas.bound(self.outputs.large_results.store_large)
        pipeline = CallPipeline(
            dispatcher(self.pool, self.catalogue.as_sent),
            prepare=self._prepare,
            checks=(
                self.access.quotas.check,  # first: whoever asks too often costs as little as can be
                authorizer.check,
                self.outputs.references.check,  # before validation: a schema describes the values, not references
                ArgumentValidator(authorizer.renew),
                self.leaves.check,  # with the arguments as they will be sent
                confirm(self.access, self.redactor.printable_arguments),
                authorizer.recheck,  # after a person was asked, who may take their time
                answer_toolbox(self.access.view, self.describer),
            ),
            # Before storing: what is learned from a result, and what is cut from it.
            result_hooks=(*self.redactor.result_hooks, self.describer.observe, store_large),
            explain=authorizer.explain,
            sign_in=SignInRequester(self.upstreams),
            limited_by=self.upstreams.limited_by,
            observer=self.call_recorder,
        )
        return pipeline if self.tracing is None else self.tracing.wrap(pipeline)

    @cached_property
    def leaves(self) -> "Leaves":
        """Resources, templates and prompts of all servers, in the protocol's own words."""
        from toolfold.calls.leaves import Leaves

        return Leaves(self.catalogue, self.access, lambda: self.calls, self.initial_build.wait, self.upstreams)

    @cached_property
    def programs(self) -> "Programs":
        """Scripts and live Python as calls: decided on, confirmed and recorded."""
        from toolfold.calls.toolbox import Programs

        return Programs(self.access, self.redactor.printable_arguments, self.call_recorder.record)

    @cached_property
    def scripts(self) -> "ScriptRunner":
        """Scripts that declare their tools in plain words, and the confined processes they run in."""
        from toolfold.scripts.runner import ScriptRunner

        return ScriptRunner(self)

    @cached_property
    def live_sessions(self) -> "LiveManager":
        """Live Python sessions: what they share, closed with the gateway."""
        from toolfold.live.manager import LiveManager

        return LiveManager(self)

    # --- the catalogue

    async def build(
        self,
        servers: Sequence[str] | None = None,
        *,
        registry: FilePath | None = None,
        on_server: OnServer | None = None,
        index: bool = True,
        tell: bool = True,
        on_indexed: Callable[[int, int], None] | None = None,
    ) -> "Build":
        """Connects to all servers, or those named, and writes the catalogue and `tool_registry.json`.

        A server that fails is reported to `on_server` and in the result; its earlier tools stay. Naming servers leaves
        all others as they are. New tools are taken into the search index, about 5 ms each: `on_indexed` hears how many
        of how many are done. Without `index` the next search does that. `changes` are those since the last build that
        somebody was told of; one without `tell` is not.
        """
        async with self.upstreams.reading(servers, on_server) as (listings, failures):
            write = self.catalogue.rebuild if servers is None else self.catalogue.update
            build = await self.catalogue.since_last_build(await write(listings, failures=failures), tell=tell)
            await self.catalogue.write_registry(registry or self.settings.registry_path)
            await self.trust.review()
            tools, changes = build.report.tools, len(build.changes)
            self.events.emit("catalogue.built", generation=build.generation, tools=tools, changes=changes)
        if index:
            await self.search.sync(on_indexed)
        return build

    async def reconfigure(self, settings: Settings) -> Sequence[str]:
        """Takes over what can change while it is open: only servers that changed are started anew, and calls under way
        end by themselves. Gives the names of what else differs: it needs a gateway opened anew."""
        self.settings, rest = self.settings.adopt(settings)
        self.redactor.learn(settings)
        self.trust.reconfigure(self.settings.trust)
        self.outputs.large_results.reconfigure(self.settings.limits, self.settings.rules)
        self.access.reconfigure(self.settings)
        await self.upstreams.reconfigure(self.settings)
        return rest

    def begin(self) -> "asyncio.Task[None]":
        """Reads all servers in the background, and builds where the catalogue is missing, or is not of these servers.
        Whoever asks for tools before there is any catalogue waits for it."""
        return self.initial_build.start()

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
        """Reads again every server whose list is no longer fresh, and returns their names."""
        return await self.upstreams.refresh()

    async def diff(self) -> tuple[Change, ...]:
        """What the last build changed."""
        return await self.catalogue.diff()

    # --- finding a tool; every step of it is recorded

    def view(self, caller: Caller = LOCAL) -> CatalogueView:
        """What this caller may see of the catalogue."""
        return self.access.view(caller)

    async def _built_view(self, caller: Caller) -> CatalogueView:
        await self.initial_build.wait()
        return await self.view(caller).settled()

    async def _step(self, name: StepName, caller: Caller, operation: Operation[A], **question: Any) -> StepResult[A]:
        """Runs a step in its caller's view, and counts, traces and records it."""

        async def work() -> StepResult[A]:
            with self.metrics.step(name):
                return await operation(await self._built_view(caller))

        with self.tracing.step(name, caller, **question) if self.tracing else nullcontext():
            return await self.audit_log.record(name, caller, work, **question)

    async def list(
        self,
        path: Sequence[str] = (),
        *,
        tags: Sequence[str] = (),
        query: str = "",
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        caller: Caller = LOCAL,
    ) -> ToolList:
        """Child nodes and tool pointers at a path, as a model reads them. A query keeps what fits it, the best first,
        from anywhere below the path."""
        path, tags, query = as_path(path), replace_surrogates_all(tags), replace_surrogates(query)

        async def operation(view: CatalogueView) -> StepResult[ToolList]:
            if query.strip():
                hits = await self.search.list_matching(view, query, path, tags=tags, limit=limit, cursor=cursor)
                return StepResult.of_hits(await view.dated(render_list_page(hits)), hits)
            page = await view.catalogue.list(path, tags=tags, limit=limit, cursor=cursor)
            return StepResult(answer=await view.dated(render_listing(page)), tool_ids=page.tool_ids)

        return (await self._step("list", caller, operation, query=query, path=path)).answer

    async def search_tool_by_category(
        self,
        query: str,
        category_path: Sequence[str] = (),
        *,
        limit: int = 5,
        cursor: str | None = None,
        caller: Caller = LOCAL,
        sure: bool = False,
        expand: bool = False,
    ) -> ToolPage:
        """Pointers to tools for a request, the best first, inside a category and all below it; `()` is everything.

        With `sure` the nearest of few tools are no answer. With `expand` the first hits come with what they take, where
        a few lines tell it whole: to this caller they are expanded.
        """
        query, path = replace_surrogates(query), as_path(category_path)

        async def operation(view: CatalogueView) -> StepResult[ToolPage]:
            page = await self.search.search_tools(view, query, path, limit=limit, cursor=cursor, sure=sure)
            expanded = self.expansions.of_hits(caller, page) if expand else {}
            return StepResult.of_hits(await view.dated(render_tool_page(page, expanded)), page, expanded)

        return (await self._step("search", caller, operation, query=query, path=path)).answer

    async def search_nodes(self, query: str, *, limit: int = 5, caller: Caller = LOCAL) -> NodePage:
        """Categories for a request, the best first."""
        query = replace_surrogates(query)

        async def operation(view: CatalogueView) -> StepResult[NodePage]:
            page = await self.search.search_nodes(view, query, limit=limit)
            return StepResult.of_nodes(await view.dated(render_node_page(page)), page)

        return (await self._step("nodes", caller, operation, query=query)).answer

    async def expand_tool(self, tool_id: str, *, caller: Caller = LOCAL) -> ExpandedTool:
        """The whole of one tool, with the schemas that a model needs to call it."""
        tool_id = replace_surrogates(tool_id)

        async def operation(view: CatalogueView) -> StepResult[ExpandedTool]:
            answer = await self.describer.expand(view, tool_id)
            return StepResult(answer=answer, version=answer["version"])

        answer = (await self._step("expand", caller, operation, tool_id=tool_id)).answer
        self.expansions.record(caller, answer["tool_id"], answer["version"])
        return answer

    async def inspect_tool_output(
        self,
        tool_id: str,
        field_path: str | None = "",
        *,
        max_depth: int = 4,
        max_fields: int = 120,
        caller: Caller = LOCAL,
    ) -> InspectedOutput:
        """What is at one place of a tool's output. Raises `ToolNotFound` and `UnknownField` with what is near."""
        tool_id, field_path = replace_surrogates(tool_id), field_path and replace_surrogates(field_path)

        async def operation(view: CatalogueView) -> StepResult[InspectedOutput]:
            return StepResult(answer=await self.describer.inspect(view, tool_id, field_path, max_depth, max_fields))

        return (await self._step("inspect", caller, operation, tool_id=tool_id)).answer

    async def tree(self, path: Sequence[str] = (), *, depth: int | None = None, caller: Caller = LOCAL) -> Tree:
        """The categories below a path, with their counts."""
        return await (await self._built_view(caller)).tree(as_path(path), depth)

    async def tools_below(self, path: Sequence[str], *, caller: Caller = LOCAL) -> Sequence[Tool]:
        """Every tool that stands right at one of the nodes below a path, or at the path itself."""
        async with (await self._built_view(caller)).catalogue.snapshot() as snapshot:
            return await snapshot.tools(ids=await snapshot.tool_ids_at(as_path(path), below=True))

    async def descriptor(self, tool_id: str, *, caller: Caller = LOCAL) -> ToolDescriptor:
        """The compact descriptor of a tool: what it takes, and what it returns, folded."""
        return await self.describer.descriptor(await self._built_view(caller), tool_id)

    async def available_tools(
        self, query: str, category_path: Sequence[str] = (), *, limit: int = 5, caller: Caller = LOCAL
    ) -> Sequence[ToolDescriptor]:
        """What a planner gets for a request: the inspector's descriptor, then those of the tools that fit."""
        # A descriptor says nothing of how well its tool fits.
        page = await self.search_tool_by_category(query, category_path, limit=limit, caller=caller, sure=True)
        return await self.describer.available(self.view(caller), page["results"])

    async def inventory(self, *, caller: Caller = LOCAL) -> "Mapping[str, Sequence[str]]":
        """The names of all tools by server."""
        return await self.describer.inventory(await self._built_view(caller))

    async def inspections(self) -> Mapping[str, int]:
        """How often the output of each tool was inspected: many times means that its summary hides what is needed."""
        return await self.describer.inspections()

    # --- calling a tool

    async def tool(self, tool_id: str, caller: Caller = LOCAL) -> Tool:
        """The tool that a call is about. A call of one that this caller has not is recorded, too."""
        caller, tool_id = self.access.resolve(caller), replace_surrogates(tool_id)
        # Every call passes here: nothing is awaited that has nothing to wait for.
        if self.initial_build.pending:
            await self.initial_build.wait()
        if self.audit_log.needs_restoring(caller):
            await self.audit_log.restore(caller)
        try:
            return await self.describer.tool(self.view(caller), tool_id)
        except ToolfoldError as error:
            told = await self.upstreams.credentials.explain(error, tool_id, caller.name, self.view(caller).hides)
            self.reject_call(caller, tool_id, told)
            raise told from None

    def reject_call(self, caller: Caller, tool_id: str, error: ToolfoldError) -> None:
        """Counts and records a call that a face refused before it was one."""
        self.metrics.record_step("call", error.code)
        self.audit_log.record_rejection(caller, tool_id, error)

    def _prepare(self, call: ToolCall, context: CallContext) -> CallContext:
        """Completes the context of a call: the caller with its policy, and the time limit."""
        limit = self.upstreams.call_timeout_s(call.tool.server, context.timeout_s)
        return replace(context, caller=self.access.resolve(context.caller), timeout_s=limit)

    async def call_tool(
        self,
        tool_id: str,
        args: Mapping[str, Any] | Raw,
        *,
        expect_version: int | None = None,
        caller: Caller = LOCAL,
        **options: "Unpack[CallOptions]",
    ) -> Outcome:
        """Calls a tool with arguments that fit its schema. The outcome is the server's result, undecoded.

        `expect_version` is the version that `expand_tool` showed: a tool that changed since raises `ToolChanged`. The
        further options are fields of `CallContext`: `whole` for programs, who get a result too large for a model as it
        is; `confirmed` for faces whose user has said yes; `timeout_s`, `on_progress`, `on_input`, `meta`, …
        """
        from toolfold.calls.validate import encode_arguments

        tool = await self.tool(tool_id, caller)
        call = ToolCall(tool=tool, arguments=encode_arguments(tool, args), expect_version=expect_version)
        return await self.calls(call, CallContext(caller=caller, **options))

    async def tool_output(self, handle: str, extract: str, *, mode: str = "auto", caller: Caller = LOCAL) -> str:
        """Answers a request from a stored output, as plain text. Raises `UnknownHandle`."""
        return await self.outputs.extract(handle, extract, mode, caller)

    # --- scripts, live sessions, agents

    async def run_script(self, code: str | bytes, *, caller: Caller = LOCAL, **options: Any) -> "ScriptResult":
        """Runs a script in the sandbox: see `ScriptRunner.run` for the options (`locked`, `timeout_s`, `args`, …)."""
        await self.initial_build.wait()
        return await self.scripts.run(code, caller=caller, **options)

    def live(self, *, caller: Caller = LOCAL, **options: Any) -> "LiveSession":
        """A live Python session, to be used as `async with gateway.live() as session`: see `LiveManager.session`."""
        return self.live_sessions.session(caller=caller, **options)

    def agent(self, name: str = "", **options: Any) -> "Agent":
        """An agent on these tools: see `Agent` for the options (`model`, `caller`, `listener`, …)."""
        from toolfold.agent.agent import Agent

        return Agent(self, name, **options)

    async def end_session(self, caller: Caller) -> None:
        """A client's session is over: what was kept for it alone is removed. The gateway's own session ends with it."""
        if caller.session and ("outputs" in self.__dict__ or self.settings.outputs_shared != "off"):
            await self.outputs.end(caller)
        if caller.session and "live_sessions" in self.__dict__:
            await self.live_sessions.sessions.end(caller)

    # --- what was recorded and counted

    def _settle(self) -> None:
        """Whoever reads what is recorded and counted gets every call that is over."""
        if "call_recorder" in self.__dict__:
            self.call_recorder.settle()

    async def savings(self, surface_tokens: int = 0, *, by: str = "") -> "Savings":
        """The tokens of all definitions and results, against what was shown, to all callers or to one.
        `surface_tokens`: what each client reads before it asks for anything."""
        from toolfold.audit.savings import compute_savings

        steps = await self.audit_log.steps(caller=by or None)
        return await compute_savings(steps, self.view().catalogue, self.store, surface_tokens)

    async def render_metrics(self, caller: Caller = LOCAL) -> tuple[str, bytes]:
        """What a Prometheus server reads, as far as this caller may know of it: the content type and the text."""
        self._settle()
        latest, own = await self.view(caller).catalogue.generations(), await self.access.whole_servers(caller)
        held = {"tools_held": len(self.trust.latest.held)}
        return self.metrics.render(latest[-1:], {**held, **self.audit_log.gauges()}, own)


class BlockingGateway(LoopThread):
    """The gateway for programs without `async`: the same methods, each waiting for its answer.

    Takes what `Gateway` takes, or a gateway that was made and not opened yet. Any number of threads may ask at once.
    """

    def __init__(self, *given: Any, gateway: Gateway | None = None, **options: Any) -> None:
        self.gateway = gateway or Gateway(*given, **options)
        super().__init__(self.gateway)

    build = blocking(Gateway.build)
    list = blocking(Gateway.list)
    search_tool_by_category = blocking(Gateway.search_tool_by_category)
    search_nodes = blocking(Gateway.search_nodes)
    expand_tool = blocking(Gateway.expand_tool)
    call_tool = blocking(Gateway.call_tool)
    inspect_tool_output = blocking(Gateway.inspect_tool_output)
    tool_output = blocking(Gateway.tool_output)
    run_script = blocking(Gateway.run_script)  # type: ignore[arg-type]  # its **options could name a "self"
    inspections = blocking(Gateway.inspections)
    descriptor = blocking(Gateway.descriptor)
    available_tools = blocking(Gateway.available_tools)
    inventory = blocking(Gateway.inventory)
    tree = blocking(Gateway.tree)
    tools_below = blocking(Gateway.tools_below)
    diff = blocking(Gateway.diff)
    servers = blocking(Gateway.servers)
    reread = blocking(Gateway.reread)
    refresh = blocking(Gateway.refresh)


# What it is made with is declared once, by the gateway.
update_wrapper(BlockingGateway.__init__, Gateway.__init__, assigned=(), updated=())
