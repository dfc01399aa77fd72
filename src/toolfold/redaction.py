"""Removes known secrets from text, in every spelling that a program may have printed them in.

It does not search for unknown secrets: the caller names the values. Every stage may import it.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

MASK = "***"
# Shorter values are left alone: masking every `1` in a text would hide the text and protect nothing.
_SHORTEST = 4
# So much of a secret at the end of a text that was cut is still worth hiding.
_SHORTEST_START = 8
# The spellings of a longer one are looked for as a whole, not letter by letter.
_LONGEST_SPELT = 256
# Any one of these, and a secret may stand in the text escaped letter by letter.
_ESCAPES = re.compile(r"[\\%&+]")
_HTML = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_CONTROLS = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}

# Values that every text is kept free of, whoever asks, the oldest first: tokens that were issued while we run. Each
# with its marks: whatever spelling of it stands in a text, one of them stands there, too.
_learned: dict[str, frozenset[str]] = {}
_MAX_LEARNED = 1024
# The learned by their marks, so that a text is gone through once, however many there are.
_marked: dict[str, set[str]] = {}
_MARK_SIZE = 6
# Of a mark that is empty nothing is known: its secret may stand in any text.
_RUN = re.compile("[A-Za-z0-9]+")
_ESCAPED_LETTER = re.compile(r"(?:\\+(?:u00|x)|%(?:25)?)([3-7][0-9a-fA-F])")
# The digits of an escape that ends in the midst of a run of letters.
_ESCAPE_DIGITS = 4


def learn(*secrets: str | None) -> None:
    """From now on `redact` removes these as well. Those learned longest ago are forgotten: no token lives for ever."""
    for secret in filter(None, secrets):
        marks = _learned.pop(secret, None) or _marks(secret)
        _learned[secret] = marks
        for mark in marks:
            _marked.setdefault(mark, set()).add(secret)
    while len(_learned) > _MAX_LEARNED:
        oldest = next(iter(_learned))
        for mark in _learned.pop(oldest):
            _marked[mark].discard(oldest)
            if not _marked[mark]:
                del _marked[mark]


def _marks(secret: str) -> frozenset[str]:
    forms = _spellings(secret)
    marks = {form[:_MARK_SIZE] if len(form) >= _MARK_SIZE else "" for form in forms}
    if forms and len(secret) <= _LONGEST_SPELT:
        # Of one that is escaped letter by letter, the letters that are read back in one way alone.
        run = max(_RUN.findall(secret), key=len, default="")
        marks.add(run[-_MARK_SIZE:] if len(run) >= _MARK_SIZE + _ESCAPE_DIGITS else "")
    return frozenset(marks)


def _learned_in(text: str, *, escaped: bool) -> set[str]:
    """The learned that may stand in the text: all that do, and hardly any other."""
    if not _learned:
        return set()
    found = set(_marked.get("", ()))
    texts = (text, _ESCAPED_LETTER.sub(lambda match: chr(int(match[1], 16)), text)) if escaped else (text,)
    for one in texts:
        for start in range(len(one) - _MARK_SIZE + 1):
            if (mark := one[start : start + _MARK_SIZE]) in _marked:
                found.update(_marked.get(mark, ()))
    return found


def redact(text: str, secrets: Iterable[str], replacement: str = MASK) -> str:
    """The text without the secrets, also where they stand escaped for a URL, JSON or HTML, in Base64, or only in single
    lines; and without the start of one where the text ends."""
    escaped = _ESCAPES.search(text) is not None
    known = (*secrets, *_learned_in(text, escaped=escaped))
    spans = [span for secret in known for span in _spans(text, secret, escaped=escaped)]
    if not spans:
        return text
    parts, end = [], 0
    for start, stop in sorted(spans):
        if start >= end:
            parts += [text[end:start], replacement]
        end = max(end, stop)
    return "".join((*parts, text[end:]))


def _spans(text: str, secret: str, *, escaped: bool) -> Iterator[tuple[int, int]]:
    for form in _spellings(secret):
        start = text.find(form)
        while start >= 0:
            yield start, start + len(form)
            start = text.find(form, start + 1)
    if escaped and (pattern := _letter_by_letter(secret)) is not None:
        yield from (match.span() for match in pattern.finditer(text))
    # Most texts hold no start of it at all, and then nothing is tried.
    begins = len(secret) > _SHORTEST_START and text.find(secret[:_SHORTEST_START], -len(secret) - _SHORTEST_START) >= 0
    rest = len(text.rstrip("….")) if begins else 0
    for length in range(min(len(secret) - 1, rest), _SHORTEST_START - 1, -1):
        if text.endswith(secret[:length], 0, rest):
            yield rest - length, rest
            return


@lru_cache(1024)
def _spellings(secret: str) -> tuple[str, ...]:
    return tuple({form for form in _forms(secret) if len(form) >= _SHORTEST})


def _forms(secret: str) -> Iterator[str]:
    if len(secret.strip()) < _SHORTEST:
        return
    from json import dumps

    yield secret
    yield secret.strip()
    yield dumps(secret)[1:-1]
    yield dumps(secret, ensure_ascii=False)[1:-1]
    lines = secret.splitlines()
    if len(lines) > 1:
        yield from (line.strip() for line in lines if len(line.strip()) >= 2 * _SHORTEST)
    if len(secret) >= _SHORTEST_START:
        yield from _in_base64(secret.encode("utf-8", "replace"))


def _in_base64(secret: bytes) -> Iterator[str]:
    """What all Base64 has in common that holds the secret, for each of the three places it may begin at."""
    from base64 import b64encode, urlsafe_b64encode

    for encode in (b64encode, urlsafe_b64encode):
        for before in range(3):
            whole = (before + len(secret)) // 3 * 4
            # The first letters depend on what stands before it as well, the last ones on what comes after.
            yield encode(bytes(before) + secret).decode()[(0, 2, 3)[before] : whole]


@lru_cache(1024)
def _letter_by_letter(secret: str) -> "re.Pattern[str] | None":
    """The secret with each of its letters as it is or escaped: `%2f`, `\\u002F` and `\\/` may all stand in one text."""
    if not _SHORTEST <= len(secret.strip()) <= len(secret) <= _LONGEST_SPELT:
        return None
    return re.compile("".join(f"(?:{'|'.join(_escapes(letter))})" for letter in secret))


def _escapes(letter: str) -> Iterator[str]:
    yield re.escape(letter)
    # A text that was encoded twice has its backslashes doubled.
    if letter in '/"\\':
        yield rf"\\\\*{re.escape(letter)}"
    if letter in _CONTROLS:
        yield rf"\\\\*{_CONTROLS[letter]}"
    if letter in _HTML:
        yield f"&(?:{_HTML[letter]}|#0*{ord(letter)}|#[xX]0*{_hex(f'{ord(letter):x}')});"
    if letter == " ":
        yield r"\+"
    units = memoryview(letter.encode("utf-16-le", "surrogatepass")).cast("H")
    yield "".join(rf"\\\\*u{_hex(f'{unit:04x}')}" for unit in units)
    if ord(letter) > 0xFFFF:
        yield rf"\\\\*U{_hex(f'{ord(letter):08x}')}"
    if ord(letter) < 256:
        yield rf"\\\\*x{_hex(f'{ord(letter):02x}')}"
    yield "".join(f"%(?:25)?{_hex(f'{byte:02x}')}" for byte in letter.encode("utf-8", "replace"))


def _hex(digits: str) -> str:
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in digits)
