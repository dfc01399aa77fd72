"""What somebody may have meant: the existing words, or paths, closest to one that does not exist.

Fast enough for 100,000 words: shared letters choose a few, edit distance ranks those.
"""

from collections.abc import Iterable, Mapping, Sequence

from toolfold.types import Path

# How many words are compared letter by letter.
_MAX_COMPARED = 60
# What a model sends may be of any length: so much of a word, and so many steps of a path, are read.
_MAX_WORD = 128
_MAX_DEPTH = 12


def closest_words(word: str, words: Iterable[str], *, limit: int = 5) -> list[str]:
    """The closest of `words`, best first. Those with next to nothing in common are not among them."""
    wanted = word[:_MAX_WORD].casefold()
    pairs, letters = _pairs(wanted), set(wanted)
    scored = []
    for candidate in words:
        text = candidate.casefold()
        others = _pairs(text)
        shared = len(pairs & others)
        alike = (shared + len(letters.intersection(text)) / 10) / (len(pairs) + len(others))
        scored.append((-alike, candidate, shared))
    ranked = sorted(
        (_edit_distance(wanted, candidate[:_MAX_WORD].casefold()), candidate, shared)
        for _, candidate, shared in sorted(scored)[:_MAX_COMPARED]
    )
    return [candidate for distance, candidate, shared in ranked if shared or distance <= len(wanted) * 2 // 3][:limit]


def closest_paths(path: Path, paths: Sequence[Path], *, limit: int = 5) -> list[Path]:
    """The closest of `paths`, best first: those that end alike, names like the last one beside it, the part of the path
    that exists, then paths like the whole. Where nothing is close, the roots."""
    path = path[:_MAX_DEPTH]
    wanted = _casefolded(path)
    existing = {_casefolded(candidate): candidate for candidate in paths}
    same_name = sorted((candidate for key, candidate in existing.items() if key[-1] == wanted[-1]), key=len)
    by_text = {" / ".join(candidate): candidate for candidate in paths}
    closest = [
        *same_name,
        *_near_parent(wanted, existing),
        *(by_text[text] for text in closest_words(" / ".join(path), by_text, limit=limit)),
    ]
    return list(dict.fromkeys(closest or [candidate for candidate in paths if len(candidate) == 1]))[:limit]


def _near_parent(wanted: Path, existing: Mapping[Path, Path]) -> list[Path]:
    """Below the part of a path that exists, the names like the last one; then that part."""
    parent = next((wanted[:end] for end in range(len(wanted) - 1, 0, -1) if wanted[:end] in existing), None)
    if parent is None:
        return []
    siblings = {candidate[-1]: candidate for key, candidate in existing.items() if key[:-1] == parent}
    return [*(siblings[name] for name in closest_words(wanted[-1], siblings, limit=2)), existing[parent]]


def is_typo(word: str, meant: str) -> bool:
    """Whether a word is so close to an existing one that it was most likely mistyped."""
    wanted = word[:_MAX_WORD].casefold()
    return _edit_distance(wanted, meant[:_MAX_WORD].casefold()) <= max(2, len(wanted) // 5)


def _edit_distance(word: str, other: str) -> int:
    """Insertions, deletions and exchanges of a letter that turn one word into the other.

    A whole column of the usual table stands in two numbers, whose bits say where it rises and falls (Myers 1999, in
    Hyyrö's form): as many steps as one word has letters, instead of one for each pair.
    """
    if not word:
        return len(other)
    places: dict[str, int] = {}
    for place, letter in enumerate(word):
        places[letter] = places.get(letter, 0) | 1 << place
    everywhere, last = (1 << len(word)) - 1, 1 << (len(word) - 1)
    rises, falls, distance = everywhere, 0, len(word)
    for letter in other:
        same = places.get(letter, 0)
        vertical = same | falls
        level = (((same & rises) + rises) ^ rises) | same
        up, down = falls | ~(level | rises), rises & level
        distance += bool(up & last) - bool(down & last)
        up = up << 1 | 1
        rises = ((down << 1) | ~(vertical | up)) & everywhere
        falls = up & vertical & everywhere
    return distance


def _pairs(text: str) -> set[str]:
    return {text[i : i + 2] for i in range(len(text) - 1)} or {text}


def _casefolded(path: Path) -> Path:
    return tuple(name.casefold() for name in path)
