"""The ontology while it is being made: which paths each tool has, what each category is about, and who its parents are.

The builders (capabilities, servers), then a person's rules, write into it; `nodes.py` turns it into values.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from toolfold.catalogue.ontology.division import MOST_CHILDREN, Group, Item, label, subdivide
from toolfold.storage.base import fold_path
from toolfold.types import Node, Path, Tool
from toolfold.words import plural, text_words


class About(Struct, frozen=True):
    """What a category says of itself. A `second_view` of the same tools stands after all others."""

    summary: str
    tags: tuple[str, ...] = ()
    second_view: bool = False


class Draft:
    def __init__(self, tools: Sequence[Tool]) -> None:
        self.paths: dict[str, list[Path]] = {tool.tool_id: [] for tool in tools}
        self.about: dict[Path, About] = {}
        self.parents: dict[Path, list[Path]] = {}
        self.warnings: list[str] = []

    def put(self, tool_id: str, path: Path) -> None:
        """Adds a place after those it has."""
        if path not in self.paths[tool_id]:
            self.paths[tool_id].append(path)

    def describe_group(self, path: Path, group: Group) -> None:
        self.about.setdefault(path, _group_about(group, path[-2].lower()))

    def replace_prefix(self, old: Path, new: Path) -> bool:
        """Moves a category with everything below it; says whether there was one."""
        names = {fold_path(path): path[-1] for path in self.node_paths() if path[: len(old)] != old}

        def replaced(path: Path) -> Path:
            return _spelled((*new, *path[len(old) :]), names) if path[: len(old)] == old else path

        changed = False
        for tool_id, paths in self.paths.items():
            changed = changed or any(path[: len(old)] == old for path in paths)
            self.paths[tool_id] = list(dict.fromkeys(map(replaced, paths)))
        self.about = {replaced(path): about for path, about in self.about.items()}
        self.parents = {replaced(path): list(map(replaced, parents)) for path, parents in self.parents.items()}
        return changed

    def spelled(self, path: Path) -> Path:
        """A path that a person wrote, in the letters of the categories that are there: letter case does not count."""
        return _spelled(path, {fold_path(known): known[-1] for known in self.node_paths()})

    def tools_at(self) -> dict[Path, list[str]]:
        found: dict[Path, list[str]] = {}
        for tool_id, paths in self.paths.items():
            for path in paths:
                found.setdefault(path, []).append(tool_id)
        return found

    def node_paths(self) -> list[Path]:
        """Every category that holds a tool at or below it, sorted."""
        return sorted(
            {path[:end] for paths in self.paths.values() for path in paths for end in range(1, len(path) + 1)}
        )


def _spelled(path: Path, names: Mapping[str, str]) -> Path:
    return tuple(names.get(fold_path(path[: end + 1]), name) for end, name in enumerate(path))


def _group_about(group: Group, above: str) -> About:
    """What one can do in a category made from its tools: their usual verbs, and the things they share."""
    verbs = _verbs(group.items)
    if group.about:
        words = group.about.split(" ")
        return About(f"{verbs} {' '.join((*words[:-1], plural(words[-1])))}", (words[-1],))
    return About(f"{verbs} {_objects(group.items) or above}", tuple(group.action.lower().split()[:1]))


_NOT_SAID = frozenset(("all", "new", "batch", "bulk", "use", "do", "type", "head"))


def _verbs(items: Sequence[Item]) -> str:
    counts = Counter(item.facets.verb for item in items if item.facets.verb and item.facets.verb not in _NOT_SAID)
    common = [verb for verb, _ in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:3]] or ["use"]
    return ", ".join(common).capitalize()


def _objects(items: Sequence[Item]) -> str:
    counts = Counter(item.facets.objects[0] for item in items if item.facets.objects)
    common = [noun for noun, _ in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:3]]
    return ", ".join(label(noun).lower() for noun in common)


def join_words(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words)


# --- Turns a finished draft into nodes: every path with its summary, tags and true counts.


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


# --- The last check: no category shows more than fifty children, whatever rules or further parents have brought the


def limit_children(draft: Draft, items: Sequence[Item]) -> None:
    """Divides the own tools of a category that shows too much; says so where its categories alone are too many."""
    by_id = {item.order: item for item in items}
    children = _children(draft)
    for path, tool_ids in sorted(draft.tools_at().items()):
        below = len(children[path])
        if len(tool_ids) + below <= MOST_CHILDREN:
            continue
        said = frozenset(text_words(" ".join(path)))
        own = [by_id[tool_id] for tool_id in sorted(tool_ids)]
        names = {child[-1].casefold() for child in children[path] if child[:-1] == path}
        for leaf in subdivide(path, own, said, draft.describe_group, 0):
            where = _beside(leaf.path, len(path), names)
            if where != leaf.path and leaf.path in draft.about:
                draft.about.setdefault(where, draft.about[leaf.path])
            for item in leaf.items:
                draft.paths[item.order] = [where if one == path else one for one in draft.paths[item.order]]
    for path, found in sorted(_children(draft).items()):
        if len(found) > MOST_CHILDREN:
            shown = list(path) or "the root"
            draft.warnings.append(f"{shown} shows {len(found)} categories; put some of them below another one")


def _children(draft: Draft) -> dict[Path, set[Path]]:
    found: dict[Path, set[Path]] = defaultdict(set)
    for path in draft.node_paths():
        for parent in (path[:-1], *draft.parents.get(path, ())):
            found[parent].add(path)
    return found


def _beside(path: Path, depth: int, names: set[str]) -> Path:
    """A new category must not run into one that is there already."""
    if len(path) > depth and path[depth].casefold() in names:
        return (*path[:depth], f"{path[depth]} (more)", *path[depth + 1 :])
    return path
