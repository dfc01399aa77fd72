"""Outputs: results that were kept aside, with size, shape, a part at a time, and answers to questions about them."""

import asyncio
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from msgspec.structs import replace

from toolfold.errors import InvalidArguments, OutputError
from toolfold.faces.console.visit import _Page, _paged, _Visit
from toolfold.outputs.shape import _describe_json
from toolfold.types import Caller, Stored

_OUTPUTS = 50
# So much of an output is read for one page.
_PART = 16 * 1024
# Where a passage of an answer stands.
_PASSAGE = re.compile(r"\bbytes (\d{1,15})-(\d{1,15})\]")
_MAX_PASSAGES = 200


async def _outputs(visit: _Visit) -> _Page:
    stored, q = await visit.gateway.outputs.of(visit.whose), visit.query("q").casefold()
    found = [one for one in stored if q in f"{one.handle} {one.tool_id} {one.caller} {one.session}".casefold()]
    values = {"title": "Outputs", "q": visit.query("q"), "any": bool(stored)}
    return _Page("outputs.html", {**values, **_paged(found, visit.number("page"), _OUTPUTS)})


async def _one(visit: _Visit) -> _Page:
    return await _shown(visit, visit.query, visit.number("from", 0))


async def _ask(visit: _Visit) -> _Page:
    """Answers a question, and shows the part of the output that the answer is from."""
    question = visit.form.get("question", "").strip()[:2_000]
    if not question:
        raise InvalidArguments(
            "nothing was asked", next_action="ask in words, or give a path, `lines 10-20` or a /regex/"
        )
    owner = _owner(visit, visit.form.get)
    answer = await visit.gateway.tool_output(visit.form.get("handle", "")[:200], question, caller=owner)
    return await _shown(visit, visit.form.get, None, question, answer)


def _owner(visit: _Visit, given: Any) -> Caller:
    """Whose output it is: one's own, unless an administrator asks."""
    name = (given("caller", "") if visit.admin else "") or visit.caller.name
    return replace(visit.caller, name=name[:200], session=given("session", "")[:500])


async def _shown(visit: _Visit, given: Any, start: int | None, question: str = "", answer: str = "") -> _Page:
    stored, path = await visit.gateway.outputs.find(given("handle", "")[:200], _owner(visit, given))
    passages = _passages(answer)
    if start is None:  # a little before the first passage
        start = max(0, min(passages, default=(0, 0))[0] - _PART // 8)
    start = min(start, max(0, stored.bytes - 1))
    part, shape = await asyncio.to_thread(_read, path, stored, start)
    about = {"caller": stored.caller, "session": stored.session, "handle": stored.handle}
    values = {
        "title": f"Output {stored.handle}",
        "stored": stored,
        "question": question,
        "answer": answer,
        "pieces": _marked(part, [(first - start, last - start) for first, last in passages]),
        "start": start,
        "end": min(start + _PART, stored.bytes),
        "before": urlencode({**about, "from": max(0, start - _PART)}) if start else "",
        "after": urlencode({**about, "from": start + _PART}) if start + _PART < stored.bytes else "",
        "shape": shape,
    }
    return _Page("output.html", values)


def _passages(answer: str) -> list[tuple[int, int]]:
    """From which bytes an answer is, as it says itself, in order."""
    found = [(int(first), int(last)) for first, last in _PASSAGE.findall(answer)[:_MAX_PASSAGES]]
    return sorted({(first, last) for first, last in found if first < last})


def _read(path: Path, stored: Stored, start: int) -> tuple[bytes, str]:
    """A part of an output, and the shape of the whole. Runs in a thread."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            shape = "" if stored.binary else _describe_json(descriptor, stored.bytes)[0]
            return os.pread(descriptor, _PART, start), shape
        finally:
            os.close(descriptor)
    except OSError as error:
        raise OutputError(f"the stored output {stored.handle} cannot be read: {error.strerror or error}") from error


def _marked(part: bytes, passages: Sequence[tuple[int, int]]) -> list[tuple[str, bool]]:
    """The part in pieces, with whether an answer is from each. The passages are counted from its beginning."""
    pieces: list[tuple[bytes, bool]] = []
    done = 0
    for begins, ends in passages:
        first, last = max(begins, done), min(ends, len(part))
        if first < last:
            pieces += [(part[done:first], False), (part[first:last], True)]
            done = last
    return [(piece.decode("utf-8", "replace"), marked) for piece, marked in [*pieces, (part[done:], False)] if piece]


GETS = {"/outputs": _outputs, "/outputs/one": _one}
POSTS = {"/outputs/ask": _ask}
