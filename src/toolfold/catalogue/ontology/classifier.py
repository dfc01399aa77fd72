"""Which capabilities a tool has: scores over the taxonomy from the tool's own words and from its server's.

A score is a sum of cue weights; a word counts once, in the strongest field it stands in. The server's text and the
tools beside it are context: they decide for tools that say little ("search", "get_item") and lose against plain words.
Nothing here depends on tools of other servers, so a tool's place does not move when others come and go.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from toolfold.catalogue.ontology.taxonomy import Taxonomy, taxonomy
from toolfold.types import ServerInfo, Tool
from toolfold.words import name_words, text_words

IN_NAME, IN_TITLE, IN_FIRST_SENTENCE, IN_REST, IN_PARAMETERS = 3.0, 2.0, 1.5, 0.5, 0.6
IN_SERVER_NAME, IN_SERVER_TEXT = 2.5, 1.0

SERVER_PULL = 17.0
"""How much the context adds to its best domain; about one decisive word in a tool's name."""
SERVER_PART_PULL = 5.0
PARTS_BESIDE = 0.25
"""How much of the other parts' scores counts for a domain, besides its best part's."""
SIBLING_SHARE = 0.3
SURE = 8.0
"""A context whose best score is below this pulls less."""
LEAST = 3.0
"""With less evidence than this, context included, a tool fits nowhere."""
COHERENT = 0.3
"""A server whose best domain has a smaller share of all its evidence is a mixture: its context pulls less."""
NEAR = 0.6
"""A domain with this share of the best one's score may take a tool in where the best one is not worth a listing."""
SECOND_OWN, SECOND_SHARE = 11.0, 0.8
"""A second place needs so much evidence of the tool's own, and so much of the best domain's."""

UNPLACED = -1

_BOILERPLATE_TEXT = """
mcp server model context protocol api integration integrate seamless seamlessly ai assistant llm claude agent tool
powerful interact access enable enhance provide deploy playground install npx docker
"""
BOILERPLATE = frozenset(_BOILERPLATE_TEXT.split())
"""What nearly every server says of itself; it tells nothing about what the server is for."""

Scores = dict[int, float]
"""Part `i` as `i`, domain `i` as `-1 - i`."""


class Placement(Struct, frozen=True):
    """Where one tool belongs: a domain, a part of it where one fits, and what else would do."""

    domain: int
    part: int | None = None
    second: int | None = None
    fallbacks: tuple[int, ...] = ()
    """Further parts of the same domain, best first, for when the best part is too small to stand."""
    others: tuple[int, ...] = ()
    """Other domains that fit nearly as well, best first."""


class _Properties(Struct):
    properties: dict[str, Raw] = {}


_properties = Decoder(_Properties)


def _parameter_names(schema: Raw) -> list[str]:
    """The names of a tool's parameters, or none where the schema is not an object of properties."""
    try:
        return list(_properties.decode(schema).properties)
    except (DecodeError, ValidationError):
        return []


def classify(tools: Sequence[Tool], infos: Mapping[str, ServerInfo]) -> list[Placement]:
    """A place for each tool, in the order given."""
    known = taxonomy()
    own = [_own_scores(known, tool) for tool in tools]
    by_server: dict[str, list[int]] = defaultdict(list)
    for number, tool in enumerate(tools):
        by_server[tool.server].append(number)
    places: list[Placement | None] = [None] * len(tools)
    for server, numbers in by_server.items():
        context = _context(known, server, infos.get(server), [own[number] for number in numbers])
        for number in numbers:
            places[number] = _choose(known, own[number], context)
    return [place for place in places if place is not None]


def _own_scores(known: Taxonomy, tool: Tool) -> Scores:
    definition = tool.definition
    scores: Scores = defaultdict(float)
    seen: set[str] = set()
    _add(known, name_words(definition.name), IN_NAME, scores, seen)
    if definition.title and definition.title != definition.name:
        _add(known, name_words(definition.title), IN_TITLE, scores, seen)
    first, rest = split_description(definition.description)
    _add(known, text_words(first, 30), IN_FIRST_SENTENCE, scores, seen)
    _add(known, text_words(rest, 50), IN_REST, scores, seen)
    names = _parameter_names(definition.input_schema)[:12]
    _add(known, [word for name in names for word in (*name_words(name), "")], IN_PARAMETERS, scores, seen)
    return scores


def split_description(text: str) -> tuple[str, str]:
    """The first sentence and the rest. An empty or stock description gives nothing."""
    text = text.strip()[:1200]
    if text.lower().startswith(("description not available", "no description")):
        return "", ""
    cut = min(
        (found for mark in (". ", "\n", "。", "! ", " - ") if (found := text.find(mark, 12)) > 0), default=len(text)
    )
    return text[:cut], text[cut:]


def _add(known: Taxonomy, words: list[str], weight: float, scores: Scores, seen: set[str]) -> None:
    cues, openers = known.cues, known.openers
    for position, word in enumerate(words):
        if word in cues and word not in seen:
            seen.add(word)
            for target, value in cues[word]:
                scores[target] += value * weight
        if word in openers:
            for length in (2, 3):
                phrase = " ".join(words[position : position + length])
                if phrase in cues and phrase not in seen:
                    seen.add(phrase)
                    for target, value in cues[phrase]:
                        scores[target] += value * weight


def _domain_scores(known: Taxonomy, scores: Scores) -> dict[int, float]:
    """Per domain: its own cues, its best part, and a share of its other parts."""
    result: dict[int, float] = defaultdict(float)
    best: dict[int, float] = {}
    for target, value in scores.items():
        if target < 0:
            result[-1 - target] += value
        else:
            domain = known.parts[target].domain
            result[domain] += PARTS_BESIDE * value
            best[domain] = max(best.get(domain, 0.0), value)
    for domain, value in best.items():
        result[domain] += (1 - PARTS_BESIDE) * value
    return result


class _Context(Struct, frozen=True):
    domains: dict[int, float]
    parts: dict[int, float]


_NO_CONTEXT = _Context({}, {})


def _context(known: Taxonomy, server: str, info: ServerInfo | None, siblings: list[Scores]) -> _Context:
    scores: Scores = defaultdict(float)
    seen = set(BOILERPLATE)
    _add(known, name_words(server), IN_SERVER_NAME, scores, seen)
    if info is not None:
        _add(known, name_words(f"{info.name} {info.title}"), IN_SERVER_NAME, scores, seen)
        _add(known, text_words(info.instructions, 80), IN_SERVER_TEXT, scores, seen)
    domains = _domain_scores(known, scores)
    for sibling in siblings:
        for domain, value in _domain_scores(known, sibling).items():
            domains[domain] += SIBLING_SHARE * value / len(siblings)
        for target, value in sibling.items():
            scores[target] += SIBLING_SHARE * value / len(siblings)
    parts = {target: value for target, value in scores.items() if target >= 0}
    return _Context(_scaled(domains, SERVER_PULL), _scaled(parts, SERVER_PART_PULL))


def _scaled(values: dict[int, float], pull: float) -> dict[int, float]:
    """So that the best gets `pull`; less where there is little evidence, or where it points everywhere."""
    top = max(values.values(), default=0.0)
    if top <= 0:
        return {}
    one_purpose = top / (COHERENT * sum(values.values()))
    scale = pull * min(1.0, top / SURE) * min(1.0, one_purpose) / top
    return {key: value * scale for key, value in values.items()}


def _choose(known: Taxonomy, own: Scores, context: _Context) -> Placement:
    evidence = _domain_scores(known, own)
    totals = dict(evidence)
    for domain, value in context.domains.items():
        totals[domain] = totals.get(domain, 0.0) + value
    ranked = sorted(totals, key=lambda domain: (-totals[domain], domain))
    if not ranked or totals[ranked[0]] < LEAST:
        return Placement(UNPLACED)
    first = ranked[0]
    parts = _ranked_parts(known, first, own, context)
    second = next((d for d in ranked[1:3] if _is_second(evidence, d, first)), None)
    other = _ranked_parts(known, second, own, _NO_CONTEXT)[:1] if second is not None else []
    near = [domain for domain in ranked[1:4] if totals[domain] >= NEAR * totals[first]]
    return Placement(
        domain=first,
        part=parts[0] if parts else None,
        second=other[0] if other else None,
        fallbacks=tuple(parts[1:4]),
        others=tuple(near),
    )


def _is_second(evidence: dict[int, float], domain: int, first: int) -> bool:
    value = evidence.get(domain, 0.0)
    return value >= SECOND_OWN and value >= SECOND_SHARE * evidence.get(first, 0.0)


def _ranked_parts(known: Taxonomy, domain: int, own: Scores, context: _Context) -> list[int]:
    """The parts of a domain that anything speaks for, best first; none where only the domain itself is spoken for."""
    totals: dict[int, float] = {}
    for source in (own, context.parts):
        for target, value in source.items():
            if target >= 0 and known.parts[target].domain == domain:
                totals[target] = totals.get(target, 0.0) + value
    return sorted(totals, key=lambda part: (-totals[part], part))
