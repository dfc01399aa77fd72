"""A request in plain words, parsed: terms to look for, each with its kind, its spellings and its weight.

Nothing here reads a document. How rare a term is, and so how much it counts, is decided in `rank.py`.
"""

import re
from functools import cache
from importlib import resources
from typing import Literal

import msgspec
from msgspec import Struct

from toolfold.words import split_identifier, stop_words

TermKind = Literal["word", "number", "identifier", "phrase", "hint"]

QUOTED = re.compile(r"\"([^\"\n]{2,200})\"|`([^`\n]{2,200})`|“([^”\n]{2,200})”|(?<![\w'])'([^'\n]{2,200})'(?!\w)")
# Unlike the tokeniser of the search over tools this keeps `a.b`, `x-1`, `/path` and `12:30` whole: they are looked for
# in the document as they are written. Identifiers are split besides.
PIECE = re.compile(r"[^\s,;()\[\]{}\"'`?!<>|\u201c\u201d\u2018\u2019]+(?:'[a-z]{1,2}\b)?")
NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)*%?")
DAY = re.compile(
    r"\b([A-Za-z]{3,9})\.? (\d{1,2})(?:st|nd|rd|th)?,? (\d{4})\b|\b(\d{1,2})\.? ([A-Za-z]{3,9})\.?,? (\d{4})\b"
)
SUFFIXES = ("ations", "ation", "ings", "ing", "ies", "ied", "edly", "ers", "ed", "es", "ly", "er", "s", "e", "y")
WRITTEN_TIME = re.compile(r"\d{4}-\d\d(?:-\d\d)?|\d{1,2}:\d\d")
TELLING = re.compile(r"[\d_@/:\\]|\w\.\w")
MAX_TERMS = 40
MAX_TERM, MAX_REQUEST = 200, 8000
FEW = 3
STOP = stop_words("documents")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
MONTHS = {name: number for number, name in enumerate(_MONTHS, 1)}


class _Vocabulary(Struct, frozen=True):
    """`vocabulary.toml`."""

    request_words: frozenset[str]
    hints: dict[str, tuple[str, ...]]


@cache
def _vocabulary() -> _Vocabulary:
    text = (resources.files(__package__) / "vocabulary.toml").read_text(encoding="utf-8")
    return msgspec.toml.decode(text, type=_Vocabulary)


class Term(Struct, frozen=True):
    """Something to look for. Any of `forms` counts as a match; all are lower case."""

    text: str
    kind: TermKind
    forms: tuple[str, ...]
    weight: float = 1.0
    # For a part of an identifier: the identifier.
    of: str = ""
    # A name by its capital letter, in the midst of a sentence.
    is_name: bool = False

    @property
    def is_telling(self) -> bool:
        """Whether it can only mean itself: a longer number, or an identifier with digits or signs."""
        if self.of or self.kind not in {"number", "identifier"}:
            return self.is_name
        if self.kind == "number":
            return len(self.text) > 2
        # A document may write a day or a time otherwise.
        return TELLING.search(self.text) is not None and not WRITTEN_TIME.match(self.text)

    @property
    def is_named(self) -> bool:
        """Whether the request itself names it: it is neither a hint nor a part of an identifier."""
        return self.kind != "hint" and not self.of


class ParsedRequest(Struct, frozen=True):
    """The request and what it consists of."""

    text: str
    terms: tuple[Term, ...]
    # The words that are no stop words, stemmed, in their order: pairs of them make phrases.
    words: tuple[str, ...]
    # Stem → the word as the request writes it.
    originals: dict[str, str] = {}

    @property
    def forms(self) -> list[str]:
        return [form for term in self.terms for form in term.forms]

    def spoken(self, term: Term) -> str:
        """The term as the request writes it."""
        return self.originals.get(term.text, term.text)


def stem(word: str) -> str:
    """The part of an English word that its forms share: `failed`, `failing`, `failure` begin with it."""
    # The document is searched for the stem with `bytes.find`, so it must be a prefix of every form. The stemmer of the
    # search over tools rewrites endings (`queries` → `query`) and cannot be used.
    if len(word) <= 3 or not word.isascii() or word.endswith("ss"):
        return word
    suffix = next((end for end in SUFFIXES if word.endswith(end) and len(word) - len(end) >= _least_root(end)), "")
    root = word.removesuffix(suffix)
    return _undoubled(root) if suffix in {"ed", "ing", "er", "ers"} else root


def _undoubled(root: str) -> str:
    """stopped → stop, running → run"""
    return root[:-1] if len(root) > 3 and root[-1] == root[-2] and root[-1] not in "lsz" else root


def _least_root(suffix: str) -> int:
    return 3 if len(suffix) < 3 or suffix == "ers" else 4


def parse_request(text: str) -> ParsedRequest:
    """Takes a request apart. Never fails: a request without a usable word has no terms."""
    return _Parser(text[:MAX_REQUEST]).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._terms: dict[str, Term] = {}
        self._words: list[str] = []
        self._originals: dict[str, str] = {}

    def parse(self) -> ParsedRequest:
        for phrase in _quoted_phrases(self._text):
            self._add(phrase, "phrase", _spellings(phrase), 2.5)
        for day in DAY.finditer(self._text):
            self._add_day(day)
        for number, piece in enumerate(PIECE.findall(self._text)):
            self._add_piece(piece, named=number > 0 and _is_name(piece))
            plain = piece.lower().strip(".:-")
            self._originals.setdefault(stem(plain), plain)
        if len(self._terms) < FEW:
            self._add_stop_words()
        for word in self._words:
            for hint in _vocabulary().hints.get(word, ()):
                self._add(hint, "hint", (hint,), 0.35)
        return ParsedRequest(self._text, tuple(self._terms.values()), tuple(self._words), self._originals)

    def _add_stop_words(self) -> None:
        """Words that say little are still better than none."""
        words = {piece.lower() for piece in re.findall(r"[A-Za-z]{4,}", self._text)}
        for word in sorted(words & (STOP - _vocabulary().request_words)):
            self._add(word, "word", (word,), 0.3)

    def _add(
        self, text: str, kind: TermKind, forms: tuple[str, ...], weight: float, of: str = "", *, is_name: bool = False
    ) -> None:
        existing = self._terms.get(text)
        if len(self._terms) < MAX_TERMS and (existing is None or existing.weight < weight):
            self._terms[text] = Term(text, kind, forms, weight, of, is_name)

    def _add_piece(self, piece: str, *, named: bool) -> None:
        """One run without blanks: a number, an identifier with its parts, or a word."""
        piece = _trim(piece)
        low = piece.lower()
        if not low or (low in STOP and not named) or low in {"i.e", "e.g"}:
            return
        parts = [part.lower() for part in split_identifier(piece)]
        if NUMBER.fullmatch(piece):
            self._add_number(low.strip("+%"))
        elif len(parts) > 1 or (not piece.isalpha() and piece.isascii()):
            self._add_identifier(low, parts)
        else:
            self._add_word(piece, named=named)

    def _add_word(self, word: str, *, named: bool) -> None:
        root = stem(word.lower())
        self._words.append(root)
        # A name in the midst of a sentence is worth more than a common word.
        weight = 1.25 if word[0].isupper() and not word.isupper() else 1.0
        self._add(root, "word", _spellings(root), weight, is_name=named)

    def _add_number(self, number: str) -> None:
        self._words.append(number)
        plain = number.replace(",", "")
        grouped = f"{int(plain):,}" if plain.isdecimal() and 3 < len(plain) < 16 else number
        forms = tuple(sorted({number, plain, grouped}))
        self._add(number, "number", forms, 1.3 if len(number) > 1 else 0.6)

    def _add_identifier(self, low: str, parts: list[str]) -> None:
        telling = len(parts) > 1 or any(sign.isdigit() for sign in low)
        spellings = _identifier_spellings(low, parts)
        if re.fullmatch(r"v\d[\w.]*", low):
            spellings = (*spellings, low[1:])
        self._add(low, "identifier", spellings, 1.6 if telling else 1.2)
        self._words.append(low)
        for part in parts:
            if part not in STOP and len(part) > 1:
                self._add(stem(part), "word", (stem(part),), 0.35, low)

    def _add_day(self, day: re.Match[str]) -> None:
        """`5 March 2024` is also looked for as 2024-03-05, 05/Mar/2024 and Mar 5."""
        name, number, year = (day[1], day[2], day[3]) if day[1] else (day[5], day[4], day[6])
        short = name[:3].lower()
        month = MONTHS.get(short)
        if month is None:
            return
        forms = (
            f"{year}-{month:02}-{int(number):02}",
            f"{int(number):02}/{short}/{year}",
            f"{short} {int(number):2}",
            f"{short} {int(number)}",
            f"{year}/{month:02}/{int(number):02}",
            f"{int(number)} {short}",
        )
        self._add(forms[0], "identifier", tuple(dict.fromkeys(forms)), 1.6)


def _is_name(piece: str) -> bool:
    """`Field` in the midst of a sentence is a name, though `field` says nothing."""
    return piece[0].isupper() and piece[1:].islower() and piece.lower() not in _vocabulary().request_words


def _trim(piece: str) -> str:
    """Without a genitive's ending and without the signs around it; a path keeps those that belong to it."""
    edge = ".:," if piece.startswith("/") else ".:-\u2013\u2014=*/\\&#"
    return re.sub(r"'[a-z]{1,2}$", "", piece).strip(edge)[:MAX_TERM]


def _quoted_phrases(text: str) -> list[str]:
    """What stands in quotation marks, lower case."""
    phrases = (next(part for part in match.groups() if part is not None) for match in QUOTED.finditer(text))
    return [phrase.strip().lower() for phrase in phrases if len(phrase.strip()) > 1]


def _identifier_spellings(low: str, parts: list[str]) -> tuple[str, ...]:
    """An identifier in the ways that programs write it: `helm-get`, `helm_get`, `helmGet`, `helm get`."""
    if not 2 <= len(parts) <= 12 or not re.fullmatch(r"[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*", low):
        return _spellings(low)
    return tuple(dict.fromkeys([low, *(sign.join(parts) for sign in ("_", "-", "", " ", "."))]))


def _spellings(text: str) -> tuple[str, ...]:
    """A term as a document may write it: as it is, and with the escapes of JSON."""
    forms = [text]
    if any(sign in text for sign in '"\\\n\t'):
        forms.append(text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t"))
    if not text.isascii():
        forms.append("".join(sign if sign.isascii() else _unicode_escape(sign) for sign in text))
        # Only ASCII is folded when a document is searched.
        forms += [text.upper(), text.capitalize(), text.title()]
    return tuple(dict.fromkeys(forms))


def _unicode_escape(sign: str) -> str:
    raw = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{int.from_bytes(raw[at : at + 2], 'big'):04x}" for at in range(0, len(raw), 2))
