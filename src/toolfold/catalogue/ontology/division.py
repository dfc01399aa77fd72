"""Divides the tools of a full category by meaning: by the thing they act on, then by what they do to it.

A group is made only where it is large enough, and a tool without a group stays where it is. Which group a tool would
join depends on its own words alone, so a removed tool moves others only where a group becomes too small.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from toolfold.catalogue.ontology.facets import THINGS, Facets
from toolfold.types import Path
from toolfold.words import plural

MOST_CHILDREN = 50
"""What one listing may show at most."""
ROOM = 40
"""What a division aims for, so that a few more tools do not overflow it."""
SMALLEST_GROUP = 3


class Item(Struct, frozen=True):
    """A tool, or a server, as the division sees it. `order` breaks ties and is unique."""

    order: str
    facets: Facets
    server: str = ""
    part: str = ""
    """The name of its capability, for views that are not by capability."""


class Group(Struct, frozen=True):
    """A child to be: its name, what it stands for, and its items."""

    name: str
    about: str
    action: str
    items: tuple[Item, ...]


class _Division(Struct, frozen=True):
    groups: tuple[Group, ...]
    own: tuple[Item, ...]


def _divide(items: Sequence[Item], known: Iterable[str]) -> _Division:
    """One level of groups. `known` are words the category's own name already says."""
    said = frozenset(known)
    keys = [_keys(item.facets, said) for item in items]
    smallest = SMALLEST_GROUP
    while True:
        division = _divide_by_keys(items, keys, smallest)
        if len(division.groups) + len(division.own) <= MOST_CHILDREN or smallest > len(items):
            return division
        smallest *= 2


class _Key(Struct, frozen=True):
    name: str
    noun: str = ""
    action: str = ""


def _keys(facets: Facets, said: frozenset[str]) -> tuple[_Key, ...]:
    """By what a tool may be grouped, best first: a thing that its name speaks of and the category does not; else what
    it does to the category's own thing; last, what it does, and where that is said, any thing or word it speaks of."""
    noun = next((noun for noun in facets.objects if noun not in said), None)
    if facets.action in said:
        noun = noun or next((noun for noun in facets.mentioned if noun not in said), None)
        last = _Key(label(facets.head) if facets.head else facets.verb.capitalize(), action=facets.action)
    else:
        last = _Key(facets.action, action=facets.action)
    if noun is not None:
        return (_Key(label(noun), noun), last)
    if facets.objects and facets.action not in said:
        own = facets.objects[0]
        return (_Key(f"{label(own)}: {facets.action.lower()}", own, facets.action), last)
    return (last,)


def _divide_by_keys(items: Sequence[Item], keys: Sequence[tuple[_Key, ...]], smallest: int) -> _Division:
    """Groups by first keys, those without enough company by their next; the last stay."""
    groups: list[Group] = []
    rest = list(zip(items, keys, strict=True))
    for turn in range(2):
        found: dict[_Key, list[Item]] = defaultdict(list)
        for item, wishes in rest:
            if turn < len(wishes):
                found[wishes[turn]].append(item)
        large = {key for key, members in found.items() if key.name and len(members) >= smallest}
        ordered = sorted(large, key=lambda key: key.name)
        groups += [Group(key.name, key.noun, key.action, tuple(found[key])) for key in ordered]
        rest = [(item, wishes) for item, wishes in rest if turn >= len(wishes) or wishes[turn] not in large]
    return _Division(_merged(groups), tuple(item for item, _ in rest))


def _merged(groups: Sequence[Group]) -> tuple[Group, ...]:
    """One group a name: a later turn may make one that an earlier turn made already."""
    by_name: dict[str, Group] = {}
    for group in groups:
        before = by_name.get(group.name)
        by_name[group.name] = replace(before, items=before.items + group.items) if before else group
    return tuple(by_name.values())


def label(key: str) -> str:
    """The name of a group from its key: `pull request` → `Pull requests`. An unknown word stays as it is."""
    *front, last = key.split(" ")
    text = " ".join((*front, plural(last))) if key in THINGS else key
    return text[0].upper() + text[1:]


class _Leaf(Struct, frozen=True):
    """Where a division ended: the path and the items that stand there themselves."""

    path: Path
    items: tuple[Item, ...]


Describe = Callable[[Path, Group], None]
"""Told of every group that becomes a category."""


def subdivide(path: Path, items: Sequence[Item], known: frozenset[str], describe: Describe, room: int) -> list[_Leaf]:
    """Divides until no category shows more than `MOST_CHILDREN`. Up to `room` tools stay at `path` undivided."""
    if len(items) <= room:
        return [_Leaf(path, tuple(items))]
    division = _divide(items, known)
    if room == MOST_CHILDREN:
        division = _as_few_as_needed(division)
    largest = max((len(group.items) for group in division.groups), default=0)
    if not division.groups or largest == len(items) or len(division.groups) + len(division.own) > MOST_CHILDREN:
        division = _last_resort(items, path)
    leaves = [_Leaf(path, division.own)] if division.own else []
    for group in division.groups:
        below = (*path, group.name)
        describe(below, group)
        leaves += subdivide(below, group.items, known | {group.about, group.action}, describe, MOST_CHILDREN)
    return leaves


def _as_few_as_needed(division: _Division) -> _Division:
    """Keeps the smallest groups, just enough that the rest fits: a category that just overflowed moves few tools."""
    ordered = sorted(division.groups, key=lambda group: (len(group.items).bit_length(), group.name))
    left = sum(len(group.items) for group in ordered) + len(division.own)
    kept = 0
    while kept < len(ordered) and left + kept > MOST_CHILDREN:
        left -= len(ordered[kept].items)
        kept += 1
    loose = tuple(item for group in ordered[kept:] for item in group.items)
    return _Division(tuple(ordered[:kept]), division.own + loose)


def _last_resort(items: Sequence[Item], path: Path) -> _Division:
    """Tools that say the same in the same words: by capability, by any word of their names, by server, and where even
    that fails, in sets of equal size."""
    for name_of in (_part, _head, _server):
        by_name: dict[str, list[Item]] = defaultdict(list)
        for item in items:
            by_name[name_of(item)].append(item)
        enough = {name for name, found in by_name.items() if len(found) >= SMALLEST_GROUP}
        large = enough - {"", *path}
        own = tuple(item for item in items if name_of(item) not in large)
        if large and max(map(len, by_name.values())) < len(items) and len(large) + len(own) <= MOST_CHILDREN:
            return _Division(tuple(Group(name, "", name, tuple(by_name[name])) for name in sorted(large)), own)
    ordered = sorted(items, key=lambda item: (item.server, item.order))
    size = max(ROOM, -(-len(ordered) // ROOM))
    sets = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    return _Division(tuple(Group(f"Set {n}", "", "set", tuple(found)) for n, found in enumerate(sets, 1)), ())


def _head(item: Item) -> str:
    return label(item.facets.head) if item.facets.head else ""


def _part(item: Item) -> str:
    return item.part


def _server(item: Item) -> str:
    return item.server
