"""Brings the index up to date: only what changed is read, and only texts that are new are embedded.

Works on a `Store` whose lock is held. Tells what it did. Segments are joined here when there are too many of them or
when too many of their rows are dead.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct

from toolfold.search.arrays import Columns, Floats, Rows, Small
from toolfold.search.document import Document, tool_text
from toolfold.search.encoder import Encoder
from toolfold.search.segment import Segment, SegmentRow, build_segment, content_key, digest, merge_segments, quantise
from toolfold.search.snapshot import IndexSnapshot
from toolfold.search.store import MAX_SEGMENTS, IndexStore

MAX_SPARE = 20_000
DEAD_SHARE = 0.25


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
    view = store.view
    wanted = {tool.tool_id: tool for tool in tools}
    known = _live_rows(view)
    new, gone = _compare(view, known, wanted)
    leaving = set(known) - set(wanted) if only else {tool_id for tool_id in removed if tool_id not in wanted}
    gone.extend(known[tool_id] for tool_id in leaving if tool_id in known)
    if not new and not gone:
        return UpdateReport(unchanged=len(wanted))
    rows = [
        SegmentRow(tool, content, digest(f"{encoder.record.key}\x00{tool_text(tool)}", 16)) for tool, content in new
    ]
    vectors, scales, embedded = _vectors(store, encoder, rows)
    dead = np.zeros(view.total, dtype=np.bool_)
    dead[np.array(gone, dtype=np.int64)] = True
    dead |= ~view.alive
    masks = [dead[base : base + part.count] for base, part in zip(view.bases, view.segments, strict=False)]
    segments = list(view.segments)
    if rows:
        segments.append(store.add(build_segment(rows, vectors, scales)))
        masks.append(np.zeros(len(rows), dtype=np.bool_))
    _tidy(store, segments, [np.flatnonzero(mask) for mask in masks])
    added = sum(1 for tool, _ in new if tool.tool_id not in known)
    return UpdateReport(
        added=added,
        changed=len(new) - added,
        removed=len(gone) - (len(new) - added),
        unchanged=len(wanted) - len(new),
        embedded=embedded,
    )


def _live_rows(view: IndexSnapshot) -> dict[str, int]:
    """Every living tool with its row."""
    return {view.tool_id(row): row for row in np.flatnonzero(view.alive).tolist()}


def _compare(
    view: IndexSnapshot, known: dict[str, int], wanted: dict[str, Document]
) -> tuple[list[tuple[Document, bytes]], list[int]]:
    """Tools that are new or changed, with their content keys, and the rows they replace."""
    new: list[tuple[Document, bytes]] = []
    gone: list[int] = []
    for tool_id in sorted(wanted):
        content = content_key(wanted[tool_id])
        row = known.get(tool_id)
        if row is not None:
            segment, local = view.place(row)
            if segment.arrays["content"][local].tobytes() == content:
                continue
            gone.append(row)
        new.append((wanted[tool_id], content))
    return new, gone


def _vectors(store: IndexStore, encoder: Encoder, rows: Sequence[SegmentRow]) -> tuple[Small, Floats, int]:
    """The vectors of the rows: from what is stored where the text is known, else from the encoder."""
    vectors = np.zeros((len(rows), encoder.dims), dtype=np.int8)
    scales = np.ones(len(rows), dtype=np.float32)
    places: dict[bytes, list[int]] = {}
    for at, row in enumerate(rows):
        places.setdefault(row.text, []).append(at)
    for arrays in [*(segment.arrays for segment in store.view.segments), *([store.spare] if store.spare else [])]:
        for stored, key in _present(arrays, places):
            vectors[places[key]] = arrays["vector"][stored]
            scales[places[key]] = arrays["scale"][stored]
            del places[key]
    if places:
        texts = [tool_text(rows[wanting[0]].tool) for wanting in places.values()]
        fresh, fresh_scales = quantise(encoder.tools(texts))
        for number, wanting in enumerate(places.values()):
            vectors[wanting], scales[wanting] = fresh[number], fresh_scales[number]
    return vectors, scales, len(places)


def _present(arrays: Columns, places: dict[bytes, list[int]]) -> list[tuple[int, bytes]]:
    if not places:
        return []
    keys = np.frombuffer(b"".join(places), dtype=np.uint64)[::2]
    found: dict[bytes, int] = {}
    for row in np.flatnonzero(np.isin(arrays["text"][:, 0], keys)).tolist():
        key = arrays["text"][row].tobytes()
        if key in places:
            found.setdefault(key, row)
    return [(row, key) for key, row in found.items()]


def _tidy(store: IndexStore, segments: list[Segment], dead: list[Rows]) -> None:
    """Saves; first joins the small segments, or all of them, when there are too many or too many rows are dead."""
    lives = [segment.count - len(rows) for segment, rows in zip(segments, dead, strict=True)]
    lost = sum(len(rows) for rows in dead)
    chosen: list[int] = []
    if lost > DEAD_SHARE * sum(lives):
        chosen = list(range(len(segments)))
    elif len(segments) > MAX_SEGMENTS:
        largest = max(range(len(segments)), key=lambda at: lives[at])
        rest = [at for at in range(len(segments)) if at != largest]
        chosen = rest if 2 * sum(lives[at] for at in rest) < lives[largest] else list(range(len(segments)))
    if chosen:
        parts = []
        for at in chosen:
            kept = np.setdiff1d(np.arange(segments[at].count), dead[at])
            parts.append((segments[at], kept))
        _spare(store, [(segments[at], dead[at]) for at in chosen])
        rest = [at for at in range(len(segments)) if at not in chosen]
        joined = [store.add(merge_segments(parts))] if sum(len(rows) for _, rows in parts) else []
        segments, dead = [segments[at] for at in rest] + joined, [dead[at] for at in rest]
        dead += [np.zeros(0, dtype=np.int64)] * len(joined)
    store.save(segments, dead)


def _spare(store: IndexStore, parts: Sequence[tuple[Segment, Rows]]) -> None:
    """Keeps the vectors of rows that are dropped for good, the newest of them."""
    sources = [({name: segment.arrays[name][rows] for name in ("text", "vector", "scale")}) for segment, rows in parts]
    if store.spare is not None:
        sources.append(store.spare)
    merged = {name: np.concatenate([source[name] for source in sources])[:MAX_SPARE] for name in sources[0]}
    store.set_spare(merged if len(merged["text"]) else None)
