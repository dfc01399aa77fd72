"""Full-chunked: every chunk of the document is read by the model, several at once; one more call joins the answers."""

import asyncio
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec import Struct

from toolfold.errors import ModelError
from toolfold.model import Message, Prompt
from toolfold.outputs import prompts
from toolfold.outputs.budget import ModelBudget
from toolfold.outputs.document import Document, open_regular_file
from toolfold.outputs.limiter import run_limited
from toolfold.outputs.prompts import parse_final_report

# --- Chunks of a document: how many, how large, and where they are cut.

CUT_REACH = 0.1
"""How far from its ideal place a cut may move, as a share of the chunk."""


class _Chunk(Struct, frozen=True):
    """One piece: bytes `start` to before `end`."""

    start: int
    end: int
    text: str
    tokens: int


def _room_for_chunk(context: int, output: int, prompt: int) -> int:
    """Tokens of document that fit one call."""
    room = context - output - prompt
    if room < 64:
        raise ModelError(
            f"the model's window of {context} tokens leaves no room for a chunk: {output} are kept for the answer and "
            f"{prompt} are the prompt",
            next_action="use a model with a larger window, or make the request shorter",
        )
    return room


def chunks_needed(total: int, room: int, overlap_percent: int) -> int:
    """How many chunks of `room` tokens cover `total`, each but the first repeating a part of the one before."""
    if total <= room:
        return 1
    share = overlap_percent / 100
    return math.ceil((total - share * room) / (room * (1 - share)))


def _balanced_size(size: int, count: int, overlap_percent: int) -> int:
    """What each of `count` chunks measures so that together, overlaps counted, they cover `size`."""
    return math.ceil(size / (count - (count - 1) * overlap_percent / 100))


def _cut_chunks(
    path: Path, count: int, overlap_percent: int, *, room: int, count_tokens: Callable[[str], int], most: int
) -> list[_Chunk] | None:
    """The chunks, each within `room` tokens. Where the text is denser in places, more and smaller ones; `None` where
    that would take more than `most`.
    """
    with open_regular_file(path) as file:
        data = file.read()
    while count <= most:
        chunks = _cut_evenly(data, count, overlap_percent, count_tokens)
        largest = max(chunk.tokens for chunk in chunks)
        if largest <= room:
            return chunks
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


def _cut_position(data: bytes, ideal: int, size: int) -> int:
    """The best place to cut at or a little before `ideal`."""
    ideal = min(max(ideal, 0), len(data))
    reach = max(1, int(size * CUT_REACH))
    low = max(0, ideal - reach)
    newline = data.rfind(b"\n", low, ideal)
    if newline >= 0:
        return newline + 1
    for mark in (b"},", b"],", b",", b" "):
        found = data.rfind(mark, low, ideal)
        if found >= 0:
            return found + len(mark)
    while 0 < ideal < len(data) and data[ideal] & 0xC0 == 0x80:
        ideal -= 1
    return ideal


PROMPT_MARGIN = 160
"""Tokens of the marks around a chunk and of the messages' own form."""


class TooManyChunks(Exception):
    """The document would take more calls than are allowed. Never leaves the extraction: it is searched instead."""


def output_tokens(spending: ModelBudget) -> int:
    """What is kept for the answer: the model's limit, and at most half of its window."""
    return max(1, min(spending.model.max_output_tokens, spending.model.context_tokens // 2))


def chunk_room(document: Document, request: str, spending: ModelBudget, overlap: int) -> int:
    """Tokens of document that fit one call: the window less answer and prompt."""
    model = spending.model
    prompt = prompts.map_prompt(document, request, "0" * 16, index=99, total=99, overlap=overlap)
    return _room_for_chunk(model.context_tokens, output_tokens(spending), model.count_tokens(prompt) + PROMPT_MARGIN)


async def extract_chunked(
    document: Document, request: str, spending: ModelBudget, nonce: str, *, overlap: int, parallel: int, most: int
) -> str:
    """The joined answer. Raises a `ModelError` where a call failed or gave no report."""
    room = chunk_room(document, request, spending, overlap)
    needed = chunks_needed(document.tokens, room, overlap)
    if needed > most:
        raise TooManyChunks(f"the document takes {needed} chunks, and {most} are allowed")
    count = spending.model.count_tokens
    chunks = await run_limited(
        partial(_cut_chunks, document.path, needed, overlap, room=room, count_tokens=count, most=most)
    )
    if chunks is None:
        raise TooManyChunks(f"the document takes more than {most} chunks")
    gate = asyncio.Semaphore(parallel)

    async def ask(number: int, chunk: _Chunk) -> str:
        system = prompts.map_prompt(document, request, nonce, index=number, total=len(chunks), overlap=overlap)
        what = f"chunk {number} of {len(chunks)} of the document, bytes {chunk.start}-{max(chunk.start, chunk.end - 1)}"
        async with gate:
            return await _ask_for_report(
                spending, nonce, system, prompts.mark_as_data(chunk.text, what), f"chunk {number}"
            )

    failed: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(number, chunk)) for number, chunk in enumerate(chunks, 1)]
    except* ModelError as failures:
        failed = failures.exceptions[0]
    if failed is not None:  # raised in there, some versions of Python would wrap it in a group again
        raise failed from None
    answers = [task.result() for task in tasks]
    return answers[0] if len(answers) == 1 else await _reduce(document, request, spending, nonce, answers, room=room)


async def _reduce(
    document: Document, request: str, spending: ModelBudget, nonce: str, answers: list[str], *, room: int
) -> str:
    """One answer from many. Where they do not fit one call, groups of them are joined first."""
    parts = [f"Chunk {number} of {len(answers)}:\n{answer}" for number, answer in enumerate(answers, 1)]
    while len(parts) > 1:
        groups = _group_answers(parts, room, spending)
        if len(groups) == len(parts):
            raise ModelError("the answers of the chunks do not fit the model's window together")
        made = []
        for group in groups:
            marked = prompts.mark_as_data("\n\n".join(group), "what was extracted from the chunks")
            system = prompts.reduce_prompt(document, request, nonce, marked)
            made.append(
                await _ask_for_report(spending, nonce, system, "Synthesize the final answer now.", "the reduce call")
            )
        parts = made
    return parts[0]


def _group_answers(parts: list[str], room: int, spending: ModelBudget) -> list[list[str]]:
    groups: list[list[str]] = []
    size = room + 1
    for part in parts:
        tokens = spending.model.count_tokens(part) + 4
        if size + tokens > room:
            groups.append([])
            size = 0
        groups[-1].append(part)
        size += tokens
    return groups


async def _ask_for_report(spending: ModelBudget, nonce: str, system: str, user: str, what: str) -> str:
    messages = (Message(role="system", content=system), Message(role="user", content=user))
    reply = await spending.complete(Prompt(messages=messages, max_output_tokens=output_tokens(spending)))
    found = parse_final_report(reply.text, nonce)
    if found is None:
        raise ModelError(f"the model gave no final report for {what}")
    return found
