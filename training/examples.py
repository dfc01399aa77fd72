"""Training examples: a request, the texts of a tool it may be matched with, and the tools that answer it.

What it is: the plain requests, requests joined from several, and pairs made from the tools alone (name to description,
first sentence to the rest, a few phrasings around a name).
What it is not: batching; `train.py` draws from what stands here.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from typing import Any

PHRASES = (
    "{}",
    "I want to {}",
    "Can you {} for me?",
    "please {}",
    "How do I {}?",
    "I need help to {}",
    "Is there a way to {}?",
    "{} now",
)
JOINS = (" Also, ", " Then ", " After that, ", " And ", " Besides, ", " ")
JOINED = 12_000
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
FULL, UNPLACED, NAMELESS, REST = range(4)
"""Texts of a tool: as the product writes it; without its server; without its name, too; without the first sentence."""
VARIANTS = 4


@dataclass
class Examples:
    """Parallel lists, one entry a request."""

    kind: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    relevant: list[tuple[int, ...]] = field(default_factory=list)
    variants: list[tuple[int, ...]] = field(default_factory=list)  # which texts of the tool it may be matched with
    near: list[int] = field(default_factory=list)  # row of the nearest tools by words, or -1

    def add(self, kind: str, text: str, relevant: tuple[int, ...], variants: tuple[int, ...], near: int = -1) -> None:
        self.kind.append(kind)
        self.text.append(text)
        self.relevant.append(relevant)
        self.variants.append(variants)
        self.near.append(near)


def tool_variants(tool: dict[str, Any]) -> list[str]:
    """The four texts of a tool, in the order of the constants above."""
    name, description = tool["name"], tool["description"]
    parameters = tool["text"].rsplit(description, 1)[-1].strip() if description and description in tool["text"] else ""
    rest = " ".join(SENTENCE.split(description.strip())[1:])
    return [
        tool["text"],
        f"{name}: {description} {parameters}",
        f"{description} {parameters}",
        f"{name}: {rest} {parameters}",
    ]


def place_of(tool: dict[str, Any]) -> str:
    """Its server or category: tools of one place are siblings."""
    return f"{tool['source']}/{tool['group']}"


def build(bundle: dict[str, Any], seed: int = 5) -> Examples:
    """All examples of a prepared bundle."""
    chance = random.Random(seed)
    examples = Examples()
    by_tool: dict[int, list[str]] = {}
    for row, (kind, text, relevant) in enumerate(bundle["requests"]):
        # Mostly the whole text: the server's words are worth learning, but must not be needed.
        examples.add(kind, text, tuple(relevant), (FULL, FULL, FULL, FULL, UNPLACED), row)
        if len(relevant) == 1:
            by_tool.setdefault(relevant[0], []).append(text)
    for row, tool in enumerate(bundle["tools"]):
        _from_tool(examples, row, tool, chance)
    _join(examples, bundle, by_tool, chance)
    return examples


def _from_tool(examples: Examples, row: int, tool: dict[str, Any], chance: random.Random) -> None:
    """Pairs made of the tool's own words. What serves as the request is left out of the tool's text."""
    sentences = [one for one in SENTENCE.split(tool["description"].strip()) if len(one.split()) >= 3]
    if tool["description"] and len(tool["name"].split()) > 1:
        examples.add("name", chance.choice(PHRASES).format(tool["name"]), (row,), (NAMELESS,))
    if sentences:
        first = sentences[0][:300].rstrip(".")
        lowered = first[0].lower() + first[1:]
        examples.add("description", chance.choice(PHRASES).format(lowered), (row,), (REST,))
        examples.add("description", first, (row,), (REST, FULL))
    if len(sentences) > 1:
        examples.add("description", chance.choice(sentences[1:])[:300], (row,), (FULL, UNPLACED))


def _join(examples: Examples, bundle: dict[str, Any], by_tool: dict[int, list[str]], chance: random.Random) -> None:
    """Requests that ask for two or three things: half of them for tools that stand together."""
    groups: dict[str, list[int]] = {}
    for tool in by_tool:
        groups.setdefault(place_of(bundle["tools"][tool]), []).append(tool)
    pool = list(by_tool)
    for _ in range(JOINED):
        first = chance.choice(pool)
        siblings = groups[place_of(bundle["tools"][first])]
        source = siblings if chance.random() < 0.5 and len(siblings) > 1 else pool
        chosen = list(dict.fromkeys([first, *(chance.choice(source) for _ in range(chance.choice((1, 1, 2))))]))
        text = chance.choice(JOINS).join(chance.choice(by_tool[tool]) for tool in chosen)
        examples.add("joined", text, tuple(chosen), (FULL, FULL, UNPLACED))
