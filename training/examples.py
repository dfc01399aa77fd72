"""Training examples: a request, the texts of a tool it may be matched with, and the tools that answer it.

What it is: the plain requests of the sets and of the generator, requests joined from several, and pairs made from the
tools alone (name to description, first sentence to the rest, parameters masked, a few phrasings around a name).
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
    "We have to {} today.",
    "could you {}, and tell me when it is done",
    "{} now",
)
JOINS = (" Also, ", " Then ", " After that, ", " And ", " Additionally, ", " Besides, ", " ")
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
FULL, BARE, MASKED, REST = 0, 1, 2, 3
"""Texts of a tool: all of it; without parameters; without its name; without the first sentence."""


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
    names = tool["text"].rsplit(description, 1)[-1].strip() if description and description in tool["text"] else ""
    rest = " ".join(SENTENCE.split(description.strip())[1:])
    return [tool["text"], f"{name}: {description}", f"{description} {names}", f"{name}: {rest} {names}"]


def from_tool(examples: Examples, row: int, tool: dict[str, Any], chance: random.Random) -> None:
    """Pairs made of the tool's own words."""
    sentences = [one for one in SENTENCE.split(tool["description"].strip()) if len(one.split()) >= 3]
    if tool["description"] and len(tool["name"].split()) > 1:
        for phrase in chance.sample(PHRASES, 2):
            examples.add("name", phrase.format(tool["name"]), (row,), (MASKED,))
    if sentences:
        first = sentences[0][:300].rstrip(".")
        lowered = first[0].lower() + first[1:]
        examples.add("description", chance.choice(PHRASES).format(lowered), (row,), (REST,))
        examples.add("description", first, (row,), (REST, FULL))
    if len(sentences) > 1:
        examples.add("description", chance.choice(sentences[1:])[:300], (row,), (FULL, BARE))


def build(
    bundle: dict[str, Any], allowed: set[int], *, left_out: str | None, generated: bool, seed: int = 5
) -> Examples:
    """All examples over the allowed tools."""
    chance = random.Random(seed)
    examples = Examples()
    singles: list[tuple[str, int]] = []
    for row, (source, text, relevant) in enumerate(bundle["requests"]):
        chosen = tuple(one for one in relevant if one in allowed)
        if source == left_out or not chosen:
            continue
        if source == "generated" and (not generated or len(chosen) < len(relevant)):
            continue
        examples.add(source, text, chosen, (FULL, FULL, BARE), row)
        if len(chosen) == 1:
            singles.append((text, chosen[0]))
    for row in sorted(allowed):
        from_tool(examples, row, bundle["tools"][row], chance)
    join(examples, bundle, singles, chance)
    return examples


def join(examples: Examples, bundle: dict[str, Any], singles: list[tuple[str, int]], chance: random.Random) -> None:
    """Requests that ask for two or three things: half of them for tools that stand together."""
    by_tool: dict[int, list[str]] = {}
    for text, tool in singles:
        by_tool.setdefault(tool, []).append(text)
    groups: dict[str, list[int]] = {}
    for tool in by_tool:
        groups.setdefault(f"{bundle['tools'][tool]['source']}/{bundle['tools'][tool]['group']}", []).append(tool)
    pool = list(by_tool)
    for _ in range(min(12000, 4 * len(pool))):
        first = chance.choice(pool)
        place = f"{bundle['tools'][first]['source']}/{bundle['tools'][first]['group']}"
        source = groups[place] if chance.random() < 0.5 and len(groups[place]) > 1 else pool
        chosen = list(dict.fromkeys([first, *(chance.choice(source) for _ in range(chance.choice((1, 1, 2))))]))
        texts = [chance.choice(by_tool[tool]) for tool in chosen]
        examples.add("joined", chance.choice(JOINS).join(texts), tuple(chosen), (FULL, FULL, BARE))
