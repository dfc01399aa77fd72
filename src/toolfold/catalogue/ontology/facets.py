"""What a tool acts on and what it does to it, from its name first and its description second.

These are the keys by which a full category is divided. They depend on the tool and its server's naming habit alone.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from msgspec import Struct

from toolfold.catalogue.ontology.placing import sentences
from toolfold.catalogue.ontology.things import PAIRS, THINGS
from toolfold.catalogue.words import STOP_WORDS, fold, name_words, text_words
from toolfold.types import Tool

_VERBS = {
    "Find": """
    search find query explore discover look lookup locate filter ask answer recommend suggest whois list browse
    show display enumerate compare identify detect
    """,
    "Read": """
    get read fetch view describe retrieve load see open resolve preview peek head download export tail check
    count inspect scan watch monitor track poll trace
    """,
    "Create & change": """
    create add new insert make register define build import upload save store append clone duplicate write draft
    fork setup init initialize record log remember send post reply forward publish submit share invite notify
    push deploy order buy place book schedule sign comment commit enroll subscribe join update set edit modify
    change patch put upsert rename replace move copy toggle mark enable disable configure assign tag label sort
    link attach pin star lock unlock manage complete close reopen archive restore sync merge apply bulk batch
    activate deactivate transfer swap sell approve grant vote react follow like connect start begin rate
    """,
    "Remove": """
    delete remove clear drop cancel destroy purge reset revoke unassign unlink detach stop kill terminate
    uninstall unsubscribe unfollow disconnect revert undo unpin trash forget leave unregister flush clean expire
    """,
    "Run": """
    run execute call invoke trigger test generate convert calculate compute analyze evaluate validate verify
    translate summarize transform encode decode parse extract render format solve simulate predict forecast
    optimize classify compile debug train process play pause resume wait ping click type press navigate scroll
    hover capture scrape crawl transcribe compress resize crop encrypt decrypt estimate draw plot perform do
    think plan review profile benchmark refresh restart reboot launch switch speak listen echo roll use select
    handle help
    """,
}
"""What tools do, in five actions, with the verbs that tell."""

ACTION = {fold(verb): action for action, verbs in _VERBS.items() for verb in verbs.split()}
UNSAID = "Read"


class Facets(Struct, frozen=True):
    """`objects` are the things its name speaks of, the main one first; `mentioned` those of its description."""

    objects: tuple[str, ...]
    mentioned: tuple[str, ...]
    action: str
    verb: str
    head: str = ""
    """The word its name ends on, known or not: what is left to tell tools apart by where nothing better does."""


def all_facets(tools: Sequence[Tool]) -> list[Facets]:
    habits = _habits(tools)
    return [_facets(tool, habits[tool.server]) for tool in tools]


def _habits(tools: Sequence[Tool]) -> dict[str, frozenset[str]]:
    """Per server, the words that say nothing inside it: its own name, and a prefix that most of its tools carry."""
    openings: dict[str, Counter[str]] = defaultdict(Counter)
    totals: Counter[str] = Counter()
    for tool in tools:
        totals[tool.server] += 1
        openings[tool.server].update(set(name_words(tool.name)[:2]))
    return {
        server: frozenset(name_words(server))
        | {
            word
            for word, count in openings[server].items()
            if total >= 4 and count > 0.6 * total and word not in ACTION
        }
        for server, total in totals.items()
    }


def _facets(tool: Tool, habit: frozenset[str]) -> Facets:
    words = name_words(tool.name)
    verb = next((word for word in words if word in ACTION), "")
    named = _nouns(words, habit, stop_at_preposition=True)
    first, _ = sentences(tool.definition.description)
    said = text_words(first, 24)
    if not verb:
        verb = next((word for word in said[:4] if word in ACTION), "")
    mentioned = _nouns(said, habit | {"server"})[:3]
    heads = [word for word in words if word not in ACTION and word not in habit and word not in STOP_WORDS]
    return Facets(
        objects=tuple(named),
        mentioned=tuple(mentioned),
        action=ACTION.get(verb, UNSAID),
        verb=verb,
        head=next((word for word in reversed(heads) if len(word) > 2 and word.isalpha()), ""),
    )


_PREPOSITIONS = frozenset(("by", "for", "from", "to", "in", "with", "of", "on", "at", "via", "into", "as", "using"))


def _nouns(words: list[str], habit: frozenset[str], *, stop_at_preposition: bool = False) -> list[str]:
    """The things among words. In a name the last of the leading phrase is first: `list_team_members` → member, team."""
    phrases: list[list[str]] = [[]]
    position = 0
    while position < len(words):
        pair = tuple(words[position : position + 2])
        if pair in PAIRS:
            phrases[-1].append(" ".join(pair))
            position += 2
            continue
        word = words[position]
        if stop_at_preposition and word in _PREPOSITIONS and phrases[-1]:
            phrases.append([])
        elif word in THINGS and word not in habit and (position or word not in ACTION):
            phrases[-1].append(word)
        position += 1
    ordered = [noun for phrase in phrases for noun in (reversed(phrase) if stop_at_preposition else phrase)]
    return list(dict.fromkeys(ordered))
