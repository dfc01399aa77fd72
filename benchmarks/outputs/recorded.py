"""Questions about recorded results, made from random places in them by rules that know nothing of the engine.

A JSON record is named by one of its values and asked for another; a line of text is named by some of its words and
asked for the rest. Texts that stand many times in a document make no question. Above: `outputs.py`.
"""

import ast
import gzip
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.outputs.documents import Question

RARE = 30
"""An answer that stands more often in the document would be found by chance."""
PHRASINGS = (
    "What is the {asked} of the entry whose {known} is {value}?",
    "{asked} for the one with {known} {value}",
    "Look for {value} ({known}) and tell me its {asked}.",
    "I need to know the {asked} that goes with {value}.",
)
LINE_PHRASINGS = (
    "Which line speaks of {words}? Give all of it.",
    "Find where {words} come together.",
    "what does it say about {words}",
)


def recorded_texts(data: Path) -> Iterator[tuple[str, str]]:
    """Name and text of each recorded result."""
    for file in sorted((data / "results").glob("*.json.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as opened:
            record = json.load(opened)
        blocks = record.get("response", record).get("result", {}).get("content", [])
        text = "\n".join(block.get("text", "") for block in blocks if isinstance(block, dict))
        if text:
            yield file.name.removesuffix(".json.gz"), text


def questions_about(text: str, rng: random.Random, count: int) -> list[Question]:
    value = as_value(text)
    if value is None:
        return list(line_questions(pieces(text), text, rng, count))
    made = list(record_questions(value, text, rng, count))
    if len(made) >= count // 2:
        return made
    longest = max(strings(value), key=len, default="")
    return made + list(line_questions(pieces(longest), longest, rng, count - len(made)))


def as_value(text: str) -> Any:
    """JSON, or what Python prints for lists of rows; `None` for other texts."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text) if text[:1] in "[{" else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def pieces(text: str) -> list[str]:
    """The lines of a text; of very long ones, pieces."""
    return [line[at : at + 240] for line in text.splitlines() for at in range(0, max(1, len(line)), 240)]


def strings(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def records_in(value: Any) -> list[dict[str, Any]]:
    found, stack = [], [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            found.append(item)
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return found


def record_questions(value: Any, text: str, rng: random.Random, count: int) -> Iterator[Question]:
    records = records_in(value)
    rng.shuffle(records)
    made = 0
    for record in records:
        plain = [
            (k, v)
            for k, v in record.items()
            if isinstance(v, (str, int)) and not isinstance(v, bool) and 3 <= len(str(v)) <= 80
        ]
        if len(plain) < 2 or made >= count:
            continue
        known, asked = rng.sample(plain, 2)
        if text.count(str(known[1])) > 2 or str(asked[1]) in str(known[1]) or "\n" in str(known[1]) + str(asked[1]):
            continue
        if text.count(str(asked[1])) > RARE:
            continue
        made += 1
        names = {"known": spoken(known[0]), "asked": spoken(asked[0]), "value": known[1]}
        yield Question(rng.choice(PHRASINGS).format(**names), str(asked[1]))


def spoken(key: str) -> str:
    """A key as a person says it."""
    return " ".join(re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", key)).lower() or key


def line_questions(lines: list[str], text: str, rng: random.Random, count: int) -> Iterator[Question]:
    made = 0
    for _ in range(count * 200):
        if made >= count or not lines:
            return
        line = rng.choice(lines)
        words = list(dict.fromkeys(re.findall(r"[A-Za-z_][\w.-]{3,40}", line[:400])))
        if len(words) < 4:
            continue
        chosen = rng.sample(words, 3)
        answer = rng.choice([word for word in words if word not in chosen])
        # The three words must mean this line and few others.
        if sum(1 for other in lines if all(word in other for word in chosen)) > 3 or text.count(answer) > RARE:
            continue
        made += 1
        yield Question(rng.choice(LINE_PHRASINGS).format(words=", ".join(chosen[:2]) + f" and {chosen[2]}"), answer)
