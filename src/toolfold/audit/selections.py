"""Selections: which search a tool was selected from, derived from the steps of one session as they come.

The rules stand in `log.py`. Here is what is remembered of one caller in one session; it is bounded, and taken up again
from the store. Above: the log.
"""

from collections import deque
from collections.abc import Mapping, Sequence

from msgspec import Struct

from toolfold.audit.record import Step
from toolfold.containers import BoundedDict
from toolfold.errors import NoMatchInCategory

_MAX_SEARCHES = 32
# How long after a search a tool may be selected from it.
_SEARCH_S = 1_800.0
# How long after a search a call that worked may teach search, and how many searches one call may.
_LESSON_S = 600.0
_MAX_LESSONS = 3
# Tools that are remembered with the newest search that showed them.
_MAX_TOOLS = 4096
_MAX_SELECTIONS = 256


class _SearchResult(Struct, eq=False):
    """An answer that showed tools: the id of its step, its query, its time, and the rank of each tool by its folded id.
    It is `used` once a tool that was selected from it was called and worked, `taught` once search heard of it."""

    step: str
    query: str
    at: float
    ranks: dict[str, int]
    used: bool = False
    taught: bool = False


class _Selection(Struct, frozen=True):
    """One tool, selected once. `result` is what it was selected from, where that is known."""

    id: str
    result: _SearchResult | None = None

    def rank(self, tool_id: str) -> int | None:
        return None if self.result is None else self.result.ranks.get(tool_id.casefold())


class _SessionSelections:
    """The recent searches and selections of one caller in one session."""

    __slots__ = ("_expanded", "_newest", "_results", "_selections", "last_at")

    def __init__(self) -> None:
        self._results: deque[_SearchResult] = deque(maxlen=_MAX_SEARCHES)
        self._newest: dict[str, _SearchResult] = {}
        self._selections: BoundedDict[str, _Selection] = BoundedDict(_MAX_SELECTIONS)
        self._expanded: BoundedDict[str, float] = BoundedDict(_MAX_SELECTIONS)
        self.last_at = 0.0

    def add_result(
        self, step: str, query: str, at: float, tool_ids: Sequence[str], twins: Mapping[str, str] | None = None
    ) -> None:
        if not (query or tool_ids):
            return
        ranks = {tool_id.casefold(): rank for rank, tool_id in enumerate(tool_ids, start=1)}
        ranks |= {twin.casefold(): ranks[tool_id.casefold()] for twin, tool_id in (twins or {}).items()}
        result = _SearchResult(step, query, at, ranks)
        self._results.append(result)
        self._newest.update(dict.fromkeys(ranks, result))
        if len(self._newest) > _MAX_TOOLS:
            # Searches that fell out of the deque go on living here until there are too many of them.
            self._newest = {key: result for result in self._results for key in result.ranks}

    def current(self, tool_id: str, at: float) -> _Selection | None:
        """The selection that continues with this tool; `None` where a new one starts."""
        selection = self._selections.get(tool_id.casefold())
        if selection is None:
            return None
        newest = self._open_result(tool_id, at)
        return selection if newest is None or newest is selection.result else None

    def _open_result(self, tool_id: str, at: float) -> _SearchResult | None:
        """The newest search that showed this tool, if the tool was expanded since, and that not too long after."""
        key = tool_id.casefold()
        newest = self._newest.get(key)
        if newest is None or newest.used or at > newest.at + _SEARCH_S:
            return None
        return newest if self._expanded.get(key, 0.0) >= newest.at else None

    def start(self, selection_id: str, tool_id: str, at: float) -> _Selection:
        selection = _Selection(selection_id, self._open_result(tool_id, at))
        self._selections.renew(tool_id.casefold(), selection)
        return selection

    def expand(self, tool_ids: str | Sequence[str], at: float) -> None:
        for tool_id in [tool_ids] if isinstance(tool_ids, str) else tool_ids:
            self._expanded.renew(tool_id.casefold(), at)

    def use(self, tool_id: str, at: float) -> list[str]:
        """A call of this tool worked: its search is over. Returns the queries that it may have served, the first time:
        that of the search it was selected from, and those before it that led nowhere."""
        selection = self._selections.get(tool_id.casefold())
        shown = selection.result if selection is not None else None
        if shown is None or shown.used:
            return []
        shown.used = True
        served = self._asked_between(at - _LESSON_S, shown.at)
        for result in served:
            result.taught = True
        return list(dict.fromkeys(result.query for result in served if result.query))[-_MAX_LESSONS:]

    def _asked_between(self, first: float, last: float) -> list[_SearchResult]:
        return [result for result in self._results if first <= result.at <= last and not result.taught]

    def _resume(self, selection_id: str, tool_id: str, search: str) -> None:
        """Takes up a selection of an earlier process, with the search it came from."""
        result = next((result for result in reversed(self._results) if result.step == search), None)
        self._selections[tool_id.casefold()] = _Selection(selection_id, result)

    def restore(self, step: Step) -> None:
        """Takes up a step that an earlier process recorded."""
        if _is_search(step):
            self.add_result(step.id, step.query, step.at, step.results if step.step != "nodes" else ())
        elif step.selection:
            self._resume(step.selection, step.tool_id, step.search)
        if not step.code:
            self.expand(step.tool_id if step.step == "expand" else step.expanded, step.at)
        if step.step == "call" and not (step.code or step.is_error):
            self.use(step.tool_id, step.at)


def _is_search(step: Step) -> bool:
    """Whether somebody looked for a tool, and was answered, if only that there is none."""
    return step.step in {"list", "nodes", "search"} and step.code in {"", NoMatchInCategory.code}
