"""What a model reads with `list` on its way from the root to a tool, in exact tokens and calls.

The walker reads a listing page by page (`limit` entries each, in the order of `list`: fuller categories first, then
tools), opens the right category as soon as it sees it, and stops at the page that shows the tool. Of several places the
cheapest counts.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from benchmarks.measurement import percentile
from toolfold.tokens import count
from toolfold.types import Node, Path, Tool

ALLOWED_CALLS = 4


class Entry(msgspec.Struct, frozen=True):
    """One line of a listing: a category by its path or a tool by its id, and what it costs to read."""

    key: Path | str
    tokens: int


class Listings:
    """Every listing of an ontology, counted once."""

    def __init__(self, tools: Iterable[Tool], nodes: Sequence[Node], placements: Mapping[str, Sequence[Path]]) -> None:
        children: dict[Path, list[Node]] = defaultdict(list)
        for node in nodes:
            for parent in (node.path[:-1], *node.parents):
                children[parent].append(node)
        at: dict[Path, list[Entry]] = defaultdict(list)
        for tool in sorted(tools, key=lambda tool: tool.tool_id):
            paths = placements[tool.tool_id]
            entry = Entry(tool.tool_id, _pointer_tokens(tool, paths[0]) if paths else 0)
            for path in paths:
                at[path].append(entry)
        entries = {node.path: Entry(node.path, _node_tokens(node)) for node in nodes}
        self.at: dict[Path, list[Entry]] = {}
        self.frame: dict[Path, int] = {}
        for path in ((), *entries):
            ordered = sorted(children[path], key=lambda node: (node.rank, node.name.casefold()))
            self.at[path] = [entries[node.path] for node in ordered] + at[path]
            self.frame[path] = _tokens({"path": path, "nodes": [], "tools": [], "next_cursor": None})


class Reached(msgspec.Struct, frozen=True):
    calls: int
    tokens: int


def walk(listings: Listings, limit: int) -> dict[str, Reached]:
    """The cheapest way to each tool: within the allowed calls where there is one, else at all."""
    opened: dict[Path, Reached] = {(): Reached(0, 0)}
    found: dict[str, Reached] = {}
    waiting: list[Path] = [()]
    while waiting:
        path = waiting.pop(0)
        calls, tokens = opened[path].calls, opened[path].tokens
        entries = listings.at[path]
        for start in range(0, len(entries), limit):
            page = entries[start : start + limit]
            calls += 1
            tokens += listings.frame[path] + sum(entry.tokens for entry in page)
            here = Reached(calls, tokens)
            for entry in page:
                if isinstance(entry.key, str):
                    found[entry.key] = min(found.get(entry.key, here), here, key=_cost)
                elif entry.key not in opened or _cost(here) < _cost(opened[entry.key]):
                    opened[entry.key] = here
                    waiting.append(entry.key)
    return found


def _cost(reached: Reached) -> tuple[bool, int, int]:
    return (reached.calls > ALLOWED_CALLS, reached.tokens, reached.calls)


def walking_figures(listings: Listings, limit: int) -> dict[str, float]:
    reached = list(walk(listings, limit).values())
    tokens = [one.tokens for one in reached]
    calls = [one.calls for one in reached]
    return {
        "tokens_median": percentile(tokens, 0.5),
        "tokens_p90": percentile(tokens, 0.9),
        "calls_median": percentile(calls, 0.5),
        "calls_p90": percentile(calls, 0.9),
        "share_within_4_calls": round(sum(one <= ALLOWED_CALLS for one in calls) / max(1, len(calls)), 4),
    }


def _node_tokens(node: Node) -> int:
    return _tokens({"name": node.name, "path": node.path, "summary": node.summary, "tags": node.tags}) + 1


def _pointer_tokens(tool: Tool, path: Path) -> int:
    shown = {"tool_id": tool.tool_id, "path": path, "summary": tool.summary, "tags": tool.tags, "confidence": None}
    return _tokens(shown) + 1


def _tokens(value: object) -> int:
    """Tokens of compact JSON; the `+ 1` of an entry is the comma that separates it."""
    return count(msgspec.json.encode(value).decode())
