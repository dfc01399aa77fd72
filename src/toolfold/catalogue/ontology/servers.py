"""The second view: the same tools by the server they come from, under one root category.

Up to forty servers stand side by side. More are grouped by what they are mainly for, and such a group again where it is
too large. A server with one tool is not made into a category: its tool stands in its place.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from toolfold.catalogue.ontology.classifier import UNPLACED, Placement
from toolfold.catalogue.ontology.division import ROOM, Item, subdivide
from toolfold.catalogue.ontology.draft import About, Draft, join_words
from toolfold.catalogue.ontology.facets import Facets
from toolfold.catalogue.ontology.taxonomy import taxonomy
from toolfold.types import Path
from toolfold.words import name_words

SERVERS = "Servers"
ALL_SERVERS = "All tools by the server they come from"
SIDE_BY_SIDE = 40
FEWEST = 3
FULL_SERVER = 24
"""A server with more tools than this is divided."""

Use = tuple[int, int]
"""A domain and a part of it, by number."""


def add_server_view(draft: Draft, items: Sequence[Item], places: Sequence[Placement]) -> None:
    """Adds to every tool its place under its server."""
    members: dict[str, list[Item]] = defaultdict(list)
    uses: dict[str, Counter[Use]] = defaultdict(Counter)
    for item, place in zip(items, places, strict=True):
        members[item.server].append(item)
        uses[item.server][place.domain, UNPLACED if place.part is None else place.part] += 1
    if len(members) < 2:
        return
    draft.about[SERVERS,] = About(ALL_SERVERS, ("server",), second_view=True)
    names = _names(members)
    shelves = _shelves(draft, {server: _main(counts) for server, counts in uses.items()})
    for path, servers in shelves.items():
        beside = sum(1 for other in shelves if other[: len(path)] == path)
        shown = beside + sum(min(2, len(members[server])) for server in servers)
        for server in servers:
            small = 2 if shown <= ROOM else 1
            _place_server(draft, (*path, names[server]), members[server], uses[server], small=small)


def _names(members: Mapping[str, Sequence[Item]]) -> dict[str, str]:
    """The category's name per server: its own, told apart where two differ in letter case only."""
    seen: Counter[str] = Counter()
    names: dict[str, str] = {}
    for server in sorted(members):
        seen[server.casefold()] += 1
        count = seen[server.casefold()]
        names[server] = server if count == 1 else f"{server} ({count})"
    return names


def _main(uses: Counter[Use]) -> Use:
    return min(uses, key=lambda use: (-uses[use], use))


def _shelves(draft: Draft, mains: Mapping[str, Use]) -> dict[Path, list[str]]:
    """Which servers stand under which path."""
    known = taxonomy()
    if len(mains) <= SIDE_BY_SIDE:
        return {(SERVERS,): sorted(mains)}
    by_domain: dict[str, list[str]] = defaultdict(list)
    for server in sorted(mains):
        domain = mains[server][0]
        by_domain["Other" if domain == UNPLACED else known.domains[domain].name].append(server)
    shelves: dict[Path, list[str]] = {}
    for name, servers in by_domain.items():
        path = (SERVERS, name)
        draft.about[path] = draft.about[name,]
        shelves |= {path: servers} if len(servers) <= SIDE_BY_SIDE else _shelves_by_part(draft, path, servers, mains)
    return shelves


def _shelves_by_part(draft: Draft, path: Path, servers: list[str], mains: Mapping[str, Use]) -> dict[Path, list[str]]:
    known = taxonomy()
    by_part: dict[int, list[str]] = defaultdict(list)
    for server in servers:
        by_part[mains[server][1]].append(server)
    large = [part for part in sorted(by_part) if part != UNPLACED and len(by_part[part]) >= FEWEST]
    rest = [server for server in servers if mains[server][1] not in large]
    shelves: dict[Path, list[str]] = defaultdict(list)
    for part in large:
        below = (*path, known.parts[part].name)
        draft.about[below] = About(known.parts[part].summary, known.parts[part].tags)
        _shelve(draft, below, by_part[part], shelves, ROOM)
    _shelve(draft, path, rest, shelves, ROOM - len(large))
    return shelves


def _shelve(draft: Draft, path: Path, servers: Sequence[str], shelves: dict[Path, list[str]], room: int) -> None:
    said = frozenset(name_words(" ".join(path)))
    for leaf in subdivide(path, [_as_item(server) for server in servers], said, draft.describe_group, room):
        shelves[leaf.path] += [item.order for item in leaf.items]


def _as_item(server: str) -> Item:
    words = tuple(dict.fromkeys(word for word in name_words(server) if len(word) > 2))
    return Item(server, Facets(words, (), "More servers", "use"), server)


def _place_server(draft: Draft, path: Path, members: Sequence[Item], uses: Counter[Use], *, small: int) -> None:
    if len(members) <= small:
        for item in members:
            draft.put(item.order, path[:-1])
        return
    draft.about[path] = About(_summary(uses), ("server",))
    ordered = sorted(members, key=lambda item: item.order)
    said = frozenset(name_words(path[-1]))
    for leaf in subdivide(path, ordered, said, draft.describe_group, FULL_SERVER):
        for item in leaf.items:
            draft.put(item.order, leaf.path)


def _summary(uses: Counter[Use]) -> str:
    """What a server is good for: the capabilities that most of its tools have."""
    known = taxonomy()
    common = sorted((use for use in uses if use[1] != UNPLACED), key=lambda use: (-uses[use], use))[:3]
    return join_words([known.parts[part].name for _, part in common]) or "Tools of this server"
