"""The writing side of the index: only what changed is read, and only texts that are new are embedded.

Works on an `IndexStore` whose lock is held. New tools become a new segment, a set of plain arrays; segments are joined
when there are too many of them or too many of their rows are dead. What is written is read by `segment.py`.
"""

import hashlib
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from toolfold.errors import StoreError
from toolfold.search.array_file import Columns, Floats, Hashes, Rows, Small
from toolfold.search.document import Document, tool_text, weighted_terms
from toolfold.search.encoder import Encoder
from toolfold.search.segment import UNIT, IndexSnapshot, Segment, hash64, quantise, sign_bits
from toolfold.search.store import MAX_SEGMENTS, IndexStore

_MAX_SPARE = 20_000
_MAX_DEAD_SHARE = 0.25
_MAX_UNITS = 65_535
_EMBEDDED_AT_ONCE = 16
# What the requests of a tool count in its vector; its own text has the rest. More finds more among the first five, and
# puts the right tool first less often for a request in the words of tools.
_REQUESTS_SHARE = 0.3
_NO_ROWS: Rows = np.zeros(0, dtype=np.int64)


class _Row(Struct, frozen=True):
    """One tool on its way into a segment, with its content key and its text key."""

    tool: Document
    content: bytes
    text: bytes


class UpdateReport(Struct, frozen=True, kw_only=True):
    """What an update did, in tools. `embedded` counts texts the encoder had to read."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    embedded: int = 0


def update_index(
    store: IndexStore, encoder: Encoder, tools: Iterable[Document], removed: Iterable[str], *, only: bool
) -> UpdateReport:
    """Puts tools in, takes ids out. `only`: whatever is not among the tools goes too."""
    snapshot = store.snapshot
    wanted = {tool.tool_id: tool for tool in tools}
    current = {snapshot.tool_id(row): row for row in np.flatnonzero(snapshot.alive).tolist()}
    new, gone = _compare(snapshot, current, wanted)
    leaving = (current.keys() if only else set(removed) & current.keys()) - wanted.keys()
    gone.extend(current[tool_id] for tool_id in leaving)
    if not new and not gone:
        return UpdateReport(unchanged=len(wanted))
    embedded = _write(store, encoder, new, gone)
    changed = sum(1 for tool, _ in new if tool.tool_id in current)
    return UpdateReport(
        added=len(new) - changed,
        changed=changed,
        removed=len(gone) - changed,
        unchanged=len(wanted) - len(new),
        embedded=embedded,
    )


def _compare(
    snapshot: IndexSnapshot, current: dict[str, int], wanted: dict[str, Document]
) -> tuple[list[tuple[Document, bytes]], list[int]]:
    """Tools that are new or changed, with their content keys, and the rows they replace."""
    new: list[tuple[Document, bytes]] = []
    gone: list[int] = []
    for tool_id in sorted(wanted):
        content = _content_key(wanted[tool_id])
        row = current.get(tool_id)
        if row is not None:
            segment, local = snapshot.place(row)
            if segment.arrays["content"][local].tobytes() == content:
                continue
            gone.append(row)
        new.append((wanted[tool_id], content))
    return new, gone


def _write(store: IndexStore, encoder: Encoder, new: Sequence[tuple[Document, bytes]], gone: Sequence[int]) -> int:
    """Saves the new tools as a segment and marks the rows that are gone; returns how many texts were embedded."""
    snapshot = store.snapshot
    rows = [_Row(tool, content, _text_key(encoder.record.key, tool)) for tool, content in new]
    vectors, scales, embedded = _vectors(store, encoder, rows)
    dead = ~snapshot.alive
    dead[np.array(gone, dtype=np.int64)] = True
    segments = list(snapshot.segments)
    dead_rows = [np.flatnonzero(dead[base : base + part.count]) for base, part in snapshot.parts()]
    if rows:
        segments.append(store.add(_build_segment(rows, vectors, scales)))
        dead_rows.append(_NO_ROWS)
    _compact(store, segments, dead_rows)
    return embedded


def _vectors(store: IndexStore, encoder: Encoder, rows: Sequence[_Row]) -> tuple[Small, Floats, int]:
    """The vectors of the rows: from what is stored where the text is current, else from the encoder."""
    vectors = np.zeros((len(rows), encoder.dims), dtype=np.int8)
    scales = np.ones(len(rows), dtype=np.float32)
    places: dict[bytes, list[int]] = {}
    for at, row in enumerate(rows):
        places.setdefault(row.text, []).append(at)
    for arrays in [*(segment.arrays for segment in store.snapshot.segments), *([store.spare] if store.spare else [])]:
        for stored, key in _present(arrays, places):
            vectors[places[key]] = arrays["vector"][stored]
            scales[places[key]] = arrays["scale"][stored]
            del places[key]
    if places:
        fresh, fresh_scales = quantise(
            _embed(store, encoder, [rows[positions[0]].tool for positions in places.values()])
        )
        for number, positions in enumerate(places.values()):
            vectors[positions], scales[positions] = fresh[number], fresh_scales[number]
    return vectors, scales, len(places)


def _embed(store: IndexStore, encoder: Encoder, tools: Sequence[Document]) -> Floats:
    """The vectors of tools, a few at a time: a process that ends must not wait for the rest."""
    parts: list[Floats] = []
    for start in range(0, len(tools), _EMBEDDED_AT_ONCE):
        if store.stopped.is_set():
            raise StoreError("search was closed while it took in tools", next_action="open it again: it goes on then")
        some = tools[start : start + _EMBEDDED_AT_ONCE]
        own = encoder.tools([tool_text(tool) for tool in some])
        parts.extend(_with_requests(encoder, tool, vector) for tool, vector in zip(some, own, strict=True))
    return np.stack(parts)


def _with_requests(encoder: Encoder, tool: Document, own: Floats) -> Floats:
    """A tool's vector with those of its requests mixed in."""
    if not tool.requests:
        return own
    asked = _unit(encoder.queries(tool.requests).mean(axis=0))
    return _unit((1 - _REQUESTS_SHARE) * own + _REQUESTS_SHARE * asked)


def _unit(vector: Floats) -> Floats:
    return vector / np.float32(max(float(np.linalg.norm(vector)), 1e-12))


def _present(arrays: Columns, places: dict[bytes, list[int]]) -> list[tuple[int, bytes]]:
    """The rows whose text is among `places`, with its key."""
    if not places:
        return []
    # The first half of the keys thins the rows in one pass; whole keys are then compared one by one.
    keys = np.frombuffer(b"".join(places), dtype=np.uint64)[::2]
    rows: dict[bytes, int] = {}
    for row in np.flatnonzero(np.isin(arrays["text"][:, 0], keys)).tolist():
        key = arrays["text"][row].tobytes()
        if key in places:
            rows.setdefault(key, row)
    return [(row, key) for key, row in rows.items()]


def _compact(store: IndexStore, segments: list[Segment], dead: list[Rows]) -> None:
    """Saves; first joins the small segments, or all of them, when there are too many or too many rows are dead."""
    live = [segment.count - len(rows) for segment, rows in zip(segments, dead, strict=True)]
    joining = _segments_to_join(live, sum(map(len, dead)))
    if joining:
        joined = _join(store, [(segments[at], dead[at]) for at in joining])
        rest = [at for at in range(len(segments)) if at not in joining]
        segments = [*(segments[at] for at in rest), *joined]
        dead = [*(dead[at] for at in rest), *(_NO_ROWS for _ in joined)]
    store.save(segments, dead)


def _join(store: IndexStore, parts: Sequence[tuple[Segment, Rows]]) -> list[Segment]:
    """The living rows of several segments, given with their dead ones, as one segment; none where all are dead."""
    _save_spare(store, parts)
    living = [(segment, np.setdiff1d(np.arange(segment.count), dead)) for segment, dead in parts]
    return [store.add(_merge_segments(living))] if any(len(rows) for _, rows in living) else []


def _segments_to_join(live: list[int], dead: int) -> list[int]:
    everything = list(range(len(live)))
    if dead > _MAX_DEAD_SHARE * sum(live):
        return everything
    if len(live) <= MAX_SEGMENTS:
        return []
    largest = max(everything, key=lambda at: live[at])
    # The largest is left alone while it dwarfs the others: copying it is most of the cost.
    return [at for at in everything if at != largest] if 2 * (sum(live) - live[largest]) < live[largest] else everything


def _save_spare(store: IndexStore, parts: Sequence[tuple[Segment, Rows]]) -> None:
    """Keeps the newest vectors of rows that are dropped for good: a tool that comes back is not embedded again."""
    sources = [{name: segment.arrays[name][rows] for name in ("text", "vector", "scale")} for segment, rows in parts]
    if store.spare is not None:
        sources.append(store.spare)
    merged = {name: np.concatenate([source[name] for source in sources])[:_MAX_SPARE] for name in sources[0]}
    store.set_spare(merged if len(merged["text"]) else None)


def _content_key(tool: Document) -> bytes:
    """Changes with anything that is stored of the tool."""
    return hashlib.blake2b(msgspec.msgpack.encode(tool), digest_size=16).digest()


def _text_key(encoder: str, tool: Document) -> bytes:
    """Changes with the texts the encoder reads, or with the encoder."""
    text = "\x00".join((tool_text(tool), *tool.requests))
    return hashlib.blake2b(f"{encoder}\x00{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _build_segment(rows: Sequence[_Row], vectors: Small, scales: Floats) -> Columns:
    """All arrays of a segment. Vectors come in the order of the rows."""
    ids = [row.tool.tool_id.encode("utf-8", "surrogatepass") for row in rows]
    places = [msgspec.msgpack.encode(row.tool.paths) for row in rows]
    scopes = sorted({(hash64(scope), at) for at, row in enumerate(rows) for scope in Segment.scopes_of(row.tool)})
    return {
        "id_hash": np.fromiter((hash64(row.tool.tool_id) for row in rows), dtype=np.uint64, count=len(rows)),
        "twin": np.fromiter(map(_twin_hash, rows), dtype=np.uint64, count=len(rows)),
        "content": _keys([row.content for row in rows]),
        "text": _keys([row.text for row in rows]),
        "scope": np.array([scope for scope, _ in scopes], dtype=np.uint64),
        "scope_row": np.array([at for _, at in scopes], dtype=np.uint32),
        "vector": vectors,
        "scale": scales,
        "sign": sign_bits(vectors),
        **_blob("id", ids),
        **_blob("place", places),
        **_postings(rows),
    }


def _twin_hash(row: _Row) -> int:
    """Nought where nothing is known to be the same tool."""
    return hash64(row.tool.twin_key) if row.tool.twin_key else 0


def _keys(keys: Sequence[bytes]) -> Hashes:
    return np.frombuffer(b"".join(keys), dtype=np.uint64).reshape(len(keys), 2)


def _blob(name: str, pieces: Sequence[bytes]) -> Columns:
    start = np.zeros(len(pieces) + 1, dtype=np.uint64)
    start[1:] = np.cumsum([len(piece) for piece in pieces], dtype=np.uint64)
    return {f"{name}_start": start, f"{name}_bytes": np.frombuffer(b"".join(pieces), dtype=np.uint8)}


def _postings(rows: Sequence[_Row]) -> Columns:
    numbers: dict[str, int] = {}
    term: list[int] = []
    row_of: list[int] = []
    weight: list[float] = []
    length = np.zeros(len(rows), dtype=np.float32)
    for at, row in enumerate(rows):
        counts = weighted_terms(row.tool)
        length[at] = round(sum(counts.values()), 3)
        for word, count in counts.items():
            term.append(numbers.setdefault(word, len(numbers)))
            row_of.append(at)
            weight.append(count)
    keys = np.fromiter((hash64(word) for word in numbers), dtype=np.uint64, count=len(numbers))
    units = np.minimum(np.rint(np.array(weight, dtype=np.float64) / UNIT), _MAX_UNITS).astype(np.uint16)
    hashes = keys[np.array(term, dtype=np.int64)] if term else keys
    return {"length": length, **_sorted_postings(hashes, np.array(row_of, dtype=np.uint32), units)}


def _sorted_postings(term: Hashes, row: NDArray[np.uint32], weight: NDArray[np.uint16]) -> Columns:
    order = np.lexsort((row, term))
    # Sorted by hash, so that a lookup is a binary search in the mapped file.
    terms, first = np.unique(term[order], return_index=True)
    start = np.append(first, len(term)).astype(np.uint64)
    return {"term": terms, "term_start": start, "post_row": row[order], "post_weight": weight[order]}


def _merge_segments(parts: Sequence[tuple[Segment, Rows]]) -> Columns:
    """The given rows of several segments as one."""
    plain = ("id_hash", "twin", "content", "text", "length", "vector", "scale")
    arrays: Columns = {name: np.concatenate([segment.arrays[name][rows] for segment, rows in parts]) for name in plain}
    arrays["sign"] = sign_bits(arrays["vector"])
    arrays.update(_blob("id", [segment.piece("id", row) for segment, rows in parts for row in rows.tolist()]))
    arrays.update(_blob("place", [segment.piece("place", row) for segment, rows in parts for row in rows.tolist()]))
    term, post_row, weight, scope, scope_row = [], [], [], [], []
    base = 0
    for segment, rows in parts:
        moved = np.full(segment.count, -1, dtype=np.int64)
        moved[rows] = np.arange(base, base + len(rows))
        base += len(rows)
        terms = np.repeat(segment.arrays["term"], segment.holders())
        to = moved[segment.arrays["post_row"]]
        # Postings move by their hashes: no text is read again.
        term.append(terms[to >= 0])
        post_row.append(to[to >= 0].astype(np.uint32))
        weight.append(segment.arrays["post_weight"][to >= 0])
        to = moved[segment.arrays["scope_row"]]
        scope.append(segment.arrays["scope"][to >= 0])
        scope_row.append(to[to >= 0].astype(np.uint32))
    arrays.update(_sorted_postings(np.concatenate(term), np.concatenate(post_row), np.concatenate(weight)))
    scopes, scope_rows = np.concatenate(scope), np.concatenate(scope_row)
    order = np.lexsort((scope_rows, scopes))
    return {**arrays, "scope": scopes[order], "scope_row": scope_rows[order]}
