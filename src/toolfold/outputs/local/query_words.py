"""The words of the query grammar, and a request cut into tokens. Knows no document. Above: `token_reader.py`."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from importlib import resources
from itertools import pairwise
from typing import Any, Literal, Self, TypeVar

import msgspec
from msgspec import Struct

from toolfold.outputs.local.request import stem
from toolfold.words import fold_word, split_identifier

Operation = Literal["rows", "count", "sum", "mean", "median", "share", "greatest", "least", "values", "place"]
NUMERIC = frozenset({"count", "sum", "mean", "median", "share"})
T = TypeVar("T")
# What there can be one of for each value of a field.
FIGURES = NUMERIC - {"share"} | {"greatest", "least"}

MAX_TOKENS = 60
MAX_PHRASE = 6
TOKEN = re.compile(
    r"\"[^\"\n]{1,200}\"|`[^`\n]{1,200}`|\u201c[^\u201d\n]{1,200}\u201d|(?<![\w'])'[^'\n]{1,200}'(?!\w)"
    r"|>=|<=|!=|<>|==|[=<>≥≤≠,]|[$€£]?-?\d[\w.,:/+-]*%?"
    r"|[^\s,;()\[\]{}\"'`?!<>=|$€£≥≤≠\u201c\u201d\u2018\u2019]+(?:['\u2019]\w{1,20})?"
)
NUMBER = re.compile(
    r"([-+\u2212]?)[$€£]?\s?(-?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d{1,3})?)(?:\s?(?:[$€£%]|ms|[uµn]s|secs?|min|[kKMGT]i?B|USD|EUR|GBP|CHF|kg|km))?"
)
NOT_ENDING = re.compile(r"(\w+)n['\u2019]t", re.IGNORECASE)


def _by_phrase(groups: Mapping[T, Iterable[str]]) -> dict[str, T]:
    return {phrase: name for name, phrases_ in groups.items() for phrase in phrases_}


def _by_word(groups: Mapping[str, str]) -> dict[str, frozenset[str]]:
    return {key.replace("_", " "): frozenset(own.split()) for keys, own in groups.items() for key in keys.split()}


_G: dict[str, Any] = msgspec.toml.decode((resources.files(__package__) / "grammar.toml").read_text(encoding="utf-8"))
_WORDS: dict[str, frozenset[str]] = {name: frozenset(own.split()) for name, own in _G.items() if isinstance(own, str)}
OPERATIONS: dict[str, Operation] = _by_phrase(_G["operations"])
COMPARISONS = _by_phrase(_G["comparisons"])
TEXT_COMPARISONS = _by_phrase(_G["texts"])
SIDES = _by_phrase(_G["sides"])
TOTALS, ASIDES, EXCLUSIONS, GROUPS, TAKES_TIME, OF_ANY = (
    tuple(_G[name]) for name in ("totals", "asides", "exclusions", "groups", "takes_time", "of_any")
)
# Words of the names of the fields that a superlative can mean, and that a verb's value can be of.
IMPLIED_NAMES = _by_word(_G["superlatives"])
VERBS = _by_word(_G["verbs"])
EVENTS = _by_word(_G["events"])
NOUNS = _by_word(_G["nouns"])
SYNONYMS = _by_word(_G["synonyms"])
MONEY = SYNONYMS["money"]
UNITS = dict(pair.rsplit("=", 1) for pair in _WORDS["units"])
CONTRARY = re.compile(r"(?:un|non-?|in(?=[a-z]+(?:ive|id)$)|dis(?=abled$))([a-z]{4,})")
NUMBERED, CARDINAL = ({word: n for n, word in enumerate(_G[name].split(), 1)} for name in ("ordinals", "cardinals"))


def _sets(names: str) -> Iterator[frozenset[str]]:
    return map(_WORDS.__getitem__, names.split())


FILLER, LINKS, YES_OR_NO, ABSENT, PRESENT, NO_VALUE = _sets("filler links yes_or_no absent present no_value")
GENERIC, REQUESTS, LINES, WRAPPERS, DOCUMENTS = _sets("records requests lines wrappers documents")
NOUN_LEADS, NO_NOUN_LEADS, NO_NOUNS, PARTICLES = _sets("noun_leads no_noun_leads no_nouns particles")
KEY_WORDS, TITLES, PERSONS, LABELS = _sets("keys titles persons labels")
TIME_ENDINGS, EPOCHS, PLAIN_TIMES, PERIODS, MONTH_NAMES = _sets("time_endings epochs plain_times periods months")
PRICES, COUNTED, PAID = _sets("prices counted paid")
# What no text that is looked for holds.
NO_TEXT = FILLER | {",", "not", "no", "without", "except", "or", "and", "=", "<", ">", "per", "each", *SIDES, "between"}
LEVELS = (("error", "err"), ("warning", "warn"), ("fatal", "critical", "crit", "emerg"), ("info",), ("debug",))
# What words of one root end in: `refunds`, `refunded`; `failures`, `failed`.
_CAPITALS = re.compile(r"[A-Z]{2,}s")
_ENDING = re.compile(r"(?:ations?|ions?|ures?|ments?|ed|ing|es|s|e)$")


class NoQuery(Exception):
    """The request is not one of the grammar; says which words had no place, or why. Never leaves `local`."""

    def __init__(self, words: str = "", reason: str = "", *, doubt: bool = False) -> None:
        super().__init__(reason or f'"{words}" has no place in a query here')
        self.words = words
        # Whether these records may well be meant, though it is not clear how.
        self.doubt = doubt


def tokenize(request: str) -> list[str]:
    """The words, quoted phrases, numbers and signs of a request."""
    tokens: list[str] = []
    for match in TOKEN.finditer(request[:4000]):
        token = match[0]
        if token[0] in "\"`\u201c'" and len(token) > 2:
            tokens.append(f'"{token[1:-1]}')
            continue
        token = token.rstrip(".,:;?!-") or token
        negated = NOT_ENDING.fullmatch(token)
        own = re.sub(r"['\u2019]s$", "", token)
        tokens += [negated[1], "not"] if negated else [own]
    return [token for token in tokens if token]


def _phrases(tokens: Sequence[str]) -> Iterable[str]:
    """Every run of tokens that may be a value, lower case; of the last word also the singular."""
    low = [token.lower().lstrip('"') for token in tokens]
    for start in range(len(low)):
        for end in range(start + 1, min(start + MAX_PHRASE, len(low)) + 1):
            yield " ".join(low[start:end])
            yield " ".join([*low[start : end - 1], fold_word(low[end - 1])])
    yield from _other_forms(low)
    yield from (contrary[1] for contrary in map(CONTRARY.fullmatch, low) if contrary)
    words = set(map(fold_word, low))
    yield from (name for group in LEVELS if words.intersection(group) for name in group)


def _other_forms(low: Sequence[str]) -> Iterable[str]:
    """`login` for `logged in`; the parts of `low-priority`."""
    yield from (f"{stem(word)}{after}" for word, after in pairwise(low) if after in PARTICLES)
    yield from (part for word in low if "-" in word for part in word.split("-"))


def to_number(text: str) -> Decimal | None:
    """A number as people write it: 12, -1.5, 1,234.50, $5, 40%."""
    match = NUMBER.fullmatch(text.strip()) if len(text) < 60 else None
    if match is None or (match[1] and match[2][0] == "-"):
        return None
    number = Decimal(match[2].replace(",", ""))
    return -number if match[1] in {"-", "\u2212"} else number


def name_words(name: str) -> tuple[str, ...]:
    """The words that a field's name is made of."""
    if _CAPITALS.fullmatch(name):  # `CPUs`
        name = name[:-1]
    return tuple(fold_word(part.lower()) for part in split_identifier(name))


class Wanted(Struct, frozen=True):
    """What of a request is looked for among the values: phrases, roots of words, and words inside of values."""

    phrases: frozenset[str] = frozenset()
    roots: frozenset[str] = frozenset()
    words: re.Pattern[str] | None = None

    @classmethod
    def of(cls, tokens: list[str]) -> Self:
        words = {token.lower().lstrip('"') for token in tokens} - FILLER - OPERATIONS.keys()
        words |= set(map(fold_word, words))
        longer = sorted(word for word in words if len(word) > 1 and any(map(str.isalpha, word)))
        inside = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, longer))})(?!\w|-\w)") if longer else None
        return cls(frozenset(_phrases(tokens)), frozenset(filter(None, map(cls.root_of, words))), inside)

    @staticmethod
    @lru_cache(maxsize=4096)
    def root_of(word: str) -> str:
        """What `refunds` and `refunded` share; empty for short words."""
        root = _ENDING.sub("", word) if word.isalpha() else ""
        return root if len(root) > 3 else ""
