"""The ontology while it is being made: which paths each tool has, what each category is about, and who its parents are.

The builders (capabilities, servers), then a person's rules, write into it; `nodes.py` turns it into values.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from toolfold.catalogue.ontology.dividing import Group, Item, label
from toolfold.catalogue.words import plural
from toolfold.storage.base import folded
from toolfold.types import Path, Tool


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
        self.about.setdefault(path, group_about(group, path[-2].lower()))

    def replace_prefix(self, old: Path, new: Path) -> bool:
        """Moves a category with everything below it; says whether there was one."""
        names = {folded(path): path[-1] for path in self.node_paths() if path[: len(old)] != old}

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
        return _spelled(path, {folded(known): known[-1] for known in self.node_paths()})

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
    return tuple(names.get(folded(path[: end + 1]), name) for end, name in enumerate(path))


def group_about(group: Group, above: str) -> About:
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


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words)
