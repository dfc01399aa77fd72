"""Looking at tools, from the categories down to one field of an output: the operations that call nothing.

`Gateway` is made from this. Each operation runs in its caller's scene, so that nobody finds what they may not see, and
is told to the governor, who keeps it. Below: the catalogue, search, disclosure.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toolfold.catalogue.catalogue import DEFAULT_LIMIT, Catalogue, Tree
from toolfold.config import Settings
from toolfold.disclosure.expansions import Expansions
from toolfold.disclosure.render import render_listing
from toolfold.search.service import SearchService
from toolfold.text import replace_surrogates, replace_surrogates_all
from toolfold.types import LOCAL, Caller, Change, Path, Tool

if TYPE_CHECKING:
    from toolfold.disclosure.describer import Describer
    from toolfold.policy.access import Governor
    from toolfold.policy.view import Scene

Names = list[str]
Descriptors = list[dict[str, Any]]


class Looking(ABC):
    """What can be asked about tools. Whoever is made from this has the parts that the questions go to."""

    settings: Settings
    expansions: Expansions

    @property
    @abstractmethod
    def catalogue(self) -> Catalogue: ...

    @property
    @abstractmethod
    def finder(self) -> SearchService: ...

    @property
    @abstractmethod
    def describer(self) -> "Describer": ...

    @property
    @abstractmethod
    def governor(self) -> "Governor": ...

    async def list(
        self,
        path: Sequence[str] = (),
        *,
        tags: Sequence[str] = (),
        query: str = "",
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        caller: Caller = LOCAL,
    ) -> dict[str, Any]:
        """Child nodes and tool pointers at a path, as a model reads them. A query keeps what fits it, the best first,
        from anywhere below the path."""
        path, tags, query = replace_surrogates_all(path), replace_surrogates_all(tags), replace_surrogates(query)

        async def listed(seen: "Scene") -> dict[str, Any]:
            if query.strip():
                return await seen.finder.listed(query, path, tags=tags, limit=limit, cursor=cursor)
            page = await seen.catalogue.list(path, tags=tags, limit=limit, cursor=cursor)
            return render_listing(page.path, page.nodes, page.tools, page.next_cursor)

        return await self.governor.told("list", caller, listed, query=query, path=path)

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
        query, place = replace_surrogates(query), replace_surrogates_all(category_path)
        return await self.governor.told(
            "search",
            caller,
            lambda seen: seen.finder.in_category(query, place, limit=limit, cursor=cursor),
            query=query,
            path=place,
        )

    async def search_nodes(self, query: str, *, limit: int = 5, caller: Caller = LOCAL) -> dict[str, Any]:
        """Categories for a request, the best first."""
        query = replace_surrogates(query)
        return await self.governor.told(
            "nodes", caller, lambda seen: seen.finder.nodes(query, limit=limit), query=query
        )

    async def expand_tool(self, tool_id: str, *, caller: Caller = LOCAL) -> dict[str, Any]:
        """The whole of one tool, with the schemas that a model needs to call it."""
        tool_id = replace_surrogates(tool_id)
        answer = await self.governor.told(
            "expand", caller, lambda seen: seen.describer.expand(tool_id), tool_id=tool_id
        )
        self.expansions.note(caller, answer["tool_id"], answer["version"])
        return answer

    async def tree(self, path: Sequence[str] = (), *, depth: int | None = None, caller: Caller = LOCAL) -> Tree:
        """The categories below a path, with their counts."""
        return await self.scene(caller).catalogue.tree(tuple(path), depth)

    async def tools_below(self, path: Path, *, caller: Caller = LOCAL) -> Sequence[Tool]:
        """Every tool that stands right at one of the nodes below a path, or at the path itself."""
        async with self.scene(caller).catalogue.snapshot() as view:
            return await view.tools(ids=await view.tool_ids_at(path, below=True))

    async def diff(self) -> tuple[Change, ...]:
        """What the last build changed."""
        return await self.catalogue.diff()

    async def descriptor(self, tool_id: str, *, caller: Caller = LOCAL) -> dict[str, Any]:
        """The compact descriptor of a tool: what it takes, and what it returns, folded."""
        return await self.scene(caller).describer.descriptor(tool_id)

    async def available_tools(
        self, query: str, category_path: Sequence[str] = (), *, limit: int = 5, caller: Caller = LOCAL
    ) -> Descriptors:
        """What a planner gets for a request: the inspector's descriptor, then those of the tools that fit."""
        found = await self.search_tool_by_category(query, category_path, limit=limit, caller=caller)
        return await self.scene(caller).describer.available(pointer["tool_id"] for pointer in found["results"])

    async def inventory(self, *, caller: Caller = LOCAL) -> dict[str, Names]:
        """The names of all tools by server."""
        return await self.scene(caller).describer.inventory()

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
        tool_id = replace_surrogates(tool_id)
        return await self.governor.told(
            "inspect",
            caller,
            lambda seen: seen.describer.inspect(
                tool_id, field_path and replace_surrogates(field_path), max_depth, max_fields
            ),
            tool_id=tool_id,
        )

    async def inspections(self) -> Mapping[str, int]:
        """How often the output of each tool was inspected: many times means that its summary hides what is needed."""
        return await self.describer.inspections()

    async def render_metrics(self) -> tuple[str, bytes]:
        """What a Prometheus server reads: the content type and the text."""
        return await self.governor.render_metrics()

    def scene(self, caller: Caller = LOCAL) -> "Scene":
        """The catalogue, search and descriptions as this caller may see them. Without policies: the gateway itself."""
        return self if caller is LOCAL and not self.settings.restricts else self.governor.scene(caller)
