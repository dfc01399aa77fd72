"""What somebody may have meant: the nearest of many known words to one that is not there.

Fast enough for 100,000 words: shared letters choose a few, edit distance ranks those.
"""

from collections.abc import Iterable, Sequence

from toolfold.types import Path

CONSIDERED = 60
"""How many words are compared letter by letter."""
MAX_WORD = 128
"""How much of a word is looked at: what somebody sends may be of any length."""
MAX_DEPTH = 12
"""How many steps of a path are looked at."""


def closest_words(word: str, known: Iterable[str], *, limit: int = 5) -> list[str]:
    """The nearest known words, best first. Words with next to nothing in common are not among them."""
    asked = word[:MAX_WORD].casefold()
    pairs, letters = _pairs(asked), set(asked)
    scored = []
    for one in known:
        text = one.casefold()
        others = _pairs(text)
        shared = len(pairs & others)
        alike = (shared + len(letters.intersection(text)) / 10) / (len(pairs) + len(others))
        scored.append((-alike, one, shared))
    ranked = sorted(
        (_edit_distance(asked, one[:MAX_WORD].casefold()), one, shared)
        for _, one, shared in sorted(scored)[:CONSIDERED]
    )
    return [one for distance, one, shared in ranked if shared or distance <= len(asked) * 2 // 3][:limit]


def closest_paths(path: Path, known: Sequence[Path], *, limit: int = 5) -> list[Path]:
    """The nearest known paths, best first: the part of the path that exists, then names like the ones asked for. Where
    nothing is near, the roots."""
    path = path[:MAX_DEPTH]
    asked = tuple(name.casefold() for name in path)
    shown = {" / ".join(one): one for one in known}
    below = [one for one in known if one[-1].casefold() == asked[-1]]
    parent = next((one for end in range(len(asked) - 1, 0, -1) for one in known if _folded(one) == asked[:end]), None)
    beside = [one for one in known if parent is not None and _folded(one)[:-1] == _folded(parent)]
    by_name = {one[-1]: one for one in reversed(beside)}
    found = [
        *sorted(below, key=len),
        *(by_name[name] for name in closest_words(asked[-1], by_name, limit=2)),
        *([parent] if parent is not None else []),
        *(shown[text] for text in closest_words(" / ".join(path), shown, limit=limit)),
    ]
    return list(dict.fromkeys(found or [one for one in known if len(one) == 1]))[:limit]


def is_typo(word: str, meant: str) -> bool:
    """Whether a word is so near to a known one that it was most likely mistyped."""
    asked = word[:MAX_WORD].casefold()
    return _edit_distance(asked, meant[:MAX_WORD].casefold()) <= max(2, len(asked) // 5)


def _edit_distance(one: str, other: str) -> int:
    """Insertions, deletions and exchanges of a letter that turn one word into the other.

    A whole column of the usual table stands in two numbers, whose bits say where it rises and falls (Myers 1999, in
    Hyyrö's form): as many steps as one word has letters, instead of one for each pair.
    """
    if not one:
        return len(other)
    places: dict[str, int] = {}
    for place, letter in enumerate(one):
        places[letter] = places.get(letter, 0) | 1 << place
    everywhere, last = (1 << len(one)) - 1, 1 << (len(one) - 1)
    rises, falls, distance = everywhere, 0, len(one)
    for letter in other:
        same = places.get(letter, 0)
        kept = same | falls
        level = (((same & rises) + rises) ^ rises) | same
        up, down = falls | ~(level | rises), rises & level
        distance += bool(up & last) - bool(down & last)
        up = up << 1 | 1
        rises = ((down << 1) | ~(kept | up)) & everywhere
        falls = up & kept & everywhere
    return distance


def _pairs(text: str) -> set[str]:
    return {text[i : i + 2] for i in range(len(text) - 1)} or {text}


def _folded(path: Path) -> Path:
    return tuple(name.casefold() for name in path)
