"""The capabilities that ship with toolfold, read from the `.toml` files beside this module on first use.

A domain ("Databases") has parts ("SQL queries"); both carry cues, the words by which a tool is recognised. Nothing here
knows a particular server: cues are the words of a field and its well-known products.
"""

import tomllib
from functools import cache
from importlib import resources

from msgspec import Struct

from toolfold.words import fold_word, text_words

DEFAULT_WEIGHT = 2.0


class _Part(Struct, frozen=True):
    """A sub-capability. `index` is its place in `Taxonomy.parts`, `domain` its domain's place in `Taxonomy.domains`."""

    index: int
    domain: int
    name: str
    summary: str
    tags: tuple[str, ...]
    also: tuple[str, ...] = ()
    """Names of further domains under which it is shown."""


class _Domain(Struct, frozen=True):
    """A field of capabilities: a child of the root."""

    index: int
    name: str
    summary: str
    tags: tuple[str, ...]


class Taxonomy(Struct, frozen=True):
    """`cues` maps a word, or words joined by blanks, to what it speaks for: part `i` as `i`, domain `i` as `-1 - i`."""

    domains: tuple[_Domain, ...]
    parts: tuple[_Part, ...]
    cues: dict[str, tuple[tuple[int, float], ...]]
    openers: frozenset[str]
    """The first words of cues that are longer than one word."""


@cache
def taxonomy() -> Taxonomy:
    domains: list[_Domain] = []
    parts: list[_Part] = []
    cues: dict[str, dict[int, float]] = {}
    folder = resources.files(__package__)
    # In this order: the numbers of domains and parts break ties.
    for file in ("building.toml", "knowledge.toml", "business.toml", "life.toml"):
        for entry in tomllib.loads((folder / file).read_text(encoding="utf-8"))["domain"]:
            domain = _Domain(len(domains), entry["name"], entry["summary"], tuple(entry["tags"].split()))
            domains.append(domain)
            _add_cues(cues, entry["cues"], -1 - domain.index)
            for name, summary, tags, words, *also in entry["part"]:
                part = _Part(len(parts), domain.index, name, summary, tuple(tags.split()), tuple(also))
                parts.append(part)
                _add_cues(cues, words, part.index)
    openers = frozenset(cue.partition(" ")[0] for cue in cues if " " in cue)
    return Taxonomy(tuple(domains), tuple(parts), {cue: _spread(cue, to) for cue, to in cues.items()}, openers)


def _add_cues(cues: dict[str, dict[int, float]], text: str, target: int) -> None:
    for item in text.split():
        written, _, weight = item.partition(":")
        for cue in _forms(written):
            targets = cues.setdefault(cue, {})
            targets[target] = max(targets.get(target, 0.0), float(weight) if weight else DEFAULT_WEIGHT)


def _forms(written: str) -> list[str]:
    """How a cue looks after words are folded. A long run of Chinese characters is found by its pairs."""
    if written.isascii():
        return [" ".join(fold_word(word) for word in written.split("_"))]
    return [" ".join(text_words(written))]


def _spread(cue: str, targets: dict[int, float]) -> tuple[tuple[int, float], ...]:
    """A cue that speaks for many parts says less about each."""
    parts = sum(1 for target in targets if target >= 0)
    scale = 1.0 / (parts**0.35) if parts > 1 else 1.0
    return tuple((target, weight * scale if target >= 0 else weight) for target, weight in targets.items())
