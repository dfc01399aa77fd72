"""A request in plain words, taken apart: terms to look for, each with its kind, its spellings and its weight.

Nothing here reads a document. How rare a term is, and so how much it counts, is for the ranking to say.
"""

import re
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from toolfold.outputs.local.vocabulary import HINTS, MONTHS, REQUEST_WORDS, STOP

TermKind = Literal["word", "number", "identifier", "phrase", "hint"]

QUOTED = re.compile(r"\"([^\"\n]{2,200})\"|`([^`\n]{2,200})`|“([^”\n]{2,200})”|(?<![\w'])'([^'\n]{2,200})'(?!\w)")
PIECE = re.compile(r"[^\s,;()\[\]{}\"'`?!<>|\u201c\u201d\u2018\u2019]+(?:'[a-z]{1,2}\b)?")
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)*%?")
DAY = re.compile(
    r"\b([A-Za-z]{3,9})\.? (\d{1,2})(?:st|nd|rd|th)?,? (\d{4})\b|\b(\d{1,2})\.? ([A-Za-z]{3,9})\.?,? (\d{4})\b"
)
SUFFIXES = ("ations", "ation", "ings", "ing", "ies", "ied", "edly", "ers", "ed", "es", "ly", "er", "s", "e", "y")
MAX_TERMS = 40
MAX_TERM, MAX_REQUEST = 200, 8000
FEW = 3


class Term(Struct, frozen=True):
    """Something to look for. Any of `forms` counts as found; all are lower case."""

    text: str
    kind: TermKind
    forms: tuple[str, ...]
    weight: float = 1.0
    of: str = ""
    """For a part of an identifier: the identifier."""


class ParsedRequest(Struct, frozen=True):
    """The request and what it is made of."""

    text: str
    terms: tuple[Term, ...]
    words: tuple[str, ...]
    """The words that are no stop words, stemmed, in their order: pairs of them make phrases."""
    said: dict[str, str] = {}
    """Stem → the word as it was said."""


def stem(word: str) -> str:
    """The part of an English word that its forms share: `failed`, `failing`, `failure` begin with it."""
    if len(word) <= 3 or not word.isascii():
        return word
    for suffix in SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= (3 if len(suffix) < 3 or suffix == "ers" else 4):
            if suffix == "s" and word.endswith("ss"):
                return word
            root = word[: -len(suffix)]
            # stopped → stop, running → run
            doubled = len(root) > 3 and root[-1] == root[-2] and root[-1] not in "lsz"
            if doubled and suffix in {"ed", "ing", "er", "ers"}:
                root = root[:-1]
            return root
    return word


def parse_request(text: str) -> ParsedRequest:
    """Takes a request apart. Never fails: a request without a usable word has no terms."""
    text = text[:MAX_REQUEST]
    terms: dict[str, Term] = {}
    words: list[str] = []

    def add(term: Term) -> None:
        known = terms.get(term.text)
        if len(terms) < MAX_TERMS and (known is None or known.weight < term.weight):
            terms[term.text] = term

    for phrase in _quoted_phrases(text):
        add(Term(phrase, "phrase", _spellings(phrase), 2.5))
    for day in DAY.finditer(text):
        _add_day(day, add)
    said: dict[str, str] = {}
    for number, piece in enumerate(PIECE.findall(text)):
        # `Field` in the midst of a sentence is a name, though `field` says nothing.
        named = number > 0 and piece[0].isupper() and piece[1:].islower() and piece.lower() not in REQUEST_WORDS
        _add_piece(piece, add, words, named=named)
        plain = piece.lower().strip(".:-")
        said.setdefault(stem(plain), plain)
    if len(terms) < FEW:
        # Words that say little are still better than none.
        for word in {piece.lower() for piece in re.findall(r"[A-Za-z]{4,}", text)} & (STOP - REQUEST_WORDS):
            add(Term(word, "word", (word,), 0.3))
    for word in words:
        for hint in HINTS.get(word, ()):
            add(Term(hint, "hint", (hint,), 0.35))
    return ParsedRequest(text, tuple(terms.values()), tuple(words), said)


def _quoted_phrases(text: str) -> list[str]:
    """What stands in quotation marks, lower case."""
    found = (next(part for part in match.groups() if part is not None) for match in QUOTED.finditer(text))
    return [phrase.strip().lower() for phrase in found if len(phrase.strip()) > 1]


def _add_piece(piece: str, add: Callable[[Term], None], words: list[str], *, named: bool = False) -> None:
    """One run without blanks: a number, an identifier with its parts, or a word."""
    piece = re.sub(r"'[a-z]{1,2}$", "", piece).strip(".:-\u2013\u2014=*/\\&" if not piece.startswith("/") else ".:,")
    piece = piece[:MAX_TERM]
    low = piece.lower()
    if not low or (low in STOP and not named):
        return
    if NUMBER.fullmatch(piece):
        plain = low.strip("+%")
        forms = {plain, plain.replace(",", "")}
        words.append(plain)
        add(Term(plain, "number", tuple(sorted(forms)), 1.3 if len(plain) > 1 else 0.6))
        return
    parts = [part.lower() for part in PARTS.findall(piece)]
    if len(parts) > 1 or (not piece.isalpha() and piece.isascii()):
        add(
            Term(
                low,
                "identifier",
                _identifier_spellings(low, parts),
                1.6 if any(c.isdigit() for c in low) or len(parts) > 1 else 1.2,
            )
        )
        words.append(low)
        for part in parts:
            if part not in STOP and len(part) > 1:
                add(Term(stem(part), "word", (stem(part),), 0.35, low))
        return
    root = stem(low)
    words.append(root)
    # A name in the midst of a sentence is worth more than a common word.
    add(Term(root, "word", _spellings(root), 1.25 if piece[0].isupper() and not piece.isupper() else 1.0))


def _identifier_spellings(low: str, parts: list[str]) -> tuple[str, ...]:
    """An identifier in the ways that programs write it: `helm-get`, `helm_get`, `helmGet`, `helm get`."""
    if not 2 <= len(parts) <= 12 or not re.fullmatch(r"[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*", low):
        return _spellings(low)
    return tuple(dict.fromkeys([low, *(sign.join(parts) for sign in ("_", "-", "", " ", "."))]))


def _spellings(text: str) -> tuple[str, ...]:
    """A term as it may stand in the document: as it is, and with the escapes that JSON writes."""
    forms = [text]
    if any(sign in text for sign in '"\\\n\t'):
        forms.append(text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t"))
    if not text.isascii():
        forms.append("".join(c if c.isascii() else "".join(f"\\u{u:04x}" for u in _utf16_units(c)) for c in text))
        forms += [text.upper(), text.capitalize(), text.title()]
    return tuple(dict.fromkeys(forms))


def _utf16_units(sign: str) -> list[int]:
    raw = sign.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(raw[at : at + 2], "big") for at in range(0, len(raw), 2)]


def _add_day(day: re.Match[str], add: Callable[[Term], None]) -> None:
    """`5 March 2024` also stands as 2024-03-05, 05/Mar/2024 and Mar 5."""
    name, number, year = (day[1], day[2], day[3]) if day[1] else (day[5], day[4], day[6])
    month = MONTHS.get(name[:3].lower())
    if month is None:
        return
    short = name[:3].lower()
    forms = (
        f"{year}-{month:02}-{int(number):02}",
        f"{int(number):02}/{short}/{year}",
        f"{short} {int(number):2}",
        f"{short} {int(number)}",
        f"{year}/{month:02}/{int(number):02}",
        f"{int(number)} {short}",
    )
    add(Term(forms[0], "identifier", tuple(dict.fromkeys(forms)), 1.6))
