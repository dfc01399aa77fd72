"""Words out of names and text: splitting, folding, stemming, stop words. The one tokeniser of toolfold.

It knows English words and the spelling of identifiers, and nothing about categories, ranking or documents. The
ontology reads folded words (`name_words`, `text_words`), the lexical index reads stems (`search_words`,
`search_terms`). The word lists are data, in `words.toml`, read on first use.
"""

import re
import tomllib
import unicodedata
from functools import cache, lru_cache
from importlib import resources
from typing import Literal

from msgspec import Struct

# Longer runs (keys, hashes, base64) are cut: nobody searches for their tail.
MAX_WORD = 40
# Words of a request that are looked up; the rest of a very long one is not read.
MAX_TERMS = 64
MAX_CHARACTERS = 8192

_WORD = re.compile(r"[^\W_]+")
_SEAM = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")
# Cues of the ontology are words such as `s3`, `k8s` and `mp4`: its names keep digits and letters together. The lexical
# index takes them apart, and keeps the whole beside the parts.
_NAME_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_TEXT_PARTS = re.compile(r"[a-z0-9]+|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_TRAILING_DIGITS = re.compile(r"^([a-z]{3,})\d+$")
# Scripts that write no blanks between words.
_UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_APOSTROPHES = str.maketrans("", "", "'\u2019")


class _Lists(Struct, frozen=True):
    """`words.toml`, split."""

    stop_words: dict[str, frozenset[str]]
    same: dict[str, str]
    irregular: dict[str, str]
    singular: frozenset[str]
    with_digits: frozenset[str]
    joined: dict[tuple[str, str], str]
    plurals: dict[str, str]
    opposites: dict[str, frozenset[str]]
    synonyms: dict[str, tuple[str, ...]]


@cache
def _lists() -> _Lists:
    data = tomllib.loads((resources.files(__package__) / "words.toml").read_text(encoding="utf-8"))
    fold, plurals = data["fold"], data["plural"]
    common = frozenset(data["stop_words"].pop("common").split())
    irregular = _pairs_of(fold["irregular"])
    return _Lists(
        stop_words={use: common.union(words.split()) for use, words in data["stop_words"].items()},
        same=_pairs_of(fold["same"]),
        irregular=irregular,
        singular=frozenset(fold["singular"].split()),
        with_digits=frozenset(fold["with_digits"].split()),
        joined={
            (parts[0], parts[1]): whole for key, whole in _pairs_of(fold["joined"]).items() if (parts := key.split("+"))
        },
        plurals={single: many for many, single in irregular.items()}
        | {word: word for word in plurals["same"].split()}
        | _pairs_of(plurals["irregular"]),
        opposites=_opposites_of(data["verbs"]["opposites"]),
        synonyms=_synonyms_of(data["search"]["synonyms"]),
    )


def _pairs_of(text: str) -> dict[str, str]:
    return {key: value for key, _, value in (item.partition("=") for item in text.split())}


def _opposites_of(text: str) -> dict[str, frozenset[str]]:
    """For each verb those on the other side of a bar."""
    result: dict[str, frozenset[str]] = {}
    for pair in text.strip().replace(";", "\n").splitlines():
        left, right = (frozenset(side.split()) for side in pair.split("|"))
        for one, other in ((left, right), (right, left)):
            result |= {verb: result.get(verb, frozenset()) | other for verb in one}
    return result


def _synonyms_of(text: str) -> dict[str, tuple[str, ...]]:
    """For the stem of each word the others of its group."""
    groups = [group.split() for group in text.strip().replace(";", "\n").splitlines()]
    return {_stem(word): tuple(other for other in group if other != word) for group in groups for word in group}


def opposite_verbs() -> dict[str, frozenset[str]]:
    """For each verb, folded, those that say the opposite: a tool that reads does not answer a wish to write."""
    return _lists().opposites


def stop_words(use: Literal["names", "search", "documents"]) -> frozenset[str]:
    """The words that say nothing: in tool names, in requests for a tool, in requests about a stored document."""
    return _lists().stop_words[use]


def split_identifier(text: str) -> list[str]:
    """`getOrderById_v2` as `get Order By Id v 2`: the parts a reader sees, in order, in their own case."""
    return _SEAM.findall(text)


@lru_cache(maxsize=65_536)
def fold_word(word: str) -> str:
    """One form for a word and its plural, its usual short form and its British spelling. `word` is lower case."""
    lists = _lists()
    same = lists.same.get(word)
    if same is not None:
        return same
    if word not in lists.with_digits and (numbered := _TRAILING_DIGITS.match(word)):
        word = numbered[1]
    return lists.same.get(word) or _singular(word, lists)


def _singular(word: str, lists: _Lists) -> str:
    if len(word) <= 3 or not word.endswith("s") or word in lists.singular or word.endswith(("ss", "us", "is")):
        return word
    irregular = lists.irregular.get(word)
    if irregular is not None:
        return irregular
    if word.endswith("ies"):
        return word[:-3] + "y" if len(word) > 4 else word[:-1]
    if word.endswith(("sses", "xes", "ches", "shes", "zzes")):
        return word[:-2]
    return word[:-1]


def plural(word: str) -> str:
    """The plural of a folded word, for names of categories: `branch` → `branches`, `weather` → `weather`."""
    lists = _lists()
    listed = lists.plurals.get(word)
    if listed is not None:
        return listed
    if not word.isascii() or not word.isalpha() or word in lists.singular or word.endswith("ing"):
        return word
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and len(word) > 1 and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def name_words(name: str) -> list[str]:
    """The folded words of an identifier, in order: `getPullRequestFiles` → get, pull, request, file."""
    joined = _lists().joined
    parts = [part.lower() for part in _NAME_PARTS.findall(name)]
    result: list[str] = []
    position = 0
    while position < len(parts):
        whole = joined.get((parts[position], parts[position + 1])) if position + 1 < len(parts) else None
        if whole is not None:
            result.append(whole)
            position += 2
        else:
            result += _folded(parts[position])
            position += 1
    return result


def text_words(text: str, limit: int = 200) -> list[str]:
    """The folded words of running text, in order, stop words included, at most about `limit` of them."""
    result: list[str] = []
    for part in _TEXT_PARTS.findall(text[: limit * 12].lower()):
        result += _folded(part)
        if len(result) >= limit:
            break
    return result


def _folded(part: str) -> list[str]:
    if part.isascii():
        return [fold_word(part)]
    return [part] if len(part) < 3 else _character_pairs(part)


def _character_pairs(run: str) -> list[str]:
    """Overlapping pairs stand in for words in scripts without blanks."""
    return [run[at : at + 2] for at in range(len(run) - 1)]


def _search_words(text: str) -> list[str]:
    """Every word of a text, lower-case, names taken apart and also kept whole."""
    result: list[str] = []
    for word in _WORD.findall(_without_accents(text)):
        if _UNSPACED.search(word):
            low = word.lower()
            result += [low] if len(low) == 1 else _character_pairs(low[: 4 * MAX_WORD])
            continue
        parts = _SEAM.findall(word)
        if len(parts) > 1:
            result.extend(part.lower()[:MAX_WORD] for part in parts)
        result.append(word.lower()[:MAX_WORD])
    return result


def search_terms(text: str) -> list[str]:
    """The words that count, stemmed, in order, repeats kept."""
    ignored = stop_words("search")
    return [_stem(word) for word in _search_words(text) if word not in ignored]


def query_terms(text: str) -> dict[str, str]:
    """Stem and first spelling of each word that counts, in order, its synonyms behind it. A request of stop words only
    keeps them."""
    terms: dict[str, str] = {}
    words = _search_words(text[:MAX_CHARACTERS])
    ignored = stop_words("search")
    synonyms = _lists().synonyms
    for word in [word for word in words if word not in ignored] or words:
        stem = _stem(word)
        terms.setdefault(stem, word)
        for other in synonyms.get(stem, ()):
            terms.setdefault(_stem(other), other)
        if len(terms) >= MAX_TERMS:
            break
    return terms


def _without_accents(text: str) -> str:
    """Compatibility forms folded and accents dropped, so that `Café` and `cafe` meet."""
    if not text.isascii():
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(mark for mark in decomposed if not unicodedata.combining(mark))
    return text.translate(_APOSTROPHES)


_VOWEL = re.compile(r"[aeiouy]")
_UNSTEMMED = frozenset(("news", "status", "address", "process", "access", "alias", "series", "always", "this", "press"))
_INFLECTED = (("ies", "y"), ("ied", "y"), ("sses", "ss"), ("ings", ""), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""))
_DERIVED = (
    *(("ization", "iz"), ("isation", "iz"), ("ational", "at"), ("fulness", "ful"), ("iveness", "iv"), ("ation", "at")),
    *(("ator", "at"), ("ment", ""), ("ness", ""), ("ion", ""), ("ise", "iz"), ("ize", "iz"), ("is", "iz")),
    *(("ly", ""), ("er", ""), ("or", "")),
)


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    """A light stem: an ending of number or tense off, then one of kind. Not a word, only a key."""
    if len(word) <= 3 or not word.isascii() or not word.isalpha() or word in _UNSTEMMED:
        return word
    return _without_ending(_without_ending(word, _INFLECTED), _DERIVED)


def _without_ending(word: str, endings: tuple[tuple[str, str], ...]) -> str:
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


# Verbs by which tools are told apart: those that take something away, and those that only look.
_DESTROYING = frozenset(
    (
        *("delete", "drop", "remove", "rm", "purge", "destroy", "erase", "wipe", "truncate", "terminate", "kill"),
        *("uninstall", "revoke", "unlink", "overwrite", "reset", "clear", "prune", "deprovision"),
    )
)
READING = frozenset(
    (
        *("get", "list", "read", "find", "search", "show", "describe", "check", "count", "fetch", "query", "view"),
        *("preview", "validate", "inspect", "is", "can", "has"),
    )
)


def sounds_destructive(text: str) -> bool:
    """Whether a destroying verb stands in a name or sentence, and no reading verb before it: `get_delete_log` reads."""
    words = (word.lower() for word in split_identifier(text))
    plain = (word if word in READING else word.removesuffix("s") for word in words)  # "Deletes an order"
    return next((word for word in plain if word in READING or word in _DESTROYING), "") in _DESTROYING
