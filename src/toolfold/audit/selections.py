"""Which steps belong to one selection of a tool, found from the steps alone: nobody has to pass an id along.

A search shows tools. The first time one of them is expanded or called afterwards, it was chosen: a selection begins,
tied to the newest search that showed it. Further steps with that tool belong to it until a newer search shows the tool
again. Everything is kept per caller and session, and bounded.
"""

from collections import deque
from collections.abc import Sequence

from msgspec import Struct

_MAX_SEARCHES = 32
_MAX_TOOLS = 4096
"""Tools that are remembered with the newest search that showed them."""
_MAX_SELECTIONS = 256
_MAX_SESSIONS = 10_000


class SearchResult(Struct, frozen=True):
    """An answer that showed tools: its entry, what was asked, and the rank of each tool by its folded id."""

    entry: str
    query: str
    ranks: dict[str, int]


class Selection(Struct, frozen=True):
    """One tool, chosen once. `seen` is what it was chosen from, where that is known."""

    id: str
    seen: SearchResult | None = None

    def rank(self, tool_id: str) -> int | None:
        return None if self.seen is None else self.seen.ranks.get(tool_id.casefold())


class SessionSelections:
    """The recent steps of one caller in one session."""

    __slots__ = ("_newest", "_searches", "_selections", "last_at")

    def __init__(self) -> None:
        self._searches: deque[SearchResult] = deque(maxlen=_MAX_SEARCHES)
        self._newest: dict[str, SearchResult] = {}
        self._selections: dict[str, Selection] = {}
        self.last_at = 0.0

    def showed(self, entry: str, query: str, tool_ids: Sequence[str]) -> None:
        ranks = {tool_id.casefold(): rank for rank, tool_id in enumerate(tool_ids, start=1)}
        seen = SearchResult(entry, query, ranks)
        self._searches.append(seen)
        self._newest.update(dict.fromkeys(ranks, seen))
        if len(self._newest) > _MAX_TOOLS:
            self._newest = {key: one for one in self._searches for key in one.ranks}

    def current(self, tool_id: str) -> Selection | None:
        """The selection that goes on with this tool; `None` where a new one begins."""
        key = tool_id.casefold()
        known = self._selections.get(key)
        if known is None:
            return None
        newest = self._newest.get(key)
        return known if newest is None or newest is known.seen else None

    def begin(self, selection: str, tool_id: str) -> Selection:
        key = tool_id.casefold()
        self._selections.pop(key, None)
        while len(self._selections) >= _MAX_SELECTIONS:
            self._selections.pop(next(iter(self._selections)))
        made = self._selections[key] = Selection(selection, self._newest.get(key))
        return made

    def resume(self, selection: str, tool_id: str, search: str) -> None:
        """Takes up a selection that was made before this process, with the search it came from."""
        seen = next((one for one in reversed(self._searches) if one.entry == search), None)
        self._selections[tool_id.casefold()] = Selection(selection, seen)


class Selections:
    """The chains of everybody, the newest ten thousand of them."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], SessionSelections] = {}

    def get(self, caller: str, session: str) -> SessionSelections | None:
        return self._known.get((caller, session))

    def of(self, caller: str, session: str) -> SessionSelections:
        key = (caller, session)
        found = self._known.get(key)
        if found is None:
            while len(self._known) >= _MAX_SESSIONS:
                self._known.pop(next(iter(self._known)))
            found = self._known[key] = SessionSelections()
        return found

    def active(self, since: float) -> int:
        """How many did something since then."""
        return sum(chain.last_at >= since for chain in self._known.values())
