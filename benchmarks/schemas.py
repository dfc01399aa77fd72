"""`toolfold bench schemas`: what a model reads of an output schema, and how far one inspection takes it.

Measured on real schemas where a folder with `schemas/*.json` and `servers/*.json` is given, else on the inspector's own
output schema and a few made here. Beside our summary stand the whole schema and the rendering that FastMCP's catalogue
search gives, written anew from its idea: the keys of the first level, at most 16 of them, nothing said of the rest.
"""

import json
import re
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measurement import environment, percentile
from toolfold import tokens
from toolfold.disclosure.fold import Entry, root_of, summarize_schema_for_llm
from toolfold.disclosure.inspector import inspect_schema
from toolfold.disclosure.inspector_tool import _inspector_definition
from toolfold.disclosure.observed import _observe_result

REPETITIONS = 5
ONE_LEVEL_NAMES = 16
LEAF_DEPTH = 4
MAX_LEAVES = 5_000
OBSERVED_BYTES = 100_000

_PATH = re.compile(r'field_path="([^"]*)"')


def run(data: Path | None = None) -> dict[str, Any]:
    large = list(_files(data)) or [
        ("own", _inspector_definition()["outputSchema"]),
        ("wide", _synthetic(60, 2)),
        ("deep", _synthetic(6, 4)),
    ]
    recorded = list(_recorded(data)) if data is not None else []
    metrics = {
        "large": _measured(large),
        "recorded": _measured(recorded) if recorded else None,
        "observe_100_kb": _observing(),
        "schemas_are": "real ones" if data is not None else "made here",
        "one_level_is": "FastMCP's idea in our own words: keys of the first level, at most 16",
        "leaf_depth": LEAF_DEPTH,
        "repetitions": REPETITIONS,
    }
    return {"name": "schemas", "metrics": metrics, "environment": environment("msgspec", "rs-bpe")}


def one_level(schema: Any) -> str:
    """The first keys with their types, as a listing without folding would give them."""
    node = root_of(schema).node
    shown = []
    for step in node.steps[:ONE_LEVEL_NAMES]:
        child = node.child(step)
        shown.append(f"{step.written()}: {child.kind if child is not None else 'any'}")
    return ", ".join(shown)


def _measured(schemas: list[tuple[str, Any]]) -> dict[str, Any]:
    full, folded, flat, times, inspections = [], [], [], [], []
    reached = leaves = first = level = 0
    slowest = ("", 0.0)
    for name, schema in schemas:
        lines, _ = summarize_schema_for_llm(schema)
        full.append(tokens.count(json.dumps(schema, separators=(",", ":"))))
        folded.append(tokens.count("\n".join(lines)))
        flat.append(tokens.count(one_level(schema)))
        times.append(_best(lambda schema=schema: summarize_schema_for_llm(schema)))
        inspections.append(_best(lambda schema=schema: inspect_schema(schema)))
        slowest = max(slowest, (name, times[-1]), key=lambda pair: pair[1])
        found = _leaves(schema)
        shown = _listed(lines)
        leaves += len(found)
        first += len(found & shown)
        reached += len(found & (shown | _one_inspection(schema, lines)))
        level += sum(child.is_leaf for child in Entry(root_of(schema).node).children[:ONE_LEVEL_NAMES])
    return {
        "schemas": len(schemas),
        "full_tokens": {"median": median(full), "total": sum(full)},
        "summary_tokens": {"median": median(folded), "total": sum(folded), "share": _share(sum(folded), sum(full))},
        "one_level_tokens": {"median": median(flat), "total": sum(flat)},
        "leaves": leaves,
        "leaves_in_summary": _share(first, leaves),
        "leaves_in_summary_or_one_inspection": _share(reached, leaves),
        "leaves_in_one_level": _share(level, leaves),
        "summary_ms": {"median": round(median(times), 3), "p95": round(percentile(times, 0.95), 3)},
        "slowest": {"name": slowest[0], "ms": round(slowest[1], 3)},
        "inspect_root_ms": {"median": round(median(inspections), 3), "max": round(max(inspections), 3)},
    }


def _best(action: Any) -> float:
    """Milliseconds of the fastest of a few runs."""
    best = float("inf")
    for _ in range(REPETITIONS):
        started = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - started)
    return best * 1e3


def _share(part: float, whole: float) -> float:
    return round(part / whole, 4) if whole else 0.0


def _leaves(schema: Any) -> set[str]:
    """The paths of leaves down to `LEAF_DEPTH`, the nearest first, as many as are counted."""
    found: set[str] = set()
    queue = deque([Entry(root_of(schema).node)])
    while queue and len(found) < MAX_LEAVES:
        for child in queue.popleft().children:
            if child.opens and child.depth < LEAF_DEPTH:
                queue.append(child)
            elif child.is_leaf:
                found.add(child.path)
    return found


def _listed(lines: list[str], base: str = "") -> set[str]:
    starts = (line.rpartition(": ")[0] for line in lines if "inspect_tool_output(" not in line)
    return {base + start if not base or start.startswith("[") else f"{base}.{start}" for start in starts}


def _one_inspection(schema: Any, lines: list[str]) -> set[str]:
    """What one call of the inspector shows, over all places that the summary names: markers, and what fields lie in."""
    places = {marked.group(1) for line in lines if (marked := _PATH.search(line))}
    places |= {path.rpartition(".")[0] for path in _listed(lines)}
    found: set[str] = set()
    for place in places:
        found |= _listed(inspect_schema(schema, place)["flattened_fields"], place)
    return found


def _observing() -> dict[str, Any]:
    """What it costs to learn from one structured result of 100 KB, beside decoding it."""
    rows: list[dict[str, Any]] = []
    size = 0
    while size < OBSERVED_BYTES:
        number = len(rows)
        rows.append({"id": number, "name": f"row {number}", "owner": {"login": "x", "id": number}, "tags": ["a", "b"]})
        size += len(json.dumps(rows[-1])) + 2
    raw = json.dumps({"content": [], "structuredContent": {"rows": rows}}).encode()
    return {
        "bytes": len(raw),
        "observe_ms": round(_best(lambda: _observe_result(raw)), 3),
        "decode_ms": round(_best(lambda: json.loads(raw)), 3),
    }


def _files(data: Path | None) -> Iterator[tuple[str, Any]]:
    for file in sorted((data / "schemas").glob("*.json")) if data is not None else ():
        yield file.stem, json.loads(file.read_text(encoding="utf-8"))


def _recorded(data: Path) -> Iterator[tuple[str, Any]]:
    for file in sorted((data / "servers").glob("*.json")):
        for tool in json.loads(file.read_text(encoding="utf-8"))["tools"] or ():
            if tool.get("outputSchema") is not None:
                yield f"{file.stem}.{tool['name']}", tool["outputSchema"]


def _synthetic(width: int, depth: int) -> dict[str, Any]:
    if not depth:
        return {"type": "string"}
    inner = _synthetic(width, depth - 1)
    return {"type": "object", "properties": {f"field_{number}": inner for number in range(width)}}
