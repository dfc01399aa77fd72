"""The two views of the ontology: the same tools by what they do, and by the server they come from.

By capability there are domains, their parts, and groups below parts that are full. Small catalogues get a shallow tree:
a domain with few tools has no parts, and a part with one or two tools is not made; its tools go to the next part they
fit, or stay with the domain.

By server, up to forty stand side by side. More are grouped by what they are mainly for, and such a group again where it
is too large. A server with one tool is not made into a category: its tool stands in its place.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from toolfold.catalogue.ontology.classifier import UNPLACED, Placement
from toolfold.catalogue.ontology.draft import MOST_CHILDREN, ROOM, About, Draft, Item, subdivide
from toolfold.catalogue.ontology.facets import Facets
from toolfold.catalogue.ontology.taxonomy import Taxonomy, taxonomy
from toolfold.types import Path
from toolfold.words import name_words, text_words

OTHER: Path = ("Other",)
NO_OTHER = "Tools that fit no other category"
# A domain or part with fewer tools is not made where its tools fit elsewhere.
FEWEST = 3
# A domain with so many tools or fewer shows them all at once.
FLAT_DOMAIN = 12
# A part with more tools than this is divided.
FULL_PART = 16


class _Settled(Struct, frozen=True):
    """Where a tool stands after counting: the domain, and the part unless it stands with the domain itself."""

    domain: int
    part: int | None = None


def add_capability_view(draft: Draft, items: Sequence[Item], places: Sequence[Placement]) -> None:
    """Writes the primary place of every tool, then its second one where it has two capabilities. A tool that fits
    nowhere stands only under its server, or where there is but one, under `Other`."""
    shipped = taxonomy()
    targets = _targets(shipped, items, places)
    standing: dict[Path, list[Item]] = defaultdict(list)
    for item, path in targets:
        standing[path].append(item)
    leaves: dict[tuple[str, Path], Path] = {}
    for path in sorted(standing):
        for leaf_path, members in _leaves(draft, path, standing):
            for item in members:
                leaves[item.order, path] = leaf_path
    for item, path in targets:
        draft.put(item.order, leaves[item.order, path])
    _describe(draft, shipped)


def _targets(shipped: Taxonomy, items: Sequence[Item], places: Sequence[Placement]) -> list[tuple[Item, Path]]:
    firsts, seconds = _settle(shipped, places)
    several = len({item.server for item in items}) > 1
    # All first places before any second one: the first path of a tool is its primary place.
    return [
        (item, _path(shipped, settled))
        for item, settled in zip((*items, *items), (*firsts, *seconds), strict=True)
        if settled is not None and not (several and settled.domain == UNPLACED)
    ]


def _leaves(draft: Draft, path: Path, standing: dict[Path, list[Item]]) -> list[tuple[Path, tuple[Item, ...]]]:
    members = sorted(standing[path], key=lambda item: item.order)
    if path == OTHER or len(path) == 2:
        room = FULL_PART
    else:
        room = MOST_CHILDREN - sum(1 for other in standing if other[:-1] == path)
    covered = frozenset(text_words(" ".join(path)))
    return [(leaf.path, leaf.items) for leaf in subdivide(path, members, covered, draft.describe_group, room)]


def _path(shipped: Taxonomy, settled: _Settled) -> Path:
    if settled.domain == UNPLACED:
        return OTHER
    name = shipped.domains[settled.domain].name
    return (name,) if settled.part is None else (name, shipped.parts[settled.part].name)


def _settle(shipped: Taxonomy, places: Sequence[Placement]) -> tuple[list[_Settled], list[_Settled | None]]:
    """Counts, and moves tools out of domains and parts that are too small to be worth a listing."""
    domains = Counter(place.domain for place in places)
    firsts = [_in_established_domain(place, domains) for place in places]
    seconds = [_second(shipped, place, domains) for place in places]
    placed = list(filter(None, (*firsts, *seconds)))
    flat = _flat_domains(placed)
    parts = Counter(settled.part for settled in placed if settled.part is not None)
    return (
        [_in_established_part(settled, place, parts, flat) for settled, place in zip(firsts, places, strict=True)],
        [None if settled is None else _in_established_part(settled, None, parts, flat) for settled in seconds],
    )


def _flat_domains(placed: Sequence[_Settled]) -> set[int]:
    totals = Counter(settled.domain for settled in placed)
    return {domain for domain in totals if totals[domain] <= FLAT_DOMAIN}


def _in_established_domain(place: Placement, domains: Counter[int]) -> _Settled:
    if place.domain == UNPLACED or domains[place.domain] >= FEWEST:
        return _Settled(place.domain, place.part)
    other = next((other for other in place.others if domains[other] >= FEWEST), None)
    if other is not None:
        return _Settled(other)
    return _Settled(place.domain, place.part) if place.sure else _Settled(UNPLACED)


def _second(shipped: Taxonomy, place: Placement, domains: Counter[int]) -> _Settled | None:
    if place.second is None:
        return None
    domain = shipped.parts[place.second].domain
    return _Settled(domain, place.second) if domains[domain] >= FEWEST else None


def _in_established_part(settled: _Settled, place: Placement | None, parts: Counter[int], flat: set[int]) -> _Settled:
    if settled.part is None or settled.domain in flat:
        return _Settled(settled.domain)
    if parts[settled.part] >= FEWEST:
        return settled
    fallbacks = place.fallbacks if place is not None else ()
    return _Settled(settled.domain, next((part for part in fallbacks if parts[part] >= FEWEST), None))


def _describe(draft: Draft, shipped: Taxonomy) -> None:
    for domain in shipped.domains:
        draft.about[domain.name,] = About(domain.summary, domain.tags)
    for part in shipped.parts:
        domain = shipped.domains[part.domain]
        draft.about[domain.name, part.name] = About(part.summary, part.tags)
    draft.about[OTHER] = About(NO_OTHER, ("other",))
    present = set(draft.node_paths())
    for part in shipped.parts:
        path = (shipped.domains[part.domain].name, part.name)
        if path in present:
            draft.parents[path] = [(name,) for name in part.also if (name,) in present]


SERVERS = "Servers"
ALL_SERVERS = "All tools by the server they come from"
SIDE_BY_SIDE = 40
_FEWEST_SERVERS = 3
# A server with more tools than this is divided.
FULL_SERVER = 24

# A domain and a part of it, by number.
Use = tuple[int, int]


def add_server_view(draft: Draft, items: Sequence[Item], places: Sequence[Placement]) -> None:
    """Adds to every tool its place under its server."""
    members: dict[str, list[Item]] = defaultdict(list)
    uses: dict[str, Counter[Use]] = defaultdict(Counter)
    for item, place in zip(items, places, strict=True):
        members[item.server].append(item)
        uses[item.server][place.domain, UNPLACED if place.part is None else place.part] += 1
    # With one server this view would show the whole catalogue once more.
    if len(members) < 2:
        return
    draft.about[SERVERS,] = About(ALL_SERVERS, ("server",), second_view=True)
    names = _names(members)
    shelves = _shelves(draft, {server: _main(counts) for server, counts in uses.items()})
    for path, servers in shelves.items():
        beside = sum(other[: len(path)] == path for other in shelves)
        entries = beside + sum(min(2, len(members[server])) for server in servers)
        small = 2 if entries <= ROOM else 1
        for server in servers:
            _place_server(draft, (*path, names[server]), members[server], small=small)


def _names(members: Mapping[str, Sequence[Item]]) -> dict[str, str]:
    """The category's name per server: its own, told apart where two differ in letter case only."""
    counts: Counter[str] = Counter()
    names: dict[str, str] = {}
    for server in sorted(members):
        counts[server.casefold()] += 1
        count = counts[server.casefold()]
        names[server] = server if count == 1 else f"{server} ({count})"
    return names


def _main(uses: Counter[Use]) -> Use:
    return min(uses, key=lambda use: (-uses[use], use))


def _shelves(draft: Draft, mains: Mapping[str, Use]) -> dict[Path, list[str]]:
    """Which servers stand under which path."""
    shipped = taxonomy()
    if len(mains) <= SIDE_BY_SIDE:
        return {(SERVERS,): sorted(mains)}
    by_domain: dict[str, list[str]] = defaultdict(list)
    for server in sorted(mains):
        domain = mains[server][0]
        by_domain["Other" if domain == UNPLACED else shipped.domains[domain].name].append(server)
    shelves: dict[Path, list[str]] = {}
    for name, servers in by_domain.items():
        path = (SERVERS, name)
        draft.about[path] = draft.about[name,]
        shelves |= {path: servers} if len(servers) <= SIDE_BY_SIDE else _shelves_by_part(draft, path, servers, mains)
    return shelves


def _shelves_by_part(draft: Draft, path: Path, servers: list[str], mains: Mapping[str, Use]) -> dict[Path, list[str]]:
    shipped = taxonomy()
    by_part: dict[int, list[str]] = defaultdict(list)
    for server in servers:
        by_part[mains[server][1]].append(server)
    large = [part for part in sorted(by_part) if part != UNPLACED and len(by_part[part]) >= _FEWEST_SERVERS]
    rest = [server for server in servers if mains[server][1] not in large]
    shelves: dict[Path, list[str]] = defaultdict(list)
    for part in large:
        below = (*path, shipped.parts[part].name)
        draft.about[below] = About(shipped.parts[part].summary, shipped.parts[part].tags)
        _shelve(draft, below, by_part[part], shelves, ROOM)
    _shelve(draft, path, rest, shelves, ROOM - len(large))
    return shelves


def _shelve(draft: Draft, path: Path, servers: Sequence[str], shelves: dict[Path, list[str]], room: int) -> None:
    covered = frozenset(name_words(" ".join(path)))
    for leaf in subdivide(path, [_as_item(server) for server in servers], covered, draft.describe_group, room):
        shelves[leaf.path] += [item.order for item in leaf.items]


def _as_item(server: str) -> Item:
    words = tuple(dict.fromkeys(word for word in name_words(server) if len(word) > 2))
    return Item(server, Facets(words, (), "More servers", "use"), server)


def _place_server(draft: Draft, path: Path, members: Sequence[Item], *, small: int) -> None:
    if len(members) <= small:
        for item in members:
            draft.put(item.order, path[:-1])
        return
    draft.about[path] = About(_summary(draft, members), ("server",))
    ordered = sorted(members, key=lambda item: item.order)
    covered = frozenset(name_words(path[-1]))
    for leaf in subdivide(path, ordered, covered, draft.describe_group, FULL_SERVER):
        for item in leaf.items:
            draft.put(item.order, leaf.path)


def _summary(draft: Draft, members: Sequence[Item]) -> str:
    """What a server is good for: the categories that most of its tools stand in, as they are shown."""
    firsts = [draft.paths[item.order][0] for item in members if draft.paths[item.order]]
    shown = Counter(path[:2] for path in firsts if path[0] not in {SERVERS, *OTHER})
    least = max(2, len(members) // 10)  # one tool says nothing of a server
    common = [path for path in sorted(shown, key=lambda path: (-shown[path], path)) if shown[path] >= least][:3]
    *front, last = [path[-1] for path in common] or ["Tools of this server"]
    return f"{', '.join(front)} and {last}" if front else last
