"""`toolfold bench ontology`: is the tree cheap to walk, sensible and stable?

Beside it, from the same run, two baselines: a flat view that lists the servers at the root, and the definitions of all
tools dumped whole, which is what a client without a gateway puts into its context.
"""

import random
from collections.abc import Iterable
from pathlib import Path as FilePath
from typing import Any

from benchmarks.agreement import agreement
from benchmarks.measurement import cpu_time, environment, percentile
from benchmarks.recorded import RecordedTools, build_tool, recorded_servers, retrieval_tools
from benchmarks.tree_walk import Listings, walking_figures
from toolfold.catalogue.ontology import Ontology, build_ontology
from toolfold.catalogue.ontology.taxonomy import taxonomy
from toolfold.tokens import count
from toolfold.types import Node, Path, ServerInfo

LIMITS = (10, 20, 50)
"""Entries a page: the default, one that a model may choose, and the most."""
REMOVED = 0.05


def run(data: FilePath | None = None, *, seeds: int = 4) -> dict[str, Any]:
    """Measures every set that `data` holds: `servers/*.json` and `retrieval/mcpflow_toucan`."""
    sets = _sets(data)
    return {
        "name": "ontology",
        "metrics": {one.name: _measure(one, seeds if len(one.tools) < 5000 else min(2, seeds)) for one in sets},
        "environment": {
            **environment("msgspec", "rs-bpe"),
            "data": "recorded" if data else "made from the package's own taxonomy: no data folder was given",
            "repetitions": {"build": 1, "stability": seeds},
        },
    }


def _sets(data: FilePath | None) -> list[RecordedTools]:
    if data is None:
        return [synthetic_set()]
    found = []
    if (data / "servers").is_dir():
        found.append(recorded_servers(data / "servers"))
    if (data / "retrieval" / "mcpflow_toucan").is_dir():
        found.append(retrieval_tools(data / "retrieval" / "mcpflow_toucan"))
    return found or [synthetic_set()]


def synthetic_set() -> RecordedTools:
    """A small set from the package's own material: tools named after some cues of each part, a server a domain."""
    known = taxonomy()
    phrases: dict[int, list[str]] = {}
    for cue, targets in known.cues.items():
        if " " in cue and cue.isascii():
            phrases.setdefault(max(targets, key=lambda target: target[1])[0], []).append(cue)
    tools = []
    infos = {}
    for part in known.parts:
        server = known.domains[part.domain].name.lower().replace(" & ", "-")
        infos[server] = ServerInfo(name=server, instructions=known.domains[part.domain].summary)
        for cue in phrases.get(part.index, [])[:6]:
            name = f"{part.index}_{cue}".replace(" ", "_")
            tools.append(build_tool(server, {"name": name, "description": f"{part.summary}: {cue}."}))
    return RecordedTools("made", tuple(tools), infos)


def _measure(recorded: RecordedTools, seeds: int) -> dict[str, Any]:
    with cpu_time() as spent:
        ontology = build_ontology(recorded.tools, infos=recorded.infos)
    listings = Listings(recorded.tools, ontology.nodes, ontology.placements)
    return {
        "tools": len(recorded.tools),
        "servers": len({tool.server for tool in recorded.tools}),
        "build_cpu_s": round(spent.seconds, 3),
        "shape": _shape(ontology),
        "root_tokens": listings.frame[()] + sum(entry.tokens for entry in listings.at[()]),
        "walk": {f"limit_{limit}": walking_figures(listings, limit) for limit in LIMITS},
        "agreement": _agreement(recorded, ontology),
        "stability": _stability(recorded, ontology, seeds),
        "baselines": _baselines(recorded),
    }


def _shape(ontology: Ontology) -> dict[str, Any]:
    nodes, placements = ontology.nodes, ontology.placements
    capability_paths = [[path for path in paths if path[0] != "Servers"] for paths in placements.values()]
    return {
        "nodes": len(nodes),
        "roots": sum(len(node.path) == 1 for node in nodes),
        "depth": max((len(node.path) for node in nodes), default=0),
        "primary_depth_median": percentile([len(paths[0]) for paths in placements.values() if paths], 0.5),
        "most_children": max((node.children + node.own_tools for node in nodes), default=0),
        "share_of_nodes_with_1_or_2_tools": round(sum(node.tools <= 2 for node in nodes) / max(1, len(nodes)), 4),
        "share_in_other": _share(bool(paths) and paths[0][0] == "Other" for paths in capability_paths),
        "share_with_several_capabilities": _share(len(paths) > 1 for paths in capability_paths),
        "summary_words_median": percentile([len(node.summary.split()) for node in nodes], 0.5),
    }


def _share(flags: Iterable[bool]) -> float:
    values = list(flags)
    return round(sum(values) / max(1, len(values)), 4)


def _agreement(recorded: RecordedTools, ontology: Ontology) -> dict[str, Any] | None:
    """Between the first (and the first two) names of primary paths and the given categories."""
    ids = [tool.tool_id for tool in recorded.tools if tool.tool_id in recorded.categories]
    if not ids:
        return None
    theirs = [recorded.categories[tool_id] for tool_id in ids]
    return {
        "categories": len(set(theirs)),
        "top_level": agreement([ontology.placements[tool_id][0][:1] for tool_id in ids], theirs),
        "second_level": agreement([ontology.placements[tool_id][0][:2] for tool_id in ids], theirs),
    }


def _stability(recorded: RecordedTools, ontology: Ontology, seeds: int) -> dict[str, Any]:
    """The share of tools whose primary path stays when 5 % of all tools go and everything is built anew."""
    shares = []
    for seed in range(1, seeds + 1):
        choice = random.Random(seed)
        kept = [tool for tool in recorded.tools if choice.random() >= REMOVED]
        again = build_ontology(kept, infos=recorded.infos).placements
        same = sum(again[tool.tool_id][:1] == ontology.placements[tool.tool_id][:1] for tool in kept)
        shares.append(same / max(1, len(kept)))
    return {"kept_mean": round(sum(shares) / max(1, len(shares)), 4), "kept": [round(share, 4) for share in shares]}


def _baselines(recorded: RecordedTools) -> dict[str, Any]:
    by_server: dict[str, list[str]] = {}
    for tool in recorded.tools:
        by_server.setdefault(tool.server, []).append(tool.tool_id)
    nodes = tuple(
        Node(path=(server,), summary=_tagline(recorded.infos.get(server)), tools=len(ids), own_tools=len(ids))
        for server, ids in sorted(by_server.items())
    )
    placements: dict[str, list[Path]] = {tool.tool_id: [(tool.server,)] for tool in recorded.tools}
    flat = Listings(recorded.tools, nodes, placements)
    return {
        "flat_by_server": {f"limit_{limit}": walking_figures(flat, limit) for limit in LIMITS},
        "definitions_dumped_tokens": sum(count(bytes(tool.definition.raw).decode()) for tool in recorded.tools),
    }


def _tagline(info: ServerInfo | None) -> str:
    """What a server says of itself, cut to a line, as a flat list would show it."""
    text = " ".join((info.instructions or info.title or info.name).split()) if info else ""
    return text if len(text) <= 100 else text[:99].rsplit(" ", 1)[0] + "…"
