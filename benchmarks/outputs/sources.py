"""Questions about the standard library's own sources, which are there wherever this runs: definitions and what they do.

A function is named, often with other separators than it has, and asked for its first line, its docstring or what it
raises. Above: `outputs.py`.
"""

import ast
import random
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from benchmarks.outputs.documents import Question

MODULES = ("argparse", "ast", "configparser", "dataclasses", "doctest", "inspect", "pathlib", "shutil", "subprocess")
SHORTEST = 40


def source_texts() -> Iterator[tuple[str, str]]:
    """Name and text of each module that is installed as source."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    for name in MODULES:
        path = folder / f"{name}.py"
        if path.is_file():
            yield name, path.read_text(encoding="utf-8")


def questions_about_source(text: str, rng: random.Random, count: int) -> list[Question]:
    made = [question for node in ast.walk(ast.parse(text)) for question in about(node, text, rng)]
    return rng.sample(made, min(count, len(made)))


def about(node: ast.AST, text: str, rng: random.Random) -> Iterator[Question]:
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) or node.name.startswith("__"):
        return
    if len(re.findall(rf"(?:def|class) {node.name}\b", text)) > 1:
        return
    lines = text.split("\n")
    name = otherwise(node.name, rng)
    yield Question(f"where is {name} defined?", lines[node.lineno - 1].strip())
    told = (ast.get_docstring(node) or "").split("\n")[0].strip()
    if len(told) >= SHORTEST:
        yield Question(f"what does {name} do?", told[:50])
    own = [line.strip() for line in lines[node.lineno : node.end_lineno]]
    raised = [line for line in own if line.startswith("raise ") and len(line) >= SHORTEST and text.count(line) == 1]
    if raised and not isinstance(node, ast.ClassDef):
        yield Question(f"which error does {name} raise, and when?", raised[0][:50])


def otherwise(name: str, rng: random.Random) -> str:
    """A name as somebody might write it from memory."""
    parts = [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]
    if len(parts) < 2:
        return name
    return rng.choice((name, "_".join(parts), "-".join(parts), parts[0] + "".join(map(str.capitalize, parts[1:]))))
