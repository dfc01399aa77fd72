"""Read the retrieval sets, the recorded servers and the servers of our own making into one form.

What it is: tools and requests as plain values, the tool as the product's search sees it, and the rules that keep out of
training what is tested on. What it is not: a downloader. The sets and the recordings lie outside the project.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.everyday import HELD_OUT, our_servers
from toolfold.search.document import Document, _parameters_of

TRAINING_SETS = ("metatool", "sealtools", "toolbench")
TEST_ONLY_SETS = ("toollens", "mcpflow_toucan", "mcptoolbenchpp")
ALL_SETS = TRAINING_SETS + TEST_ONLY_SETS
RECORDED = "servers"
EVERYDAY, OURS, PLANNER = "everyday", "ours", "planner"
"""Kinds of requests: people's words for recorded servers, for servers we made up, and a model's words for either."""


@dataclass(frozen=True)
class Tool:
    """One tool of one source."""

    source: str
    id: str
    name: str
    description: str
    parameters: tuple[tuple[str, str], ...]  # name, description
    group: str  # server or category: tools that stand together
    server: str = ""

    @property
    def key(self) -> str:
        return f"{self.source}/{self.id}"


@dataclass(frozen=True)
class Request:
    """One request and the keys of the tools that answer it."""

    kind: str  # the set it is of, or one of the three kinds above
    text: str
    relevant: tuple[str, ...]
    split: str = "train"


@dataclass
class Corpus:
    """All tools by key, and the requests."""

    tools: dict[str, Tool] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)

    def add(self, tools: Iterable[Tool]) -> None:
        self.tools.update((tool.key, tool) for tool in tools)


def tool_document(tool: Tool) -> Document:
    """The tool as the product's search sees it."""
    return Document(
        tool_id=tool.key,
        name=tool.name,
        description=tool.description,
        parameters=tool.parameters,
        server=tool.server,
        category=tuple(tool.group.split("/")[:-1]),
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def read_set(folder: Path, name: str) -> Corpus:
    """One retrieval set: its tools and all its requests."""
    corpus = Corpus()
    for item in _lines(folder / "retrieval" / name / "tools.jsonl"):
        about, parameters = item.get("description") or "", _parameters_of(item.get("parameters") or {})
        group, server = "/".join(item.get("category") or []), item.get("server") or ""
        corpus.add([Tool(name, item["id"], item["name"], about, parameters, group, server)])
    for item in _lines(folder / "retrieval" / name / "queries.jsonl"):
        relevant = tuple(f"{name}/{one}" for one in item["relevant"])
        corpus.requests.append(Request(name, item["query"], relevant, item["split"]))
    return corpus


def read_recorded(folder: Path) -> Corpus:
    """The recorded servers, and the requests we wrote for them. Those of the servers in `HELD_OUT` are for testing."""
    corpus = Corpus()
    for path in sorted((folder / "servers").glob("*.json")):
        for item in json.loads(path.read_text(encoding="utf-8"))["tools"]:
            about, parameters = item.get("description") or "", _parameters_of(item.get("inputSchema") or {})
            key = f"{path.stem}::{item['name']}"
            corpus.add([Tool(RECORDED, key, item["name"], about, parameters, path.stem, path.stem)])
    for item in _lines(folder / "everyday" / "requests.jsonl"):
        kind = PLANNER if item["kind"] == "planner" else EVERYDAY
        relevant = tuple(f"{RECORDED}/{one.replace('.', '::', 1)}" for one in item["relevant"])
        split = "test" if item["relevant"][0].partition(".")[0] in HELD_OUT else "train"
        corpus.requests.append(Request(kind, item["query"], relevant, split))
    return corpus


def read_ours(split: str) -> Corpus:
    """The servers we made up, with their requests: those for `training`, for `calibration` or for the `bench`."""
    corpus = Corpus()
    for number, server in enumerate(our_servers(split)):
        # Some names stand for two servers, so a number goes with them.
        keys = {tool["name"]: f"{split}-{number}::{tool['name']}" for tool in server["tools"]}
        for tool in server["tools"]:
            parameters = tuple((name, "") for name in tool["params"])
            name, place = tool["name"], server["server"]
            corpus.add([Tool(OURS, keys[name], name, tool["description"], parameters, place, place)])
        for tool in server["tools"]:
            fitting = [tool["name"], *(other for other in tool.get("also", ()) if other in keys)]
            relevant = tuple(f"{OURS}/{keys[name]}" for name in fitting)
            corpus.requests += [Request(OURS, text, relevant, split) for text in tool["requests"]]
            if tool["planner"]:
                corpus.requests.append(Request(PLANNER, tool["planner"], relevant, split))
    return corpus


def plain(text: str) -> str:
    """Letters and digits only, lower case: the form in which two texts are compared."""
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def training_corpus(folder: Path) -> Corpus:
    """All to train on: no test request, no tool of a set that is only tested on, no server that is held out."""
    banned_requests: set[str] = set()
    banned_tools: set[str] = set()
    for name in ALL_SETS:
        tested = read_set(folder, name)
        banned_requests |= {plain(one.text) for one in tested.requests if one.split == "test"}
        if name in TEST_ONLY_SETS:
            banned_tools |= {plain(f"{tool.name} {tool.description}") for tool in tested.tools.values()}
            banned_tools |= {plain(t.description) for t in tested.tools.values() if len(t.description.split()) >= 5}
    corpus = Corpus()
    for part in (*(read_set(folder, name) for name in TRAINING_SETS), read_recorded(folder)):
        for tool in part.tools.values():
            held_out = tool.source == RECORDED and tool.server in HELD_OUT
            if not held_out and not {plain(f"{tool.name} {tool.description}"), plain(tool.description)} & banned_tools:
                corpus.add([tool])
        corpus.requests += [one for one in part.requests if one.split == "train"]
    made_up = read_ours("training")
    corpus.add(made_up.tools.values())
    corpus.requests = [one for one in corpus.requests if _allowed(one, corpus, banned_requests)] + made_up.requests
    return corpus


def _allowed(request: Request, corpus: Corpus, banned: set[str]) -> bool:
    """Whether no test asks the same, and its tools are there: one of them for a set, all for requests of our own."""
    there = [key in corpus.tools for key in request.relevant]
    enough = any(there) if request.kind in ALL_SETS else all(there)
    return enough and plain(request.text) not in banned
