"""Ranks categories: through the tools that were found in them, and by their own words.

A tool speaks for the category it stands in, and with every step up a little less, so that of two categories that hold
the same good tools the narrower comes first. Further tools of a category add less each. A category whose own words are
in the request gains a share. Works on hits alone; `index.py` brings them.
"""

from collections.abc import Callable, Sequence

from toolfold.search.lexical import query_terms
from toolfold.types import Hit, NodeHit, Path
from toolfold.words import search_terms

DEPTH = 50
"""Hits that are looked at."""
STEP_UP = 0.7
FURTHER = 0.3
OWN_WORDS = 0.3
SHOWN_TOOLS = 3

OwnText = Callable[[Path], str]
"""A category's own words besides its name: its summary."""


def no_text(path: Path) -> str:
    return ""


def rank_nodes(
    query: str,
    placed: Sequence[tuple[Hit, tuple[Path, ...]]],
    *,
    within: Path = (),
    own_text: OwnText = no_text,
    limit: int = 10,
) -> list[NodeHit]:
    """Categories of the hits below `within`, the best first. Equal ones go by path."""
    asked = set(query_terms(query))
    voices = {path: said for path, said in _voices(placed).items() if _below(path, within)}
    found = [_judged(path, said, asked, own_text) for path, said in voices.items()]
    found.sort(key=lambda node: (-node.score, -len(node.path), node.path))
    return found[:limit]


def _below(path: Path, within: Path) -> bool:
    return len(path) > len(within) and path[: len(within)] == within


def _voices(placed: Sequence[tuple[Hit, tuple[Path, ...]]]) -> dict[Path, list[tuple[float, Hit]]]:
    """For each category the hits at or below it, each with what it says for it."""
    best = max((hit.score for hit, _ in placed), default=0.0)
    said: dict[Path, dict[str, tuple[float, Hit]]] = {}
    for hit, paths in placed:
        strength = max(hit.score, 0.0) / best if best > 0 else 0.0
        for path in paths:
            for depth in range(len(path), 0, -1):
                voice = strength * STEP_UP ** (len(path) - depth)
                known = said.setdefault(path[:depth], {})
                if hit.tool_id not in known or known[hit.tool_id][0] < voice:
                    known[hit.tool_id] = (voice, hit)
    return {path: sorted(hits.values(), key=lambda pair: (-pair[0], pair[1].tool_id)) for path, hits in said.items()}


def _judged(path: Path, said: Sequence[tuple[float, Hit]], asked: set[str], own_text: OwnText) -> NodeHit:
    through_tools = sum(voice * FURTHER**at for at, (voice, _) in enumerate(said)) * (1 - FURTHER)
    name, summary = set(search_terms(path[-1])), set(search_terms(own_text(path)))
    named = len(name & asked) / len(name) if name else 0.0
    about = len(summary & asked) / max(len(asked), 1)
    score = through_tools * (1 + OWN_WORDS * max(named, about))
    return NodeHit(
        path=path,
        score=round(score, 5),
        confidence=max(hit.confidence for _, hit in said),
        tools=tuple(hit.tool_id for _, hit in said[:SHOWN_TOOLS]),
    )
