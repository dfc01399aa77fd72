"""Text into the numbers the encoder reads: BERT's lower-case WordPiece, with nothing but the standard library.

It gives the same ids as the reference tokeniser the encoder was trained with, on ASCII by a short way and on everything
else by the full one; only a literal `[MASK]` in a text stays text here. It does
not pad or batch, and truncates only at `limit`.
"""

import re
import unicodedata
from pathlib import Path

UNKNOWN, FIRST, LAST = "[UNK]", "[CLS]", "[SEP]"
MAX_WORD = 100
"""A longer word is unknown, as in the reference."""
KEPT_WORDS = 65_536
"""How many words are remembered with their pieces; then the memory starts anew."""

_ASCII = re.compile(r"[a-z0-9]+|[!-/:-@\[-`{-~]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_DROPPED = frozenset(("Cc", "Cf", "Co", "Cs"))
_IDEOGRAPH = re.compile(
    "([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ceaf\U0002f800-\U0002fa1f])"
)


class WordPiece:
    """One vocabulary. `encode` is a pure function of the text; only its memory of words grows."""

    def __init__(self, vocabulary: list[str]) -> None:
        self._ids = {piece: number for number, piece in enumerate(vocabulary)}
        self._unknown = self._ids[UNKNOWN]
        self._first = self._ids[FIRST]
        self._last = self._ids[LAST]
        self._memory: dict[str, tuple[int, ...]] = {}

    @classmethod
    def read(cls, path: Path) -> "WordPiece":
        return cls(path.read_text(encoding="utf-8").split("\n")[:-1])

    def encode(self, text: str, limit: int) -> list[int]:
        """At most `limit` ids, the two frame marks counted. Text far behind the limit is not looked at."""
        text = text[: limit * 32]
        ids = [self._first]
        for word in _basic_words(text):
            ids.extend(self._pieces(word))
            if len(ids) >= limit:
                del ids[limit - 1 :]
                break
        ids.append(self._last)
        return ids

    def _pieces(self, word: str) -> tuple[int, ...]:
        known = self._memory.get(word)
        if known is None:
            if len(self._memory) >= KEPT_WORDS:
                self._memory.clear()
            known = self._memory[word] = self._cut(word)
        return known

    def _cut(self, word: str) -> tuple[int, ...]:
        """The longest known piece from the left, again and again."""
        if len(word) > MAX_WORD:
            return (self._unknown,)
        found: list[int] = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = word[start:end] if start == 0 else "##" + word[start:end]
                number = self._ids.get(piece)
                if number is not None:
                    found.append(number)
                    start = end
                    break
            else:
                return (self._unknown,)
        return tuple(found)


def _basic_words(text: str) -> list[str]:
    """Lower-case words and single punctuation marks."""
    if text.isascii():
        return _ASCII.findall(_CONTROL.sub("", text).lower())
    plain = "".join(_cleaned(mark) for mark in text)
    plain = unicodedata.normalize("NFD", _IDEOGRAPH.sub(r" \1 ", plain))
    lower = "".join(mark.lower() for mark in plain if unicodedata.category(mark) != "Mn")
    return "".join(f" {mark} " if _is_punctuation(mark) else mark for mark in lower).split()


def _cleaned(mark: str) -> str:
    if mark in "\t\n\r":
        return " "
    if mark == "\ufffd" or unicodedata.category(mark) in _DROPPED:
        return ""
    return " " if mark.isspace() else mark


def _is_punctuation(mark: str) -> bool:
    if mark.isascii():
        return mark.isprintable() and not mark.isalnum() and mark != " "
    return unicodedata.category(mark)[0] == "P"
