"""Read the retrieval sets and the recorded servers into one form.

What it is: tools and requests as plain values, the tool as the product's search sees it, and the rule that drops
what also stands in a set that is tested on. What it is not: a downloader. The data lies outside the project.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolfold.search.document import Document, _parameters_of
from toolfold.words import split_identifier

TRAINING_SETS = ("metatool", "sealtools", "toolbench")
TEST_ONLY_SETS = ("toollens", "mcpflow_toucan", "mcptoolbenchpp")
ALL_SETS = TRAINING_SETS + TEST_ONLY_SETS
SERVERS = "servers"


@dataclass(frozen=True)
class Tool:
    """One tool of one source."""

    source: str
    id: str
    name: str
    description: str
    parameters: tuple[tuple[str, str], ...]  # name, description
    group: str  # server or category: tools that stand together

    @property
    def key(self) -> str:
        return f"{self.source}/{self.id}"


@dataclass(frozen=True)
class Request:
    """One request and the keys of the tools that answer it."""

    source: str
    text: str
    relevant: tuple[str, ...]
    split: str = "train"
    kind: str = "set"


@dataclass
class Corpus:
    """All tools by key, and the requests."""

    tools: dict[str, Tool] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)


def words(name: str) -> str:
    """A name split into its words: snake, camel, dotted."""
    return " ".join(split_identifier(name))


def tool_document(tool: Tool) -> Document:
    """The tool as the product's search sees it."""
    return Document(
        tool_id=tool.key,
        name=tool.name,
        description=tool.description,
        parameters=tool.parameters,
        server=tool.group.rsplit("/", 1)[-1],
        category=tuple(tool.group.split("/")[:-1]),
    )


def _tool(source: str, item: dict[str, Any], group: str, key: str) -> Tool:
    schema = item.get("parameters") or item.get("inputSchema") or {}
    return Tool(source, key, item["name"], item.get("description") or "", _parameters_of(schema), group)


def _lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def read_set(folder: Path, name: str) -> Corpus:
    """One retrieval set: its tools and all its requests."""
    corpus = Corpus()
    for item in _lines(folder / "retrieval" / name / "tools.jsonl"):
        tool = _tool(name, item, "/".join(item.get("category") or []), item["id"])
        corpus.tools[tool.key] = tool
    for item in _lines(folder / "retrieval" / name / "queries.jsonl"):
        relevant = tuple(f"{name}/{one}" for one in item["relevant"])
        corpus.requests.append(Request(name, item["query"], relevant, item["split"]))
    return corpus


def read_servers(folder: Path) -> Corpus:
    """The tools of the recorded servers. They bring no requests."""
    corpus = Corpus()
    for path in sorted((folder / "servers").glob("*.json")):
        for item in json.loads(path.read_text(encoding="utf-8"))["tools"]:
            tool = _tool(SERVERS, item, path.stem, f"{path.stem}::{item['name']}")
            corpus.tools[tool.key] = tool
    return corpus


def plain(text: str) -> str:
    """Letters and digits only, lower case: the form in which two texts are compared."""
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def training_corpus(folder: Path, *, without: str | None = None) -> Corpus:
    """Tools and training requests, less the set `without` and less everything that stands in a set tested on."""
    tested = [*TEST_ONLY_SETS, *([without] if without in TRAINING_SETS else [])]
    banned_requests: set[str] = set()
    banned_tools: set[str] = set()
    for name in ALL_SETS:
        other = read_set(folder, name)
        banned_requests |= {plain(one.text) for one in other.requests if name in tested or one.split == "test"}
        if name in tested:
            banned_tools |= {plain(f"{tool.name} {tool.description}") for tool in other.tools.values()}
            banned_tools |= {plain(t.description) for t in other.tools.values() if len(t.description.split()) >= 5}
    corpus = Corpus()
    for source in [one for one in (*TRAINING_SETS, SERVERS) if one != without]:
        part = read_servers(folder) if source == SERVERS else read_set(folder, source)
        for key, tool in part.tools.items():
            if not {plain(f"{tool.name} {tool.description}"), plain(tool.description)} & banned_tools:
                corpus.tools[key] = tool
        for one in part.requests:
            relevant = tuple(key for key in one.relevant if key in corpus.tools)
            if one.split == "train" and relevant and plain(one.text) not in banned_requests:
                corpus.requests.append(Request(one.source, one.text, relevant))
    return corpus
