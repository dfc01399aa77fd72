"""Full-chunked: every chunk of the document is read by the model, several at once; one more call joins the answers."""

import asyncio
from functools import partial

from toolfold.errors import ModelError
from toolfold.model import Message, Prompt
from toolfold.outputs import prompts
from toolfold.outputs.chunks import Chunk, chunks_needed, cut_chunks, room_for_chunk
from toolfold.outputs.document import Document
from toolfold.outputs.spending import Spending
from toolfold.outputs.turns import in_turn
from toolfold.outputs.wrapper import final_report

MARGIN = 160
"""Tokens of the marks around a chunk and of the messages' own form."""


class TooManyChunks(Exception):
    """The document would take more calls than are allowed. Never leaves the extraction: it is searched instead."""


def output_tokens(spending: Spending) -> int:
    """What is kept for the answer: the model's limit, and at most half of its window."""
    return max(1, min(spending.model.max_output_tokens, spending.model.context_tokens // 2))


def chunk_room(document: Document, request: str, spending: Spending, overlap: int) -> int:
    """Tokens of document that fit one call: the window less answer and prompt."""
    model = spending.model
    prompt = prompts.map_prompt(document, request, "0" * 16, index=99, total=99, overlap=overlap)
    return room_for_chunk(model.context_tokens, output_tokens(spending), model.count_tokens(prompt) + MARGIN)


async def extract_chunked(
    document: Document, request: str, spending: Spending, nonce: str, *, overlap: int, parallel: int, most: int
) -> str:
    """The joined answer. Raises a `ModelError` where a call failed or gave no report."""
    room = chunk_room(document, request, spending, overlap)
    needed = chunks_needed(document.tokens, room, overlap)
    if needed > most:
        raise TooManyChunks(f"the document takes {needed} chunks, and {most} are allowed")
    count = spending.model.count_tokens
    chunks = await in_turn(
        partial(cut_chunks, document.path, needed, overlap, room=room, count_tokens=count, most=most)
    )
    if chunks is None:
        raise TooManyChunks(f"the document takes more than {most} chunks")
    gate = asyncio.Semaphore(parallel)

    async def ask(number: int, chunk: Chunk) -> str:
        system = prompts.map_prompt(document, request, nonce, index=number, total=len(chunks), overlap=overlap)
        what = f"chunk {number} of {len(chunks)} of the document, bytes {chunk.start}-{max(chunk.start, chunk.end - 1)}"
        async with gate:
            return await report(spending, nonce, system, prompts.as_data(chunk.text, what), f"chunk {number}")

    failed: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(number, chunk)) for number, chunk in enumerate(chunks, 1)]
    except* ModelError as failures:
        failed = failures.exceptions[0]
    if failed is not None:  # raised in there, some versions of Python would wrap it in a group again
        raise failed from None
    answers = [task.result() for task in tasks]
    return answers[0] if len(answers) == 1 else await joined(document, request, spending, nonce, answers, room=room)


async def joined(
    document: Document, request: str, spending: Spending, nonce: str, answers: list[str], *, room: int
) -> str:
    """One answer from many. Where they do not fit one call, groups of them are joined first."""
    parts = [f"Chunk {number} of {len(answers)}:\n{answer}" for number, answer in enumerate(answers, 1)]
    while len(parts) > 1:
        groups = grouped(parts, room, spending)
        if len(groups) == len(parts):
            raise ModelError("the answers of the chunks do not fit the model's window together")
        made = []
        for group in groups:
            marked = prompts.as_data("\n\n".join(group), "what was extracted from the chunks")
            system = prompts.reduce_prompt(document, request, nonce, marked)
            made.append(await report(spending, nonce, system, "Synthesize the final answer now.", "the reduce call"))
        parts = made
    return parts[0]


def grouped(parts: list[str], room: int, spending: Spending) -> list[list[str]]:
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


async def report(spending: Spending, nonce: str, system: str, user: str, what: str) -> str:
    messages = (Message(role="system", content=system), Message(role="user", content=user))
    reply = await spending.complete(Prompt(messages=messages, max_output_tokens=output_tokens(spending)))
    found = final_report(reply.text, nonce)
    if found is None:
        raise ModelError(f"the model gave no final report for {what}")
    return found
