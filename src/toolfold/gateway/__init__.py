"""The gateway: every stage composed into the one public object, async. Faces stand above it and translate.

It owns the store, the catalogue and the pool of servers of one configuration. Reading the catalogue opens no server
and loads nothing of the connecting side; building and calling do.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Self

from msgspec import Raw

from toolfold.catalogue.catalogue import DEFAULT_LIMIT, Branch, Catalogue, Tree
from toolfold.config import Settings
from toolfold.disclosure.pointers import listing_entry
from toolfold.errors import StoreError, UpstreamError
from toolfold.events import Events
from toolfold.gateway.finding import Finder
from toolfold.gateway.upstreams import FRESHNESS_CHECK_S, Upstreams
from toolfold.types import LOCAL, Caller, Change, Listing, Outcome, Path, ServerInfo, ServerState, Tool

if TYPE_CHECKING:
    from toolfold.catalogue.build import Build as Build
    from toolfold.catalogue.build import Placed, PlaceTools
    from toolfold.gateway.calling import CallStack
    from toolfold.gateway.describing import Describer
    from toolfold.storage.base import Store
    from toolfold.upstream.base import Upstream
    from toolfold.upstream.pool import Pool
    from toolfold.wire.values import OnInput, OnProgress

__all__ = ["Branch", "Gateway", "OnServer", "Tree"]

Names = list[str]
Descriptors = list[dict[str, Any]]

OnServer = Callable[[str, "Listing | UpstreamError"], None]
"""Told each server of a build as it is done: its listing, or why there is none."""


class Gateway:
    """All tools of one configuration. Use it as `async with Gateway(Settings.load()) as gateway`.

    `upstreams` are further sources that a program brings itself, such as its own functions. With `create=False` it
    opens only a catalogue that is there, and raises `NotBuilt` otherwise.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        upstreams: "Iterable[Upstream]" = (),
        store: "Store | None" = None,
        create: bool = True,
    ) -> None:
        self.settings = settings if settings is not None else Settings()
        self.events = Events()
        self._ready_made = tuple(upstreams)
        self._given_store = store
        self._create = create
        self._resources = AsyncExitStack()
        self._store: Store | None = None
        self._catalogue: Catalogue | None = None
        self._upstreams: Upstreams | None = None
        self._finder: Finder | None = None
        self._describer: Describer | None = None
        self._calls: CallStack | None = None
        self._check_s = FRESHNESS_CHECK_S

    async def __aenter__(self) -> Self:
        store = self._given_store if self._given_store is not None else self._own_store()
        self._store = await self._resources.enter_async_context(store)
        self._catalogue = Catalogue(store, place=self._place(), rules=self.settings.rules)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends every server and lets go of the store. Safe to call twice."""
        if self._upstreams is not None:
            await self._upstreams.aclose()
        await self._resources.aclose()

    @property
    def store_path(self) -> FilePath:
        """The catalogue's file."""
        return self.settings.home / "toolfold.sqlite"

    @property
    def registry_path(self) -> FilePath:
        return self.settings.home / "tool_registry.json"

    @property
    def catalogue(self) -> Catalogue:
        if self._catalogue is None:
            raise _not_open()
        return self._catalogue

    @property
    def finder(self) -> Finder:
        """Search, opened with the first request."""
        if self._finder is None:
            self._finder = Finder(self.catalogue, self._open_store(), self.settings.home / "search", self.events)
        return self._finder

    @property
    def describer(self) -> "Describer":
        """What may be read of one tool."""
        if self._describer is None:
            from toolfold.gateway.describing import Describer

            self._describer = Describer(self.catalogue, self._open_store(), self.events)
        return self._describer

    @property
    def upstreams(self) -> Upstreams:
        """The servers, none of them opened by this."""
        if self._upstreams is None:
            self._upstreams = Upstreams(
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
        self.events.emit(
            "catalogue.built", generation=build.generation, tools=build.report.tools, changes=len(build.changes)
        )
        return build

    async def list(
        self,
        path: Sequence[str] = (),
        *,
        tags: Sequence[str] = (),
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        caller: Caller = LOCAL,
    ) -> dict[str, Any]:
        """Child nodes and tool pointers at a path, as a model reads them."""
        page = await self.catalogue.list(tuple(path), tags=tags, limit=limit, cursor=cursor)
        return listing_entry(page.path, page.nodes, page.tools, page.next_cursor)

    async def search_tool_by_category(
        self,
        query: str,
        category_path: Sequence[str] = (),
        *,
        limit: int = 5,
        cursor: str | None = None,
        caller: Caller = LOCAL,
    ) -> dict[str, Any]:
        """Pointers to tools for a request, the best first, inside a category and all below it; `()` is everything."""
        return await self.finder.in_category(query, tuple(category_path), limit=limit, cursor=cursor)

    async def search_nodes(self, query: str, *, limit: int = 5, caller: Caller = LOCAL) -> dict[str, Any]:
        """Categories for a request, the best first."""
        return await self.finder.nodes(query, limit=limit)

    async def expand_tool(self, tool_id: str, *, caller: Caller = LOCAL) -> dict[str, Any]:
        """The whole of one tool, with the schemas that a model needs to call it."""
        return await self.describer.expand(tool_id)

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
    ) -> Outcome:
        """Calls a tool with arguments that fit its schema. The outcome is the server's result, undecoded.

        `expect_version` is the version that `expand_tool` showed: a tool that changed since raises `ToolChanged`.
        `whole` is for programs: a result too large for a model is then given as it is.
        """
        from toolfold.calls import Request
        from toolfold.gateway.calling import encoded

        tool = await self.describer.tool(tool_id)
        request = Request(
            tool=tool,
            arguments=encoded(tool, args),
            meta=meta,
            timeout_s=timeout_s,
            on_progress=on_progress,
            on_input=on_input,
            caller=caller,
            capabilities=capabilities,
            whole=whole,
        )
        return await self.calls.call(request, expect_version=expect_version)

    @property
    def calls(self) -> "CallStack":
        """The stack of handlers that every call goes through."""
        if self._calls is None:
            from toolfold.gateway.calling import CallStack

            limits = self.settings.limits
            self._calls = CallStack(self.pool, self.describer, self.events, limits.call_timeout_s)
        return self._calls

    async def tree(self, path: Sequence[str] = (), *, depth: int | None = None) -> Tree:
        """The categories below a path, with their counts."""
        return await self.catalogue.tree(tuple(path), depth)

    async def tools_below(self, path: Path) -> Sequence[Tool]:
        """Every tool that stands right at one of the nodes below a path, or at the path itself."""
        async with self.catalogue.snapshot() as view:
            return await view.tools(ids=await view.tool_ids_at(path, below=True))

    async def diff(self) -> tuple[Change, ...]:
        """What the last build changed."""
        return await self.catalogue.diff()

    async def descriptor(self, tool_id: str) -> dict[str, Any]:
        """The compact descriptor of a tool: what it takes, and what it returns, folded."""
        return await self.describer.descriptor(tool_id)

    async def available_tools(self, query: str, category_path: Sequence[str] = (), *, limit: int = 5) -> Descriptors:
        """What a planner gets for a request: the inspector's descriptor, then those of the tools that fit."""
        found = await self.search_tool_by_category(query, category_path, limit=limit)
        return await self.describer.available(pointer["tool_id"] for pointer in found["results"])

    async def inventory(self) -> dict[str, Names]:
        """The names of all tools by server."""
        return await self.describer.inventory()

    async def inspect_tool_output(
        self,
        tool_id: str,
        field_path: str | None = "",
        *,
        max_depth: int = 4,
        max_fields: int = 120,
        caller: Caller = LOCAL,
    ) -> dict[str, Any]:
        """What is at one place of a tool's output. Raises `ToolNotFound` and `UnknownField` with what is near."""
        return await self.describer.inspect(tool_id, field_path, max_depth, max_fields)

    async def inspections(self) -> Mapping[str, int]:
        """How often the output of each tool was inspected: many times means that its summary hides what is needed."""
        return await self.describer.inspections()

    async def servers(self, *, connect: bool = False) -> Sequence[ServerState]:
        """Each configured server: with `connect`, as it is now; else as the last build left it."""
        return await self.upstreams.states(connect=connect)

    def _own_store(self) -> "Store":
        from toolfold.storage.sqlite import SqliteStore

        if not self._create:
            return SqliteStore(self.store_path, create=False)
        try:
            self.settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StoreError(
                f"the state folder {self.settings.home} cannot be made: {os.strerror(error.errno or 0)}",
                next_action="choose another with --home DIR or TOOLFOLD_HOME",
            ) from error
        return SqliteStore(self.store_path)

    def _place(self) -> "PlaceTools | None":
        """Places by capability, corrected by the person's own file where there is one, read at each build."""
        file = self.settings.ontology_file
        if file is None:
            return None

        def place(tools: Sequence[Tool], infos: Mapping[str, ServerInfo]) -> "Placed":
            from toolfold.catalogue.committing import place_by_capability
            from toolfold.catalogue.ontology import Overrides

            return place_by_capability(tools, infos, overrides=Overrides.load(file))

        return place

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
