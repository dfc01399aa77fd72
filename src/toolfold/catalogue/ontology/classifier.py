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

# How much the context adds to its best domain; about one decisive word in a tool's name.
SERVER_PULL = 17.0
SURE_PULL = 0.99 * SERVER_PULL
# A server with fewer tools cannot be told from a mixture.
MANY = 3
SERVER_PART_PULL = 5.0
# How much of the other parts' scores counts for a domain, besides its best part's.
PARTS_BESIDE = 0.25
SIBLING_SHARE = 0.3
# A context whose best score is below this pulls less.
SURE = 8.0
# With less evidence of its own than this a tool says nothing, and with this it says enough.
LEAST, ENOUGH = 3.0, 10.0
# A tool that says nothing follows its context, unless another domain has this share of the best one's score.
UNCLEAR = 0.7
# A server whose best domain has a smaller share of all its evidence is a mixture: its context pulls less.
COHERENT = 0.3
# A domain with this share of the best one's score may take a tool in where the best one is not worth a listing.
NEAR = 0.6
# A second place needs so much evidence of the tool's own, and so much of the best domain's.
SECOND_OWN, SECOND_SHARE = 11.0, 0.8

# So many words of a server's tools show that it has to do with a domain.
SEVERAL = 3
# A cue of this weight means nothing else.
PLAIN = 6.0
# A server backs a domain with this share of what it says for its best one.
BACKED = 0.5

UNPLACED = -1

_BOILERPLATE_TEXT = """
mcp server model context protocol api integration integrate seamless seamlessly ai assistant llm claude agent tool
powerful interact access enable enhance provide deploy playground install npx docker
"""
# What nearly every server says of itself; it tells nothing about what the server is for.
BOILERPLATE = frozenset(_BOILERPLATE_TEXT.split())

# Part `i` as `i`, domain `i` as `-1 - i`.
Scores = dict[int, float]


class Placement(Struct, frozen=True):
    """Where one tool belongs: a domain, a part of it where one fits, and what else would do."""

    domain: int
    part: int | None = None
    second: int | None = None
    fallbacks: tuple[int, ...] = ()
    """Further parts of the same domain, best first, for when the best part is too small to stand."""
    others: tuple[int, ...] = ()
    """Other domains that fit nearly as well, best first."""
    sure: bool = True
    """Whether it is worth a category of its own."""


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
    shipped = taxonomy()
    said = [_own_scores(shipped, tool) for tool in tools]
    own = [scores for scores, _ in said]
    by_server: dict[str, list[Scores]] = defaultdict(list)
    for tool, scores in zip(tools, own, strict=True):
        by_server[tool.server].append(scores)
    contexts = {server: _context(shipped, server, infos.get(server), scores) for server, scores in by_server.items()}
    spoken = _spoken(shipped, tools, said)
    return [
        _choose(shipped, scores, words, spoken.get(tool.server, {}), contexts[tool.server])
        for tool, (scores, words) in zip(tools, said, strict=True)
    ]


def _spoken(
    shipped: Taxonomy, tools: Sequence[Tool], said: Sequence[tuple[Scores, dict[int, set[str]]]]
) -> dict[str, dict[int, set[str]]]:
    """By server and domain, the words by which its tools speak for it that speak for no other domain more."""
    spoken: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for tool, (scores, words) in zip(tools, said, strict=True):
        if ranked := _ranked(_domain_scores(shipped, scores)):
            spoken[tool.server][ranked[0]] |= words[ranked[0]]
    return spoken


def _own_scores(shipped: Taxonomy, tool: Tool) -> tuple[Scores, dict[int, set[str]]]:
    """What speaks for each part and domain, and by domain the words that do: an empty one beside them says that one of
    them is plain."""
    definition = tool.definition
    scores: Scores = defaultdict(float)
    counted: set[str] = set()
    _add(shipped, name_words(definition.name), IN_NAME, scores, counted)
    if definition.title and definition.title != definition.name:
        _add(shipped, name_words(definition.title), IN_TITLE, scores, counted)
    first, rest = split_description(definition.description)
    _add(shipped, text_words(first, 30), IN_FIRST_SENTENCE, scores, counted)
    _add(shipped, text_words(rest, 50), IN_REST, scores, counted)
    # The empty word between two names keeps phrases from running across them.
    names = _parameter_names(definition.input_schema)[:12]
    _add(shipped, [word for name in names for word in (*name_words(name), "")], IN_PARAMETERS, scores, counted)
    words: dict[int, set[str]] = defaultdict(set)
    for phrase in counted:
        for target, value in shipped.cues[phrase]:
            domain = -1 - target if target < 0 else shipped.parts[target].domain
            words[domain].update((*phrase.split(" "), "") if value >= PLAIN else phrase.split(" "))
    return scores, words


def split_description(text: str) -> tuple[str, str]:
    """The first sentence and the rest. An empty or stock description gives nothing."""
    text = text.strip()[:1200]
    if text.lower().startswith(("description not available", "no description")):
        return "", ""
    ends = (text.find(mark, 12) for mark in (". ", "\n", "。", "! ", " - "))
    end = min((at for at in ends if at > 0), default=len(text))
    return text[:end], text[end:]


def _add(shipped: Taxonomy, words: list[str], weight: float, scores: Scores, counted: set[str]) -> None:
    cues, openers = shipped.cues, shipped.openers
    for position, word in enumerate(words):
        phrases = [word]
        if word in openers:
            phrases += [" ".join(words[position : position + length]) for length in (2, 3)]
        for phrase in phrases:
            if phrase in cues and phrase not in counted:
                counted.add(phrase)
                for target, value in cues[phrase]:
                    scores[target] += value * weight


def _domain_scores(shipped: Taxonomy, scores: Scores) -> dict[int, float]:
    """Per domain: its own cues, its best part, and a share of its other parts."""
    result: dict[int, float] = defaultdict(float)
    best: dict[int, float] = {}
    for target, value in scores.items():
        if target < 0:
            result[-1 - target] += value
        else:
            domain = shipped.parts[target].domain
            result[domain] += PARTS_BESIDE * value
            best[domain] = max(best.get(domain, 0.0), value)
    for domain, value in best.items():
        result[domain] += (1 - PARTS_BESIDE) * value
    return result


class _Context(Struct, frozen=True):
    domains: dict[int, float]
    parts: dict[int, float]
    sure: bool = False
    """Whether it speaks for one domain above all, with enough evidence; of a server with hardly any tools, always."""
    backed: frozenset[int] = frozenset()
    """The domains that the server's own name or text speak for, and where it is sure, its tools."""


def _context(shipped: Taxonomy, server: str, info: ServerInfo | None, siblings: list[Scores]) -> _Context:
    scores: Scores = defaultdict(float)
    counted = set(BOILERPLATE)
    _add(shipped, name_words(server), IN_SERVER_NAME, scores, counted)
    if info is not None:
        _add(shipped, name_words(f"{info.name} {info.title}"), IN_SERVER_NAME, scores, counted)
        _add(shipped, text_words(info.instructions, 80), IN_SERVER_TEXT, scores, counted)
    domains = _domain_scores(shipped, scores)
    named = _best(domains)
    for sibling in siblings:
        for domain, value in _domain_scores(shipped, sibling).items():
            domains[domain] += SIBLING_SHARE * value / len(siblings)
        for target, value in sibling.items():
            scores[target] += SIBLING_SHARE * value / len(siblings)
    parts = {target: value for target, value in scores.items() if target >= 0}
    pulls = _scaled(domains, SERVER_PULL)
    sure = len(siblings) < MANY or max(pulls.values(), default=0.0) >= SURE_PULL
    return _Context(pulls, _scaled(parts, SERVER_PART_PULL), sure, named | _best(pulls) if sure else named)


def _best(values: Mapping[int, float]) -> frozenset[int]:
    top = max(values.values(), default=0.0)
    return frozenset(key for key, value in values.items() if 0 < value >= BACKED * top)


def _scaled(values: dict[int, float], pull: float) -> dict[int, float]:
    """So that the best gets `pull`; less where there is little evidence, or where it points everywhere."""
    top = max(values.values(), default=0.0)
    if top <= 0:
        return {}
    coherence = top / (COHERENT * sum(values.values()))
    scale = pull * min(1.0, top / SURE) * min(1.0, coherence) / top
    return {key: value * scale for key, value in values.items()}


def _choose(
    shipped: Taxonomy, own: Scores, words: Mapping[int, set[str]], spoken: Mapping[int, set[str]], context: _Context
) -> Placement:
    evidence = _domain_scores(shipped, own)
    totals = _added(evidence, context.domains)
    ranked = _ranked(totals)
    first = ranked[0] if _fits(evidence, totals, ranked, context) else UNPLACED
    if first == UNPLACED or _rests_on_one_word(words, spoken, first, context):
        return Placement(UNPLACED)
    scores = _added(own, context.parts)
    parts = _near(scores, _parts_of(shipped, first, scores))
    # The context of a mixture is no reason to move a tool that says what it does.
    allowed = ranked if context.sure else [d for d in ranked if d == first or evidence.get(d, 0.0) >= ENOUGH]
    return Placement(
        domain=first,
        part=next(iter(parts), None),
        second=_second_part(shipped, evidence, ranked, own),
        fallbacks=tuple(parts[1:]),
        others=tuple(_near(totals, allowed)[1:]),
        sure=context.sure or evidence.get(first, 0.0) >= 2 * ENOUGH,
    )


def _fits(evidence: Mapping[int, float], totals: Mapping[int, float], ranked: Sequence[int], context: _Context) -> bool:
    """Whether the best domain is worth naming: a wrong category misleads more than none."""
    said = evidence.get(ranked[0], 0.0) if ranked else 0.0
    if said >= ENOUGH or not (context.sure and ranked):
        return said >= ENOUGH
    return said >= LEAST or len(ranked) < 2 or totals[ranked[1]] < UNCLEAR * totals[ranked[0]]


def _rests_on_one_word(
    words: Mapping[int, set[str]], spoken: Mapping[int, set[str]], domain: int, context: _Context
) -> bool:
    """Whether one word of the tool's alone speaks for the domain, and neither its server nor other words of the tools
    beside it do: a loan is a bank's or a library's, and stock a broker's or a baker's."""
    one = len(words.get(domain, ())) < 2 and len(spoken.get(domain, ())) < SEVERAL
    return one and domain not in context.backed


def _second_part(shipped: Taxonomy, evidence: dict[int, float], ranked: Sequence[int], own: Scores) -> int | None:
    """The best part of a second domain, where the tool's own words say enough for it."""
    domain = next((d for d in ranked[1:3] if _is_second(evidence, d, ranked[0])), UNPLACED)
    return next((part for part in _parts_of(shipped, domain, own) if own[part] >= ENOUGH), None)


def _near(scores: Mapping[int, float], ranked: Sequence[int]) -> list[int]:
    """The best, and of the next three those that come near it."""
    return [key for key in ranked[:4] if scores[key] >= NEAR * scores[ranked[0]]]


def _is_second(evidence: dict[int, float], domain: int, first: int) -> bool:
    value = evidence.get(domain, 0.0)
    return value >= SECOND_OWN and value >= SECOND_SHARE * evidence.get(first, 0.0)


def _parts_of(shipped: Taxonomy, domain: int, scores: Scores) -> list[int]:
    """The parts of a domain that anything speaks for, best first; none where only the domain itself is spoken for."""
    return [target for target in _ranked(scores) if target >= 0 and shipped.parts[target].domain == domain]


def _added(first: Mapping[int, float], second: Mapping[int, float]) -> dict[int, float]:
    return {key: first.get(key, 0.0) + second.get(key, 0.0) for key in (*first, *second)}


def _ranked(totals: Mapping[int, float]) -> list[int]:
    return sorted(totals, key=lambda key: (-totals[key], key))
