"""What a tool acts on and what it does to it, from its name first and its description second.

These are the keys by which a full category is divided. They depend on the tool and its server's naming habit alone. The
words stand in `facets.toml`.
"""

import tomllib
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from importlib import resources

from msgspec import Struct

from toolfold.catalogue.ontology.classifier import split_description
from toolfold.types import Tool
from toolfold.words import fold_word, name_words, stop_words, text_words

_DEFAULT_ACTION = "Read"
_PREPOSITIONS = frozenset(("by", "for", "from", "to", "in", "with", "of", "on", "at", "via", "into", "as", "using"))


class Facets(Struct, frozen=True):
    """`objects` are the things its name speaks of, the main one first; `mentioned` those of its description."""

    objects: tuple[str, ...]
    mentioned: tuple[str, ...]
    action: str
    verb: str
    head: str = ""
    """The word its name ends on, listed or not: what is left to tell tools apart by where nothing better does."""


class _Vocabulary(Struct, frozen=True):
    actions: dict[str, str]
    things: frozenset[str]


@cache
def _vocabulary() -> _Vocabulary:
    data = tomllib.loads((resources.files(__package__) / "facets.toml").read_text(encoding="utf-8"))
    return _Vocabulary(
        actions={fold_word(verb): action for action, verbs in data["actions"].items() for verb in verbs.split()},
        things=frozenset(" ".join(map(fold_word, thing.split("_"))) for thing in data["things"]["words"].split()),
    )


def is_thing(words: str) -> bool:
    """Whether a word, or two, name something that tools act on."""
    return words in _vocabulary().things


def all_facets(tools: Sequence[Tool]) -> list[Facets]:
    ignored = _ignored_words(tools)
    return [_facets(tool, ignored[tool.server]) for tool in tools]


def _ignored_words(tools: Sequence[Tool]) -> dict[str, frozenset[str]]:
    """Per server, the words that say nothing inside it: its own name, and a prefix that most of its tools carry."""
    openings: dict[str, Counter[str]] = defaultdict(Counter)
    totals = Counter(tool.server for tool in tools)
    for tool in tools:
        openings[tool.server].update(set(name_words(tool.name)[:2]))
    verbs = _vocabulary().actions
    return {
        server: frozenset(name_words(server))
        | {word for word, count in openings[server].items() if total >= 4 and count > 0.6 * total and word not in verbs}
        for server, total in totals.items()
    }


def _facets(tool: Tool, ignored: frozenset[str]) -> Facets:
    verbs = _vocabulary().actions
    words = name_words(tool.name)
    description = text_words(split_description(tool.definition.description)[0], 24)
    verb = next((word for word in (*words, *description[:4]) if word in verbs), "")
    skipped = ignored | stop_words("names")
    heads = [word for word in words if word not in verbs and word not in skipped]
    return Facets(
        objects=tuple(_nouns(words, ignored, in_name=True)),
        mentioned=tuple(_nouns(description, ignored | {"server"})[:3]),
        action=verbs.get(verb, _DEFAULT_ACTION),
        verb=verb,
        head=next((word for word in reversed(heads) if len(word) > 2 and word.isalpha()), ""),
    )


def _nouns(words: list[str], ignored: frozenset[str], *, in_name: bool = False) -> list[str]:
    """The things among words. In a name the last of the leading phrase is first: `list_team_members` → member, team."""
    phrases = _phrases(words, ignored, _PREPOSITIONS if in_name else frozenset())
    return list(dict.fromkeys(noun for phrase in phrases for noun in (reversed(phrase) if in_name else phrase)))


def _phrases(words: list[str], ignored: frozenset[str], breaks: frozenset[str]) -> list[list[str]]:
    """The things among words, in order; a word of `breaks` begins a new phrase."""
    things = _vocabulary().things
    phrases: list[list[str]] = [[]]
    position = 0
    while position < len(words):
        word, pair = words[position], " ".join(words[position : position + 2])
        if " " in pair and pair in things:
            phrases[-1].append(pair)
            position += 1
        elif word in breaks and phrases[-1]:
            phrases.append([])
        elif word in things and word not in ignored and not _is_leading_verb(word, position):
            phrases[-1].append(word)
        position += 1
    return phrases


def _is_leading_verb(word: str, position: int) -> bool:
    """`list`, `query` and the like are things, too, but not where a name or a sentence begins with them."""
    return position == 0 and word in _vocabulary().actions
