"""Looks for what a tool's description hides from a person, or tells a model to do behind the user's back.

A guess by form, made to be shown to the owner and to be named in a policy as `flag:…`; the server's text is never
altered. It reads every string of the whole object: names, descriptions, parameters, defaults, examples. Instructions
are looked for in the text as a model would take it: compatible letters folded, hidden characters removed.

It does not understand text: what says the same in other words passes. Whoever must be sure holds tools back and reads
them (`trust.accept_new = false`).
"""

import re
import tomllib
import unicodedata
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from toolfold.policy import Flag

# A definition may be of any size, and the expressions run over all that is read.
_MAX_CHARACTERS = 1_000_000
_EXCERPT = 80
# Between two texts of one definition.
_GAP = "\n\n"
# Shorter runs of base64 are ids and hashes.
_SHORTEST_BLOB = 64


# What takes no room on a screen and still reaches a model. Tab, line feed and carriage return are fine.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # control
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0"  # fillers and joiners
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"  # zero width, direction
    "\ufe00-\ufe0f\U000e0000-\U000e01ef\U0001d173-\U0001d17a\ufff9-\ufffb]+"  # selectors, tags, interlinear
)
_NAMES = (
    (re.compile("[\U000e0000-\U000e007f]"), "tag characters, which spell text that nobody sees"),
    (re.compile("[\u202a-\u202e\u2066-\u2069\u061c\u200e\u200f]"), "characters that turn the direction of text"),
    (re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]"), "variation selectors, which can carry hidden bytes"),
    (re.compile("[\x00-\x1f\x7f-\x9f]"), "control characters"),
)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_FLAG_EMOJI = re.compile("\U0001f3f4[\U000e0061-\U000e007a\U000e0030-\U000e0039]{2,6}\U000e007f")

_BLOB = re.compile(r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{4}){16,}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


class _Phrase(NamedTuple):
    kind: str
    reason: str
    words: tuple[str, ...]
    """A plain search for these is many times faster than the expression, and nearly always ends it."""
    rule: re.Pattern[str]


@cache
def _phrases() -> tuple[_Phrase, ...]:
    data = tomllib.loads((resources.files(__package__) / "description_scan.toml").read_text(encoding="utf-8"))
    return tuple(
        _Phrase(
            entry["kind"],
            entry["reason"],
            tuple(entry["words"]),
            re.compile(entry["rule"].replace("GAP", data["gap"]), re.DOTALL),
        )
        for entry in data["phrase"]
    )


def scan(raw: Raw | bytes) -> tuple[Flag, ...]:
    """What is suspicious about a whole tool object, each kind once."""
    try:
        definition = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        return (Flag("unreadable", "the object cannot be read as JSON"),)
    flags = {flag.kind: flag for flag in _scan_text(_GAP.join(_texts(definition))[:_MAX_CHARACTERS])}
    name = definition.get("name") if isinstance(definition, dict) else None
    if isinstance(name, str) and "\u00ad" in name:  # in a longer text it only says where a word may be parted
        flags.setdefault("hidden", Flag("hidden", "its name has characters of no width (U+00AD)", _around(name, 0, 0)))
    return tuple(flags[kind] for kind in sorted(flags))


def _texts(value: Any) -> Iterator[str]:
    """Every string inside, keys too, without recursion."""
    walk = [value]
    while walk:
        node = walk.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, dict):
            walk.extend(node.values())
            yield from node
        elif isinstance(node, list):
            walk.extend(node)


def _scan_text(text: str) -> Iterator[Flag]:
    if not text.isascii() or _CONTROL.search(text):
        yield from _hidden(text)
        text = unicodedata.normalize("NFKC", _HIDDEN.sub("", text))
    lowered = text.lower()
    for phrase in _phrases():
        if any(word in lowered for word in phrase.words) and (match := phrase.rule.search(lowered)):
            # A few letters are longer or shorter in small.
            shown = text if len(text) == len(lowered) else lowered
            yield Flag(phrase.kind, phrase.reason, _around(shown, match.start(), match.end()))
    yield from _blobs(text)


def _hidden(text: str) -> Iterator[Flag]:
    text = _FLAG_EMOJI.sub("", text)
    for match in _HIDDEN.finditer(text):
        if _is_legitimate(text, match.start(), match.end()):
            continue
        what = next((name for form, name in _NAMES if form.search(match.group())), "characters of no width")
        codes = " ".join(f"U+{ord(char):04X}" for char in match.group()[:4])
        yield Flag("hidden", f"holds {what} ({codes})", _around(text, match.start(), match.end()))
        return


def _is_legitimate(text: str, start: int, end: int) -> bool:
    """What emoji and other scripts need: one selector after a sign, joiners between letters that are not Latin, a byte
    order mark in front."""
    run, before, after = text[start:end], text[max(start - 1, 0) : start], text[end : end + 1]
    if run == "\ufeff":
        return start == 0
    if run in {"\ufe0e", "\ufe0f", "\ufe0f\u200d", "\u200d"}:
        return _joins_emoji(run, before, after)
    if run in {"\u200c", "\u200e", "\u200f"}:
        return any(unicodedata.bidirectional(char) in {"R", "AL"} or char > "\u0900" for char in before + after)
    return run == "\u00ad"


def _joins_emoji(run: str, before: str, after: str) -> bool:
    # Digits, `#` and `*` begin the emoji of keys on a telephone.
    begins = bool(before) and (not before.isascii() or before in "#*0123456789")
    return begins and (run[-1] != "\u200d" or not after.isascii())


def _blobs(text: str) -> Iterator[Flag]:
    """A long run of base64 that is text again once decoded: pictures and keys are not."""
    if max(map(len, text.split()), default=0) < _SHORTEST_BLOB:
        return
    for match in _BLOB.finditer(text):
        try:
            inside = b64decode(match.group(), validate=True).decode("utf-8")
        except (Base64Error, ValueError):
            continue
        if inside.isprintable() and inside.count(" ") >= 3:
            yield Flag("blob", "holds encoded text", f"{match.group()[:24]}… is: {inside[:_EXCERPT]}")
            return


def _around(text: str, start: int, end: int) -> str:
    """The place, from the beginning of a word and within its own text, made safe to print."""
    begin = max(0, start - 10, text.rfind(_GAP, 0, start) + len(_GAP) if _GAP in text[:start] else 0)
    if begin and not text[begin - 1].isspace():
        begin = next((at + 1 for at in range(begin, start) if text[at].isspace()), start)
    gap = text.find(_GAP, end)
    piece = text[begin : min(max(end, begin + _EXCERPT), len(text) if gap < 0 else gap)][: _EXCERPT * 2]
    return "".join(char if char.isprintable() and not _HIDDEN.match(char) else "·" for char in piece).strip()
