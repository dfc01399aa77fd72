"""What search costs: CPU for each request, building, updating, memory and opening, at three sizes of catalogue.

The catalogues are made by varying real tools (said so in the result): names and descriptions get other words and other
servers. Their vectors are those of the real tools with noise, since embedding 100,000 made-up texts would measure
nothing new; what embedding costs is measured by itself on real tools. FastMCP's own index runs beside ours in an
environment of its own, named by `peer_python`.
"""

import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.measurement import cpu_time, environment, percentile
from benchmarks.recorded import recorded_servers
from toolfold.search.array_file import Floats
from toolfold.search.document import Document, document_of, tool_text
from toolfold.search.encoder import Encoder
from toolfold.search.index import SearchIndex

SIZES = (1_000, 10_000, 100_000)
QUERIES = 200
EMBEDDED = 300
CHANGED = 30
"""Tools of the one server that changes."""

_VARIANTS = (
    "archive billing campus clinic contract courier customer dataset delivery depot district employee event factory "
    "fleet garden grant guest harbour hotel insurance invoice journal kitchen lab lease library loan market museum "
    "newsletter office order parcel payroll permit pharmacy project quarry quote reactor recipe region rental report "
    "route school sensor shipment shop station student studio supplier survey tenant ticket vehicle vendor warehouse"
)


def run(
    data: Path,
    *,
    sizes: Sequence[int] = SIZES,
    seed: int = 0,
    peer_python: Path | None = None,
    encoder: Encoder | None = None,
) -> dict[str, Any]:
    """`data` is a folder of recorded servers (`NAME.json`)."""
    encoder = encoder or Encoder()
    real = [document_of(tool) for tool in recorded_servers(data).tools]
    random.Random(seed).shuffle(real)
    with cpu_time() as spent:
        encoder.tools([tool_text(tool) for tool in real[:EMBEDDED]])
    queries = [_ask(tool) for tool in real[:QUERIES]]
    made = _Noise(encoder, real)
    metrics: dict[str, Any] = {
        "made_by": f"varying {len(real)} recorded tools; vectors of the varied ones are real ones with noise",
        "embedding_cpu_s_per_10000": round(spent.seconds / min(EMBEDDED, len(real)) * 10_000, 1),
        "queries": len(queries),
    }
    for size in sizes:
        tools = varied(real, size, seed)
        found = _measure(tools, queries, made)
        found["fastmcp"] = _peer(tools, queries, peer_python)
        metrics[str(size)] = found
    facts = {**environment("numpy", "onnxruntime"), "encoder": encoder.record.key}
    return {"name": "search", "metrics": metrics, "environment": facts}


def varied(real: Sequence[Document], size: int, seed: int) -> list[Document]:
    """The real tools, then copies with other words in name and description and under other servers."""
    words = _VARIANTS.split()
    chance = random.Random(seed)
    found = list(real[:size])
    while len(found) < size:
        tool = real[len(found) % len(real)]
        first, second = chance.choice(words), chance.choice(words)
        number = len(found) // len(real)
        found.append(
            msgspec.structs.replace(
                tool,
                tool_id=f"{tool.tool_id}~{len(found)}",
                name=f"{tool.name}_{first}",
                description=f"{tool.description} For each {first} of the {second}.",
                server=f"{tool.server}-{number}",
            )
        )
    return found


def _ask(tool: Document) -> str:
    """What a person might type for a tool: the start of the first sentence of its description, else its name."""
    sentence = re.split(r"[.!?\n]", tool.description.strip(), maxsplit=1)[0]
    return " ".join(sentence.split()[:14]) or tool.name


class _Noise(Encoder):
    """Encodes requests truly, and varied tools as the vector of the tool they come from with noise."""

    def __init__(self, encoder: Encoder, real: Sequence[Document]) -> None:
        self.record, self.folder = encoder.record, encoder.folder
        self._true = encoder
        self._pool = encoder.tools([tool_text(tool) for tool in real[: 4 * EMBEDDED]])

    def load(self) -> None:
        self._true.load()

    def queries(self, texts: Sequence[str]) -> Floats:
        return self._true.queries(texts)

    def tools(self, texts: Sequence[str]) -> Floats:
        chance = np.random.default_rng(len(texts))
        near = self._pool[np.arange(len(texts)) % len(self._pool)]
        moved = near + chance.normal(0.0, 0.02, (len(texts), self.dims)).astype(np.float32)
        return np.asarray(moved / np.linalg.norm(moved, axis=1, keepdims=True), dtype=np.float32)


def _measure(tools: Sequence[Document], queries: Sequence[str], encoder: Encoder) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="toolfold-bench-") as scratch:
        folder = Path(scratch)
        with cpu_time() as built:
            SearchIndex.open(folder, encoder=encoder).sync(tools)
        started = time.perf_counter()
        index = SearchIndex.open(folder, encoder=encoder)
        count = len(index)
        opened = time.perf_counter() - started
        encoder.load()
        index.search(queries[0])
        spent = []
        for query in queries:
            with cpu_time() as asked:
                index.search(query, limit=10)
            spent.append(asked.seconds * 1000)
        encoding = []
        for query in queries:
            with cpu_time() as asked:
                encoder.queries([query])
            encoding.append(asked.seconds * 1000)
        changed = [msgspec.structs.replace(tool, description=f"{tool.description} Now.") for tool in tools[:CHANGED]]
        with cpu_time() as updated:
            index.update(changed)
        fresh = _fresh_process(folder, queries[0])
        return {
            "tools": count,
            "build_cpu_s": round(built.seconds, 2),
            "cold_open_ms": round(opened * 1000, 2),
            "query_cpu_ms_p50": round(percentile(spent, 0.5), 2),
            "query_cpu_ms_p99": round(percentile(spent, 0.99), 2),
            "of_which_encoder_ms_p50": round(percentile(encoding, 0.5), 2),
            f"update_{CHANGED}_tools_cpu_ms_without_embedding": round(updated.seconds * 1000, 1),
            "disk_mb": round(sum(file.stat().st_size for file in folder.iterdir()) / 1e6, 1),
            "fresh_process": fresh,
        }


_FRESH = """
import json, sys, time
from pathlib import Path
import toolfold.types
def memory():
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return round(int(lines["VmRSS"].split()[0]) / 1024, 1)
before, started = memory(), time.perf_counter()
from toolfold.search.index import SearchIndex
index = SearchIndex.open(Path(sys.argv[1]))
count, opened = len(index), time.perf_counter()
index.search(sys.argv[2])
answered = time.perf_counter()
print(json.dumps({"open_with_imports_ms": round((opened - started) * 1000, 1),
    "first_answer_ms": round((answered - opened) * 1000, 1), "memory_mb": memory(), "memory_before_mb": before}))
"""


def _fresh_process(folder: Path, query: str) -> dict[str, Any]:
    """What a process pays that opens the index and asks once: the runtime's imports and the encoder's load included."""
    command = [sys.executable, "-c", _FRESH, str(folder), query]
    done = subprocess.run(command, capture_output=True, timeout=120, check=True)
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


_PEER = """
import json, sys, time
from fastmcp.server.transforms.search.bm25 import _BM25Index
given = json.load(sys.stdin)
started = time.process_time()
index = _BM25Index()
index.build(given["texts"])
built = time.process_time() - started
spent = []
for query in given["queries"]:
    started = time.process_time()
    index.query(query, 10)
    spent.append((time.process_time() - started) * 1000)
spent.sort()
print(json.dumps({"build_cpu_s": round(built, 2), "queries": len(spent),
    "query_cpu_ms_p50": round(spent[len(spent) // 2], 2), "query_cpu_ms_p99": round(spent[int(len(spent) * 0.99)], 2)}))
"""


def _peer(tools: Sequence[Document], queries: Sequence[str], python: Path | None) -> dict[str, Any] | str:
    """FastMCP's own class in its own interpreter, over the same tools; few queries, since each reads every tool."""
    if python is None:
        return "absent: name an interpreter that has fastmcp with peer_python"
    texts = [" ".join([tool.name, tool.description, *(f"{a} {b}" for a, b in tool.parameters)]) for tool in tools]
    given = msgspec.json.encode({"texts": texts, "queries": queries[: max(10, 200_000 // len(tools))]})
    done = subprocess.run([str(python), "-c", _PEER], input=given, capture_output=True, timeout=600, check=False)
    if done.returncode:
        return f"failed: {done.stderr.decode(errors='replace').strip().splitlines()[-1:]}"
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found
