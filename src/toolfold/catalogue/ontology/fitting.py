"""The last check: no category shows more than fifty children, whatever rules or further parents have brought there."""

from collections import defaultdict
from collections.abc import Sequence

from toolfold.catalogue.ontology.dividing import MOST_CHILDREN, Item, spread
from toolfold.catalogue.ontology.draft import Draft
from toolfold.catalogue.words import text_words
from toolfold.types import Path


def fit(draft: Draft, items: Sequence[Item]) -> None:
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
        for leaf in spread(path, own, said, draft.describe_group, 0):
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
