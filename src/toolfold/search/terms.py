"""Words of a request or a tool as the lexical index counts them: split, lower-case, stemmed, without stop words.

Names are split where a reader sees a seam (`getOrderById`, `list_pull_requests`, `k8s-pods`, `HTTPServer2`). Scripts
that write no spaces (Chinese, Japanese, Thai) become overlapping pairs of characters. Nothing here knows of weights or
of indexes; `text.py` above decides which words of a tool count how much.
"""

import re
import unicodedata
from functools import lru_cache

MAX_WORD = 40
"""Longer runs (keys, hashes, base64) are cut: nobody searches for their tail."""

_STOP = (
    "a about above after again all also am an and any are as at be because been before being below between both "
    "but by can could did do does doing don down during each else ever few for from further had has have having "
    "he her here hers him his how however i if in into is it its itself just know let like ll m may me might more "
    "most must my need no nor not now of off ok on once only or other our ours out over own please re s same shall "
    "she should so some such t than thank thanks that the their theirs them then there these they this those "
    "through to too under until up us ve very want wants was we were what when where whether which while who whom "
    "why will with would you your yours im id ill ive dont doesnt isnt cant wont lets able help tell give show"
)
STOP_WORDS = frozenset(_STOP.split())

_WORD = re.compile(r"[^\W_]+")
_SEAM = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")
_DENSE = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_APOSTROPHES = str.maketrans("", "", "'\u2019")


def split_name(text: str) -> list[str]:
    """`getOrderById_v2` as `get Order By Id v 2`: the parts a reader sees, in order, in their own case."""
    return [part for word in _WORD.findall(text) for part in _SEAM.findall(word)]


def words(text: str) -> list[str]:
    """Every word of a text, lower-case, names taken apart and also kept whole."""
    found: list[str] = []
    for word in _WORD.findall(_plain(text)):
        if _DENSE.search(word):
            found.extend(_pairs(word.lower()))
            continue
        parts = _SEAM.findall(word)
        if len(parts) > 1:
            found.extend(part.lower()[:MAX_WORD] for part in parts)
        found.append(word.lower()[:MAX_WORD])
    return found


def terms(text: str) -> list[str]:
    """The words that count, stemmed, in order, repeats kept."""
    return [stem(word) for word in words(text) if word not in STOP_WORDS]


def _plain(text: str) -> str:
    """Compatibility forms folded and accents dropped, so that `Café` and `cafe` meet."""
    if text.isascii():
        return text.translate(_APOSTROPHES)
    folded = unicodedata.normalize("NFKD", text)
    return "".join(mark for mark in folded if not unicodedata.combining(mark)).translate(_APOSTROPHES)


def _pairs(word: str) -> list[str]:
    if len(word) == 1:
        return [word]
    return [word[at : at + 2] for at in range(min(len(word), 4 * MAX_WORD) - 1)]


_VOWEL = re.compile(r"[aeiouy]")
_KEPT = frozenset(("news", "status", "address", "process", "access", "alias", "series", "always", "this", "press"))
_INFLECTED = (("ies", "y"), ("ied", "y"), ("sses", "ss"), ("ings", ""), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""))
_DERIVED = (
    ("ization", "iz"),
    ("isation", "iz"),
    ("ational", "at"),
    ("fulness", "ful"),
    ("iveness", "iv"),
    ("ation", "at"),
    ("ator", "at"),
    ("ment", ""),
    ("ness", ""),
    ("ion", ""),
    ("ise", "iz"),
    ("ize", "iz"),
    ("is", "iz"),
    ("ly", ""),
    ("er", ""),
    ("or", ""),
)


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """A light stem: an ending of number or tense off, then one of kind. Not a word, only a key."""
    if len(word) <= 3 or not word.isascii() or not word.isalpha() or word in _KEPT:
        return word
    return _without(_without(word, _INFLECTED), _DERIVED)


def _without(word: str, endings: tuple[tuple[str, str], ...]) -> str:
    for ending, instead in endings:
        if word.endswith(ending):
            root = word[: -len(ending)]
            if len(root) < 3 or not _VOWEL.search(root) or (ending == "s" and root[-1] in "sui"):
                continue
            return _even(root + instead)
    return _even(word)


def _even(root: str) -> str:
    """`plann` and `plan`, `creat` and `create`, `categori` and `category` get one form."""
    if len(root) > 3 and root[-1] == root[-2] and root[-1] not in "aeiousz":
        root = root[:-1]
    if len(root) > 3 and root[-1] == "e":
        root = root[:-1]
    if len(root) > 3 and root[-1] == "y":
        root = root[:-1] + "i"
    return root
