"""The words of the query grammar, and a request cut into tokens. Knows no document. Above: `token_reader.py`."""

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Literal

from toolfold.words import fold_word, split_identifier

Operation = Literal["rows", "count", "sum", "mean", "greatest", "least", "values", "place"]

MAX_TOKENS = 60
MAX_PHRASE = 6
TOKEN = re.compile(
    r"\"[^\"\n]{1,200}\"|`[^`\n]{1,200}`|\u201c[^\u201d\n]{1,200}\u201d|(?<![\w'])'[^'\n]{1,200}'(?!\w)"
    r"|>=|<=|!=|<>|==|[=<>≥≤≠,]|[$€£]?-?\d[\w.,:/+-]*%?"
    r"|[^\s,;()\[\]{}\"'`?!<>=|$€£≥≤≠\u201c\u201d\u2018\u2019]+(?:['\u2019][a-z]{1,2}\b)?"
)
NUMBER = re.compile(r"[$€£]?\s?(-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d{1,3})?)\s?[$€£%]?")
NOT_ENDING = re.compile(r"(\w+)n['\u2019]t", re.IGNORECASE)

OPERATIONS: dict[str, Operation] = {
    "how many": "count",
    "how often": "count",
    "total number of": "count",
    "number of": "count",
    "count of": "count",
    "count": "count",
    "sum of": "sum",
    "sum": "sum",
    "total": "sum",
    "average": "mean",
    "mean": "mean",
    **dict.fromkeys(("highest", "largest", "maximum", "max", "greatest", "biggest"), "greatest"),
    **dict.fromkeys(("lowest", "smallest", "minimum", "min", "least"), "least"),
    **dict.fromkeys(("slowest", "longest", "latest", "newest", "most recent", "most recently"), "greatest"),
    **dict.fromkeys(("fastest", "shortest", "earliest", "oldest"), "least"),
    **dict.fromkeys(("dearest", "most expensive", "priciest", "costliest", "most"), "greatest"),
    **dict.fromkeys(("cheapest", "least expensive", "fewest"), "least"),
    "most common": "values",
    "most frequent": "values",
    "distribution of": "values",
    "different": "values",
    "distinct": "values",
    "unique": "values",
    "first": "place",
    "last": "place",
    "final": "place",
    "penultimate": "place",
}
TAKES_TIME = frozenset({"latest", "newest", "most recent", "most recently", "earliest", "oldest"})
COMPARISONS: dict[str, str] = {
    **dict.fromkeys(("greater than", "more than", "higher than", "larger than", "bigger than", "longer than"), ">"),
    **dict.fromkeys(("over", "above", "exceed", "exceeds", "exceeding", ">"), ">"),
    **dict.fromkeys(("at least", "no less than", "not less than", ">=", "≥"), ">="),
    **dict.fromkeys(
        ("less than", "lower than", "smaller than", "fewer than", "shorter than", "under", "below", "<"), "<"
    ),
    **dict.fromkeys(("at most", "no more than", "not more than", "<=", "≤"), "<="),
    **dict.fromkeys(("!=", "<>", "≠", "other than", "different from", "except for", "except", "excluding"), "!="),
    **dict.fromkeys(("apart from",), "!="),
    **dict.fromkeys(("=", "==", "equals", "equal to"), "="),
}
TEXT_COMPARISONS = {
    **dict.fromkeys(("contains", "contain", "containing", "includes", "including", "mentions", "mention"), "contains"),
    **dict.fromkeys(("mentioning", "with the text", "with the word", "holds", "hold", "holding"), "contains"),
    **dict.fromkeys(("starts with", "start with", "starting with", "begins with", "beginning with"), "starts with"),
    **dict.fromkeys(("ends with", "end with", "ending with", "ending in"), "ends with"),
}
# What is excluded by them must be one field's values and stand last: else it is not clear how far they reach.
EXCLUSIONS = ("except for", "except", "excluding", "other than", "apart from", "without", "but not", "outside")
CONTRARY = re.compile(r"(?:un|non-?)([a-z]{4,})")
ABSENT = frozenset({"missing", "empty", "null", "unset", "blank"})
SIDES = {
    **dict.fromkeys(("after", "later than"), ">"),
    **dict.fromkeys(("since", "no earlier than"), ">="),
    **dict.fromkeys(("before", "prior to", "earlier than"), "<"),
    **dict.fromkeys(("until", "till", "up to", "no later than"), "<="),
}
_ORDINALS_TEXT = """
first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth
sixteenth seventeenth eighteenth nineteenth twentieth
"""
NUMBERED = {word: number for number, word in enumerate(_ORDINALS_TEXT.split(), 1)}
GENERIC = frozenset(
    {"row", "record", "entry", "item", "element", "result", "object", "member", "event", "stanza", "block", "section"}
)
KEY_WORDS = frozenset({"id", "number", "no", "nr", "key", "code", "name", "identifier", "ref"})
_FILLER_TEXT = """
a an the this that these those of in on for from to is are was were be been being has have had having do does did there
with which who whose what where when me my please show give tell find get return print display i need want document file
table log data list output all any it its their they value values and by at called named set exactly details entire
can could would you we us kindly know like made make come came got switched still yet currently now ever among amongst
across altogether overall listed recorded mentioned logged happened happen happens occurred occur occurs appear appears
appeared exist exists according contained either fall falls fell work works belong belongs every here
"""
FILLER = frozenset(_FILLER_TEXT.split())
LINKS = frozenset({"is", "are", "was", "were", "of", "value", ":", "equals", "exactly", "be", "being", "the"})
YES_OR_NO = frozenset({"is", "are", "was", "were", "does", "do", "did", "has", "have", "had", "can", "could"})
# What the events of a web server's log are called.
REQUESTS = frozenset({"request", "hit", "visit"})
# What `created` leaves away of `created_at`.
TIME_ENDINGS = frozenset({"at", "on", "date", "time"})
# What no text that is looked for holds.
NO_TEXT = FILLER | {",", "not", "no", "without", "except", "or", "and", "=", "<", ">", "per", "each", *SIDES, "between"}
LEVELS = (("error", "err"), ("warning", "warn"), ("fatal", "critical", "crit", "emerg"), ("info",), ("debug",))


class NoQuery(Exception):
    """The request is not one of the grammar; says which words had no place, or why. Never leaves `local`."""

    def __init__(self, words: str = "", reason: str = "") -> None:
        super().__init__(reason or f'"{words}" has no place in a query here')
        self.words = words


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


def phrases(tokens: Sequence[str]) -> Iterable[str]:
    """Every run of tokens that may be a value, lower case; of the last word also the singular."""
    low = [token.lower().lstrip('"') for token in tokens]
    for start in range(len(low)):
        for end in range(start + 1, min(start + MAX_PHRASE, len(low)) + 1):
            yield " ".join(low[start:end])
            yield " ".join([*low[start : end - 1], fold_word(low[end - 1])])
    yield from (contrary[1] for contrary in map(CONTRARY.fullmatch, low) if contrary)
    words = set(map(fold_word, low))
    yield from (name for group in LEVELS if words.intersection(group) for name in group)


def to_number(text: str) -> Decimal | None:
    """A number as people write it: 12, -1.5, 1,234.50, $5, 40%."""
    match = NUMBER.fullmatch(text.strip()) if len(text) < 60 else None
    return Decimal(match[1].replace(",", "")) if match else None


def name_words(name: str) -> tuple[str, ...]:
    """The words that a field's name is made of."""
    return tuple(fold_word(part.lower()) for part in split_identifier(name))
