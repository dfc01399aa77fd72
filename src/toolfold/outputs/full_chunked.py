"""Full-chunked: the model reads every chunk of the document, several at once, and one more call joins the answers.

Chunks are balanced: all of one size, the overlap included. They are cut at the end of a line, else where a JSON value
ends, else at a blank, and never inside a character. Above: `extraction.py`.
"""

import asyncio
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec import Struct

from toolfold.errors import ModelError
from toolfold.model import Message, Prompt
from toolfold.outputs import prompts
from toolfold.outputs.document import Document, open_regular_file
from toolfold.outputs.limiter import run_limited
from toolfold.outputs.model_budget import ModelBudget

# Tokens of the marks around a chunk and of the messages' own form.
PROMPT_MARGIN = 160
MIN_CHUNK = 64

# How far a cut may move from its ideal place, as a share of the chunk.
CUT_REACH = 0.1


class _Chunk(Struct, frozen=True):
    """One piece: bytes `start` to before `end`."""

    start: int
    end: int
    text: str
    tokens: int


def plan_chunks(document: Document, request: str, budget: ModelBudget, overlap: int) -> tuple[int, int]:
    """How many tokens of the document fit one call, and how many chunks it takes."""
    room = _chunk_room(document, request, budget, overlap)
    return room, _chunks_needed(document.tokens, room, overlap)


def _chunk_room(document: Document, request: str, budget: ModelBudget, overlap: int) -> int:
    """Tokens of document that fit one call: the window less answer and prompt."""
    prompt = prompts.system_prompt("map", document, request, "0" * 16, index=99, total=99, overlap=overlap)
    prompt_tokens = budget.model.count_tokens(prompt) + PROMPT_MARGIN
    room = budget.model.context_tokens - budget.output_tokens - prompt_tokens
    if room < MIN_CHUNK:
        raise ModelError(
            f"the model's window of {budget.model.context_tokens} tokens leaves no room for a chunk: "
            f"{budget.output_tokens} are kept for the answer and {prompt_tokens} are the prompt",
            next_action="use a model with a larger window, or make the request shorter",
        )
    return room


def _chunks_needed(total: int, room: int, overlap_percent: int) -> int:
    """How many chunks of `room` tokens cover `total`, each but the first repeating a part of the one before."""
    if total <= room:
        return 1
    share = overlap_percent / 100
    return math.ceil((total - share * room) / (room * (1 - share)))


async def extract_chunked(
    document: Document, request: str, budget: ModelBudget, nonce: str, *, overlap: int, parallel: int, max_chunks: int
) -> str | None:
    """The joined answer; `None` where it would take more chunks than are allowed. Raises a `ModelError` where a call
    failed or gave no report."""
    room, needed = plan_chunks(document, request, budget, overlap)
    if needed > max_chunks:
        return None
    count = budget.model.count_tokens
    chunks = await run_limited(
        partial(_cut_chunks, document.path, needed, overlap, room=room, count_tokens=count, max_chunks=max_chunks)
    )
    if chunks is None:
        return None
    slots = asyncio.Semaphore(parallel)

    async def ask(number: int, chunk: _Chunk) -> str:
        place = {"index": number, "total": len(chunks), "overlap": overlap}
        system = prompts.system_prompt("map", document, request, nonce, **place)
        what = f"chunk {number} of {len(chunks)} of the document, bytes {chunk.start}-{max(chunk.start, chunk.end - 1)}"
        async with slots:
            return await _ask_for_report(
                budget, nonce, system, prompts.mark_as_data(chunk.text, what), f"chunk {number}"
            )

    error: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(number, chunk)) for number, chunk in enumerate(chunks, 1)]
    except* ModelError as errors:
        error = errors.exceptions[0]
    if error is not None:  # raised inside `except*`, some versions of Python would wrap it in a group again
        raise error from None
    answers = [task.result() for task in tasks]
    return answers[0] if len(answers) == 1 else await _reduce(document, request, budget, nonce, answers, room=room)


async def _reduce(
    document: Document, request: str, budget: ModelBudget, nonce: str, answers: list[str], *, room: int
) -> str:
    """One answer from many. Where they do not fit one call, groups of them are joined first."""
    parts = [f"Chunk {number} of {len(answers)}:\n{answer}" for number, answer in enumerate(answers, 1)]
    while len(parts) > 1:
        groups = _group_answers(parts, room, budget)
        # Without two answers in one group, another round would never end.
        if len(groups) == len(parts):
            raise ModelError("the answers of the chunks do not fit the model's window together")
        parts = []
        for group in groups:
            marked = prompts.mark_as_data("\n\n".join(group), "what was extracted from the chunks")
            system = prompts.system_prompt("reduce", document, request, nonce, outputs=marked)
            user = "Synthesize the final answer now."
            parts.append(await _ask_for_report(budget, nonce, system, user, "the reduce call"))
    return parts[0]


def _group_answers(parts: list[str], room: int, budget: ModelBudget) -> list[list[str]]:
    groups: list[list[str]] = []
    size = room + 1
    for part in parts:
        tokens = budget.model.count_tokens(part) + 4
        if size + tokens > room:
            groups.append([])
            size = 0
        groups[-1].append(part)
        size += tokens
    return groups


async def _ask_for_report(budget: ModelBudget, nonce: str, system: str, user: str, what: str) -> str:
    messages = (Message(role="system", content=system), Message(role="user", content=user))
    reply = await budget.complete(Prompt(messages=messages, max_output_tokens=budget.output_tokens))
    report = prompts.parse_final_report(reply.text, nonce)
    if report is None:
        raise ModelError(f"the model gave no final report for {what}")
    return report


def _cut_chunks(
    path: Path, count: int, overlap_percent: int, *, room: int, count_tokens: Callable[[str], int], max_chunks: int
) -> list[_Chunk] | None:
    """The chunks, each within `room` tokens; `None` where there would be more than `max_chunks`."""
    with open_regular_file(path) as file:
        data = file.read()
    while count <= max_chunks:
        chunks = _cut_evenly(data, count, overlap_percent, count_tokens)
        largest = max(chunk.tokens for chunk in chunks)
        if largest <= room:
            return chunks
        # Bytes are cut evenly, tokens are not even: where the text is denser, more and smaller chunks are tried.
        count = max(count + 1, math.ceil(count * min(2.0, largest / room)))
    return None


def _cut_evenly(data: bytes, count: int, overlap_percent: int, count_tokens: Callable[[str], int]) -> list[_Chunk]:
    size = _balanced_size(len(data), count, overlap_percent)
    step = size * (1 - overlap_percent / 100)
    chunks = []
    for number in range(count):
        start = _cut_position(data, round(number * step), size) if number else 0
        end = _cut_position(data, round(number * step) + size, size) if number < count - 1 else len(data)
        text = data[start:end].decode(errors="replace")
        chunks.append(_Chunk(start, end, text, count_tokens(text)))
    return chunks


def _balanced_size(size: int, count: int, overlap_percent: int) -> int:
    """What each of `count` chunks measures so that together, overlaps counted, they cover `size`."""
    return math.ceil(size / (count - (count - 1) * overlap_percent / 100))


def _cut_position(data: bytes, ideal: int, size: int) -> int:
    """The best place to cut at or a little before `ideal`."""
    ideal = min(max(ideal, 0), len(data))
    low = max(0, ideal - max(1, int(size * CUT_REACH)))
    for mark in (b"\n", b"},", b"],", b",", b" "):
        position = data.rfind(mark, low, ideal)
        if position >= 0:
            return position + len(mark)
    while 0 < ideal < len(data) and data[ideal] & 0xC0 == 0x80:
        ideal -= 1
    return ideal
