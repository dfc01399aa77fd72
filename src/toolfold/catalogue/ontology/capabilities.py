"""The tree by capability: domains, their parts, and groups below parts that are full.

Small catalogues get a shallow tree: a domain with few tools has no parts, and a part with one or two tools is not made;
its tools go to the next part they fit, or stay with the domain.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from msgspec import Struct

from toolfold.catalogue.ontology.classifier import UNPLACED, Placement
from toolfold.catalogue.ontology.division import MOST_CHILDREN, Item, subdivide
from toolfold.catalogue.ontology.draft import About, Draft
from toolfold.catalogue.ontology.taxonomy import Taxonomy, taxonomy
from toolfold.types import Path
from toolfold.words import text_words

OTHER: Path = ("Other",)
NO_OTHER = "Tools that fit no other category"
FEWEST = 3
"""A domain or part with fewer tools is not made where its tools fit elsewhere."""
FLAT_DOMAIN = 12
"""A domain with so many tools or fewer shows them all at once."""
FULL_PART = 16
"""A part with more tools than this is divided."""


class _Settled(Struct, frozen=True):
    """Where a tool stands after counting: the domain, and the part unless it stands with the domain itself."""

    domain: int
    part: int | None = None


def add_capability_view(draft: Draft, items: Sequence[Item], places: Sequence[Placement]) -> None:
    """Writes the primary place of every tool, then its second one where it has two capabilities."""
    known = taxonomy()
    first, second = _settle(known, places)
    standing: dict[Path, list[Item]] = defaultdict(list)
    for found in (first, second):
        for item, settled in zip(items, found, strict=True):
            if settled is not None:
                standing[_path(known, settled)].append(item)
    leaves: dict[tuple[str, Path], Path] = {}
    for path in sorted(standing):
        for leaf_path, members in _leaves(draft, path, standing):
            for item in members:
                leaves[item.order, path] = leaf_path
    for found in (first, second):
        for item, settled in zip(items, found, strict=True):
            if settled is not None:
                draft.put(item.order, leaves[item.order, _path(known, settled)])
    _describe(draft, known)


def _leaves(draft: Draft, path: Path, standing: dict[Path, list[Item]]) -> list[tuple[Path, tuple[Item, ...]]]:
    members = sorted(standing[path], key=lambda item: item.order)
    if path == OTHER or len(path) == 2:
        room = FULL_PART
    else:
        room = MOST_CHILDREN - sum(1 for other in standing if other[:-1] == path)
    said = frozenset(text_words(" ".join(path)))
    return [(leaf.path, leaf.items) for leaf in subdivide(path, members, said, draft.describe_group, room)]


def _path(known: Taxonomy, settled: _Settled) -> Path:
    if settled.domain == UNPLACED:
        return OTHER
    name = known.domains[settled.domain].name
    return (name,) if settled.part is None else (name, known.parts[settled.part].name)


def _settle(known: Taxonomy, places: Sequence[Placement]) -> tuple[list[_Settled], list[_Settled | None]]:
    """Counts, and moves tools out of domains and parts that are too small to be worth a listing."""
    domains = Counter(place.domain for place in places)
    firsts = [_in_established_domain(place, domains) for place in places]
    seconds = [_second(known, place, domains) for place in places]
    totals = Counter(settled.domain for settled in (*firsts, *seconds) if settled is not None)
    flat = {domain for domain, total in totals.items() if total <= FLAT_DOMAIN}
    parts = Counter(settled.part for settled in (*firsts, *seconds) if settled is not None and settled.part is not None)
    return (
        [_in_established_part(settled, place, parts, flat) for settled, place in zip(firsts, places, strict=True)],
        [None if settled is None else _in_established_part(settled, None, parts, flat) for settled in seconds],
    )


def _in_established_domain(place: Placement, domains: Counter[int]) -> _Settled:
    if place.domain == UNPLACED or domains[place.domain] >= FEWEST:
        return _Settled(place.domain, place.part)
    other = next((other for other in place.others if domains[other] >= FEWEST), None)
    return _Settled(place.domain, place.part) if other is None else _Settled(other)


def _second(known: Taxonomy, place: Placement, domains: Counter[int]) -> _Settled | None:
    if place.second is None:
        return None
    domain = known.parts[place.second].domain
    return _Settled(domain, place.second) if domains[domain] >= FEWEST else None


def _in_established_part(settled: _Settled, place: Placement | None, parts: Counter[int], flat: set[int]) -> _Settled:
    if settled.part is None or settled.domain in flat:
        return _Settled(settled.domain)
    if parts[settled.part] >= FEWEST:
        return settled
    fallbacks = place.fallbacks if place is not None else ()
    return _Settled(settled.domain, next((part for part in fallbacks if parts[part] >= FEWEST), None))


def _describe(draft: Draft, known: Taxonomy) -> None:
    for domain in known.domains:
        draft.about[domain.name,] = About(domain.summary, domain.tags)
    for part in known.parts:
        domain = known.domains[part.domain]
        draft.about[domain.name, part.name] = About(part.summary, part.tags)
    draft.about[OTHER] = About(NO_OTHER, ("other",))
    present = set(draft.node_paths())
    for part in known.parts:
        path = (known.domains[part.domain].name, part.name)
        if path in present:
            draft.parents[path] = [(name,) for name in part.also if (name,) in present]
