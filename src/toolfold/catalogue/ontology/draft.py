"""The ontology while it is being made: which paths each tool has, what each category is about, and who its parents are.

The views, then a person's rules, write into a `Draft`; `make_nodes` turns it into values.

A full category is divided by meaning: by the thing its tools act on, then by what they do to it. A group is made only
where it is large enough, and a tool without a group stays where it is. Which group a tool would join depends on its own
words alone, so a removed tool moves others only where a group becomes too small.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from toolfold.catalogue.ontology.facets import Facets, is_thing
from toolfold.storage.base import fold_path
from toolfold.types import Node, Path, Tool
from toolfold.words import plural, text_words

# What one listing may show at most.
MOST_CHILDREN = 50
# What a division aims for, so that a few more tools do not overflow it.
ROOM = 40

_SMALLEST_GROUP = 3


class Item(Struct, frozen=True):
    """A tool, or a server, as the division sees it. `order` breaks ties and is unique."""

    order: str
    facets: Facets
    server: str = ""
    part: str = ""
    """The name of its capability, for views that are not by capability."""


class _Group(Struct, frozen=True):
    """A child to be: its name, what it stands for, and its items."""

    name: str
    about: str
    action: str
    items: tuple[Item, ...]


class _Division(Struct, frozen=True):
    groups: tuple[_Group, ...]
    own: tuple[Item, ...]

    @property
    def children(self) -> int:
        return len(self.groups) + len(self.own)


class _Leaf(Struct, frozen=True):
    """Where a division ended: the path and the items that stand there themselves."""

    path: Path
    items: tuple[Item, ...]


# Called with every group that becomes a category.
Describe = Callable[[Path, _Group], None]


def subdivide(path: Path, items: Sequence[Item], covered: frozenset[str], describe: Describe, room: int) -> list[_Leaf]:
    """Divides until no category shows more than `MOST_CHILDREN`. Up to `room` tools stay at `path` undivided.

    `covered` are the words that the category's own name says already.
    """
    if len(items) <= room:
        return [_Leaf(path, tuple(items))]
    division = _divide(items, covered)
    if room == MOST_CHILDREN:
        division = _as_few_as_needed(division)
    largest = max((len(group.items) for group in division.groups), default=0)
    if not division.groups or largest == len(items) or division.children > MOST_CHILDREN:
        division = _last_resort(items, path)
    leaves = [_Leaf(path, division.own)] if division.own else []
    for group in division.groups:
        below = (*path, group.name)
        describe(below, group)
        leaves += subdivide(below, group.items, covered | {group.about, group.action}, describe, MOST_CHILDREN)
    return leaves


def _label(key: str) -> str:
    """The name of a group from its key: `pull request` → `Pull requests`. An unknown word stays as it is."""
    *front, last = key.split(" ")
    text = " ".join((*front, plural(last))) if is_thing(key) else key
    return text[0].upper() + text[1:]


def _divide(items: Sequence[Item], covered: frozenset[str]) -> _Division:
    """One level of groups, as small as the limit of children allows."""
    keys = [_keys(item.facets, covered) for item in items]
    smallest = _SMALLEST_GROUP
    while True:
        division = _divide_by_keys(items, keys, smallest)
        if division.children <= MOST_CHILDREN or smallest > len(items):
            return division
        smallest *= 2


class _Key(Struct, frozen=True):
    name: str
    noun: str = ""
    action: str = ""


# Nothing is grouped by it: a tool without a second wish stays where it is.
_NO_KEY = _Key("")


def _keys(facets: Facets, covered: frozenset[str]) -> tuple[_Key, _Key]:
    """By what a tool may be grouped, best first: a thing that its name speaks of and the category does not; else what
    it does to the category's own thing; last, what it does, and where that is covered, any other word of its name."""
    noun = _uncovered(facets.objects, covered)
    if facets.action in covered:
        noun = noun or _uncovered(facets.mentioned, covered)
        last = _Key(_label(facets.head) if facets.head else facets.verb.capitalize(), action=facets.action)
    else:
        last = _Key(facets.action, action=facets.action)
    if noun is not None:
        return (_Key(_label(noun), noun), last)
    if facets.objects and facets.action not in covered:
        own = facets.objects[0]
        return (_Key(f"{_label(own)}: {facets.action.lower()}", own, facets.action), last)
    return (last, _NO_KEY)


def _uncovered(nouns: Sequence[str], covered: frozenset[str]) -> str | None:
    return next((noun for noun in nouns if noun not in covered), None)


def _divide_by_keys(items: Sequence[Item], keys: Sequence[tuple[_Key, _Key]], smallest: int) -> _Division:
    """Groups by first keys, those without enough company by their next; the last stay."""
    # By name: the second turn may make a group that the first one made already.
    groups: dict[str, _Group] = {}
    rest = list(zip(items, keys, strict=True))
    for turn in range(2):
        members: dict[_Key, list[Item]] = defaultdict(list)
        for item, wishes in rest:
            members[wishes[turn]].append(item)
        large = {key for key in members if key.name and len(members[key]) >= smallest}
        for key in sorted(large, key=lambda key: key.name):
            group = groups.get(key.name, _Group(key.name, key.noun, key.action, ()))
            groups[key.name] = replace(group, items=group.items + tuple(members[key]))
        rest = [(item, wishes) for item, wishes in rest if wishes[turn] not in large]
    return _Division(tuple(groups.values()), tuple(item for item, _ in rest))


def _as_few_as_needed(division: _Division) -> _Division:
    """Keeps the smallest groups, just enough that the rest fits: a category that just overflowed moves few tools."""
    ordered = sorted(division.groups, key=lambda group: (len(group.items).bit_length(), group.name))
    left = sum(len(group.items) for group in ordered) + len(division.own)
    count = 0
    while count < len(ordered) and left + count > MOST_CHILDREN:
        left -= len(ordered[count].items)
        count += 1
    loose = tuple(item for group in ordered[count:] for item in group.items)
    return _Division(tuple(ordered[:count]), division.own + loose)


def _last_resort(items: Sequence[Item], path: Path) -> _Division:
    """Tools that say the same in the same words: by capability, by any word of their names, by server, and where even
    that fails, in sets of equal size."""
    for names in (
        [item.part for item in items],
        [_label(item.facets.head) if item.facets.head else "" for item in items],
        [item.server for item in items],
    ):
        division = _divide_by_names(items, names, path)
        if division is not None:
            return division
    ordered = sorted(items, key=lambda item: (item.server, item.order))
    size = max(ROOM, -(-len(ordered) // ROOM))
    sets = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    return _Division(tuple(_Group(f"Set {n}", "", "set", tuple(members)) for n, members in enumerate(sets, 1)), ())


def _divide_by_names(items: Sequence[Item], names: Sequence[str], path: Path) -> _Division | None:
    members: dict[str, list[Item]] = defaultdict(list)
    for item, name in zip(items, names, strict=True):
        members[name].append(item)
    large = {name for name in members if len(members[name]) >= _SMALLEST_GROUP} - {"", *path}
    own = tuple(item for item, name in zip(items, names, strict=True) if name not in large)
    if not large or len(members) == 1 or len(large) + len(own) > MOST_CHILDREN:
        return None
    return _Division(tuple(_Group(name, "", name, tuple(members[name])) for name in sorted(large)), own)


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

    def describe_group(self, path: Path, group: _Group) -> None:
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
        return _spelled(path, {fold_path(present): present[-1] for present in self.node_paths()})

    def tools_at(self) -> dict[Path, list[str]]:
        """The ids of the tools right at each path."""
        tools: dict[Path, list[str]] = defaultdict(list)
        for tool_id, paths in self.paths.items():
            for path in paths:
                tools[path].append(tool_id)
        return tools

    def node_paths(self) -> list[Path]:
        """Every category that holds a tool at or below it, sorted."""
        return sorted(
            {path[:end] for paths in self.paths.values() for path in paths for end in range(1, len(path) + 1)}
        )


def _spelled(path: Path, names: Mapping[str, str]) -> Path:
    return tuple(names.get(fold_path(path[: end + 1]), name) for end, name in enumerate(path))


def _group_about(group: _Group, above: str) -> About:
    """What one can do in a category made from its tools: their usual verbs, and the things they share."""
    verbs = _verbs(group.items)
    if group.about:
        words = group.about.split(" ")
        return About(f"{verbs} {' '.join((*words[:-1], plural(words[-1])))}", (words[-1],))
    return About(f"{verbs} {_objects(group.items) or above}", tuple(group.action.lower().split()[:1]))


# Verbs that say nothing in a summary.
_VAGUE_VERBS = frozenset(("", "all", "new", "batch", "bulk", "use", "do", "type", "head"))


def _verbs(items: Sequence[Item]) -> str:
    verbs = _most_common(item.facets.verb for item in items if item.facets.verb not in _VAGUE_VERBS)
    return ", ".join(verbs or ["use"]).capitalize()


def _objects(items: Sequence[Item]) -> str:
    nouns = _most_common(item.facets.objects[0] for item in items if item.facets.objects)
    return ", ".join(_label(noun).lower() for noun in nouns)


def _most_common(words: Iterable[str]) -> list[str]:
    counts = Counter(words)
    # Ties go by name: in the order of the tools, as `Counter.most_common` has it, one more tool would reword a summary.
    return sorted(counts, key=lambda word: (-counts[word], word))[:3]


def make_nodes(draft: Draft) -> tuple[Node, ...]:
    """A finished draft as nodes: every path with its summary, tags and true counts."""
    paths = draft.node_paths()
    own = draft.tools_at()
    present = set(paths)
    parents = {path: _further_parents(draft, path, present) for path in paths}
    children = _children(paths, parents)
    below: dict[Path, set[str]] = {}

    def tools_below(path: Path, above: frozenset[Path]) -> set[str]:
        """Ids at or below a path, once each; a loop of parents ends where it closes."""
        if path not in below:
            tools = set(own.get(path, ()))
            for child in children[path]:
                if child not in above:
                    tools |= tools_below(child, above | {path})
            below[path] = tools
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


def limit_children(draft: Draft, items: Sequence[Item]) -> None:
    """Divides the own tools of a category that shows more than fifty children, whatever rules or further parents have
    brought there; warns where its categories alone are too many."""
    by_id = {item.order: item for item in items}
    children = _children(draft.node_paths(), draft.parents)
    for path, tool_ids in sorted(draft.tools_at().items()):
        if len(tool_ids) + len(children[path]) > MOST_CHILDREN:
            taken = {child[-1].casefold() for child in children[path] if child[:-1] == path}
            _divide_own(draft, path, [by_id[tool_id] for tool_id in sorted(tool_ids)], taken)
    for path, below in sorted(_children(draft.node_paths(), draft.parents).items()):
        if len(below) > MOST_CHILDREN:
            where = list(path) or "the root"
            draft.warnings.append(f"{where} shows {len(below)} categories; put some of them below another one")


def _divide_own(draft: Draft, path: Path, own: Sequence[Item], taken: set[str]) -> None:
    covered = frozenset(text_words(" ".join(path)))
    for leaf in subdivide(path, own, covered, draft.describe_group, 0):
        target = _beside(leaf.path, len(path), taken)
        if target != leaf.path and leaf.path in draft.about:
            draft.about.setdefault(target, draft.about[leaf.path])
        for item in leaf.items:
            draft.paths[item.order] = [target if place == path else place for place in draft.paths[item.order]]


def _beside(path: Path, depth: int, taken: set[str]) -> Path:
    """A new category must not run into one that is there already."""
    if len(path) > depth and path[depth].casefold() in taken:
        return (*path[:depth], f"{path[depth]} (more)", *path[depth + 1 :])
    return path


def _children(paths: Sequence[Path], parents: Mapping[Path, Sequence[Path]]) -> dict[Path, set[Path]]:
    children: dict[Path, set[Path]] = defaultdict(set)
    for path in paths:
        for parent in (path[:-1], *parents.get(path, ())):
            children[parent].add(path)
    return children
