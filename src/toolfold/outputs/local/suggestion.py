"""A request that can be computed, made of the words of one that cannot: how to ask, in the document's own fields.

Nothing is claimed by it. A word that is left out may be what mattered, so each is named, and whoever asked decides.
Above: `computed.py`. Below: `query.py`.
"""

from collections.abc import Sequence

from toolfold.outputs.local.conditions import Condition, Query
from toolfold.outputs.local.facts import RecordSet
from toolfold.outputs.local.query import parse_query
from toolfold.outputs.local.query_words import NoQuery, tokenize

# With more left out, it would be another request.
_MAX_LEFT_OUT = 6
# Without these, it would be the opposite.
_TURNS = frozenset({"not", "no", "nor", "neither", "never", "without", "except", "other", "but", "only", "or", "than"})
_ASKED_AS = {
    "count": "how many",
    "sum": "sum of",
    "mean": "average of",
    "median": "median of",
    "greatest": "highest",
    "least": "lowest",
}
# How a condition is said in an answer, and in a request.
_REWORDED = (
    (" has no value", " is missing"),
    (" has a value", " is set"),
    (" is none of ", " is neither "),
    (" is one of ", " = "),
)


def suggest(tokens: Sequence[str], records: RecordSet) -> str:
    """A sentence on how to ask, and without which words; empty where these words hold no request."""
    rest, left_out = list(tokens), list[str]()
    while len(left_out) <= _MAX_LEFT_OUT:
        try:
            query = parse_query(rest, records)
        except NoQuery as error:
            at = _place_of(error.words, rest)
            if at < 0:
                return ""
            left_out.append(rest.pop(at))
            continue
        asked = _request(query)
        without = ", ".join(token.lstrip('"') for token in left_out)
        return f"Without “{without}”, ask for: {asked}" if left_out and _reads(asked, query, records) else ""
    return ""


def _place_of(words: str, tokens: Sequence[str]) -> int:
    """Where the word stands at which reading stopped; -1 where there is none that can be left out."""
    lowered = [token.lstrip('"').lower() for token in tokens]
    word = words.lower()
    return lowered.index(word) if word in lowered and word not in _TURNS else -1


def _request(query: Query) -> str:
    """The query in words of the grammar; empty where it asks for too little to be what was meant."""
    asked = _ASKED_AS.get(query.operation)
    if asked is None or any((query.group, query.rank, query.and_then)) or not (query.field or query.conditions):
        return ""
    where = " and ".join(map(_demanded, query.conditions))
    # `how many currency symbols (category Sc)` counts no categories.
    field = "" if any(one.about == query.field for one in query.conditions) and asked == "how many" else query.field
    return " ".join(filter(None, (asked, field, where and f"where {where}")))


def _demanded(condition: Condition) -> str:
    words = condition.words
    for said, asked in _REWORDED:
        words = words.replace(said, asked)
    listed = " nor " if " is neither " in words else " or "
    return words.replace('", "', f'"{listed}"')


def _reads(asked: str, query: Query, records: RecordSet) -> bool:
    """Whether the request is read as the same query: it is meant to be sent."""
    try:
        again = parse_query(tokenize(asked), records) if asked else Query()
    except NoQuery:
        return False
    return again.operation == query.operation and _words(again) == _words(query) and again.field in {"", query.field}


def _words(query: Query) -> list[str]:
    return [condition.words for condition in query.conditions]
