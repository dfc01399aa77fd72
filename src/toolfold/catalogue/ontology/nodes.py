"""Turns a finished draft into nodes: every path with its summary, tags and true counts."""

from collections import defaultdict

from toolfold.catalogue.ontology.draft import About, Draft
from toolfold.types import Node, Path


def make_nodes(draft: Draft) -> tuple[Node, ...]:
    paths = draft.node_paths()
    own = draft.tools_at()
    present = set(paths)
    parents = {path: _further_parents(draft, path, present) for path in paths}
    children: dict[Path, set[Path]] = defaultdict(set)
    for path in paths:
        for parent in (path[:-1], *parents[path]):
            children[parent].add(path)
    below: dict[Path, set[str]] = {}

    def tools_below(path: Path, above: frozenset[Path]) -> set[str]:
        """Ids at or below a path, once each; a loop of parents ends where it closes."""
        if path not in below:
            found = set(own.get(path, ()))
            for child in children[path]:
                if child not in above:
                    found |= tools_below(child, above | {path})
            below[path] = found
        return below[path]

    def node(path: Path) -> Node:
        about = draft.about.get(path) or About(f"{path[-1]}: what was put here by hand")
        tools = len(tools_below(path, frozenset((path,))))
        return Node(
            path=path,
            summary=about.summary,
            tags=about.tags,
            tools=tools,
            own_tools=len(own.get(path, ())),
            children=len(children[path]),
            parents=parents[path],
            rank=1 if about.second_view else rank_of(tools),
        )

    return tuple(node(path) for path in paths)


def rank_of(tools: int) -> int:
    """Fuller categories first, in steps of doubling: a few tools more or less seldom change the order."""
    return -tools.bit_length()


def _further_parents(draft: Draft, path: Path, present: set[Path]) -> tuple[Path, ...]:
    """Parents that exist, are not its own parent already, and are not below it."""
    return tuple(
        parent
        for parent in sorted(set(draft.parents.get(path, ())))
        if parent in present and parent != path[:-1] and parent[: len(path)] != path
    )
