"""Where leaves that are no tools stand in the tree: under `Resources`, `Prompts` or `Skills`, by their server.

Beside the ontology and not in it: thousands of documents would move the tools about. A server with many resources is
divided as its addresses are. Above: the build.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from toolfold.catalogue.ontology.draft import rank_of
from toolfold.storage.base import fold_path
from toolfold.types import Node, Path, Tool

__all__ = ["PROMPTS", "RESOURCES", "SKILLS", "only_tools", "with_leaves"]

RESOURCES, PROMPTS, SKILLS = "Resources", "Prompts", "Skills"
_ROOTS = {"resource": RESOURCES, "template": RESOURCES, "prompt": PROMPTS, "skill": SKILLS}
_SUMMARIES = {
    RESOURCES: "Documents and data of servers, to be read: call_tool of one reads it",
    PROMPTS: "Prompts that servers offer: call_tool of one gives its text",
    SKILLS: "Instructions for kinds of work: call_tool of one gives its text",
}
# A place with more leaves than this is divided, where addresses say how; not deeper than this below its server.
FULL = 40
_DEPTH = 3
_MAX_NAME = 60

# With the folders of its address.
_Leaf = tuple[Tool, list[str]]


def only_tools(leaves: Iterable[Tool]) -> list[Tool]:
    return [leaf for leaf in leaves if leaf.kind == "tool"]


def with_leaves(
    tools: Iterable[Tool], nodes: tuple[Node, ...], placements: Mapping[str, tuple[Path, ...]]
) -> tuple[tuple[Node, ...], Mapping[str, tuple[Path, ...]]]:
    """The nodes and the paths of the tools, with those of the leaves among them that are no tools."""
    taken = {fold_path(node.path) for node in nodes}
    places: dict[str, Path] = {}
    by_shelf: dict[Path, list[Tool]] = {}
    for leaf in (tool for tool in tools if tool.kind != "tool"):
        by_shelf.setdefault((_root(_ROOTS[leaf.kind], taken), leaf.server), []).append(leaf)
    for shelf, own in by_shelf.items():
        _divide(shelf, [(leaf, _steps(leaf)) for leaf in own], _DEPTH, places)
    return (*nodes, *_nodes(places)), {**placements, **{tool_id: (path,) for tool_id, path in places.items()}}


def _root(name: str, taken: set[str]) -> str:
    return f"{name} of servers" if fold_path((name,)) in taken else name


def _steps(leaf: Tool) -> list[str]:
    """The folders of an address, its scheme first."""
    if leaf.kind == "prompt":
        return []
    scheme, _, rest = leaf.definition.address.partition("{")[0].partition(":")
    own = 2 if leaf.kind == "skill" else 1  # its folder is its name
    return [step[:_MAX_NAME] for step in (scheme, *rest.split("?")[0].split("/")[:-own]) if step.isprintable() and step]


def _divide(path: Path, leaves: Sequence[_Leaf], depth: int, places: dict[str, Path]) -> None:
    groups = _groups(_without_shared(leaves)) if len(leaves) > FULL and depth else {}
    largest = sorted(filter(None, groups), key=lambda key: (-len(groups[key]), key))[:FULL]
    below = {key: groups[key] for key in largest if len(groups[key]) > 1} if len(groups) > 1 else {}
    places.update((leaf.tool_id, path) for leaf, _ in leaves)
    for group in below.values():
        _divide((*path, group[0][1][0]), [(leaf, steps[1:]) for leaf, steps in group], depth - 1, places)


def _groups(leaves: Sequence[_Leaf]) -> dict[str, list[_Leaf]]:
    groups: dict[str, list[_Leaf]] = {}
    for leaf, steps in leaves:
        groups.setdefault(steps[0].casefold() if steps else "", []).append((leaf, steps))
    return groups


def _without_shared(leaves: Sequence[_Leaf]) -> Sequence[_Leaf]:
    """A step that all share tells nothing."""
    while all(steps for _, steps in leaves) and len({steps[0] for _, steps in leaves}) == 1:
        leaves = [(leaf, steps[1:]) for leaf, steps in leaves]
    return leaves


def _nodes(places: Mapping[str, Path]) -> list[Node]:
    own = Counter(places.values())
    below: Counter[Path] = Counter()
    for path, count in own.items():
        below.update({path[:depth]: count for depth in range(1, len(path) + 1)})
    children = Counter(path[:-1] for path in below if len(path) > 1)
    return [
        Node(
            path=path,
            summary=_summary(path, count),
            tags=(path[0].partition(" ")[0].lower(),),
            tools=count,
            own_tools=own[path],
            children=children[path],
            rank=rank_of(count) if len(path) > 1 else 0,  # behind what tools can do, however many they are
        )
        for path, count in sorted(below.items())
    ]


def _summary(path: Path, count: int) -> str:
    kind = path[0].partition(" ")[0]
    if len(path) == 1:
        return _SUMMARIES[kind]
    what = kind.lower() if count > 1 else kind.lower().removesuffix("s")
    return f"{count:,} {what} of {'/'.join(path[1:])}"
