"""A question to a stored document, and the answer as the plain text that the model reads.

This is the one door of the extraction half: it routes, runs the strategy inside its budget, falls back to truncation
with a warning when a strategy could not run, and writes the exact header. Above: the gateway's `tool_output` and
`toolfold.extract`. Below: the strategies, each in a module of its own.
"""

import asyncio
import logging
import time
from functools import partial

from msgspec import Struct

from toolfold.config.values import Extraction
from toolfold.errors import ModelError
from toolfold.events import Events
from toolfold.model import Model, Usage
from toolfold.outputs.chunked import TooManyChunks, chunk_room, extract_chunked
from toolfold.outputs.chunks import chunks_needed
from toolfold.outputs.document import Document
from toolfold.outputs.local.answer import answer, exact_answer
from toolfold.outputs.local.index import Indexes
from toolfold.outputs.readgrep import extract_read_grep
from toolfold.outputs.routing import Mode, Strategy, route
from toolfold.outputs.spending import Spending
from toolfold.outputs.truncating import truncate_file
from toolfold.outputs.turns import in_turn
from toolfold.outputs.wrapper import new_nonce

log = logging.getLogger("toolfold.outputs")


class Extract(Struct, frozen=True, kw_only=True):
    """The whole answer. `text` carries the success or failure header."""

    text: str
    strategy: Strategy
    failed: bool = False
    usage: Usage = Usage()
    warning: str = ""


DEFAULTS = Extraction()
READ_GREP_TURNS = 24
"""Turns of the read-grep sub-agent."""

INDEXES = Indexes()
"""What is known of documents that were asked lately. Empty at import; `drop_gone` lets go of those that are gone."""


def header(document: Document, strategy: str, *, failed: bool = False) -> str:
    """The first line of every answer, to the letter."""
    opening = "TOOL_OUTPUT FAILED FOR" if failed else "ABSTRACT FROM TOOL OUTPUT"
    return f"{opening} {document.tool} WITH HANDLE {document.handle}, STRATEGY:{strategy}:"


async def extract_from(
    document: Document,
    request: str,
    *,
    mode: Mode = "auto",
    model: Model | None = None,
    options: Extraction = DEFAULTS,
    events: Events | None = None,
) -> Extract:
    """Answers `request` from the document. Never raises for what the document or the model does."""
    started = time.monotonic()
    request = request.encode(errors="replace").decode()  # halves of characters cannot be searched or sent
    model = None if document.binary else model
    spending = Spending(model, options.extract_max_tokens, options.extract_max_cost) if model is not None else None
    strategy: Strategy = "full-chunked" if mode == "auto" else mode
    warning = problem = body = ""
    try:
        async with asyncio.timeout(options.extract_timeout_s):
            strategy = chosen(document, request, mode, spending, options)
            body = await run(document, request, strategy, spending, options)
    except TimeoutError:
        problem = f"it took over {options.extract_timeout_s:g} seconds"
    except ModelError as error:
        problem = f"{error.message}. {error.next_action}".strip(" .")
    except OSError as error:
        problem = f"the stored document cannot be read: {error.strerror or error}"
    failed = False
    if problem and strategy != "truncate":
        warning = f"WARNING: the {strategy} strategy could not run: {problem}."
        log.warning("extraction from %s of %s fell back to truncate: %s", document.handle, document.tool, problem)
        if events is not None:
            events.emit(
                "output.fallback", handle=document.handle, tool=document.tool, strategy=strategy, reason=problem
            )
        strategy, body, failed = await fallen_back(document, options, warning)
    elif problem:
        failed, body = True, problem
    usage = spending.usage if spending is not None else Usage()
    text = f"{header(document, strategy, failed=failed)}\n\n{body}"
    found = Extract(text=text, strategy=strategy, failed=failed, usage=usage, warning=warning)
    if events is not None:
        tell(events, document, found, spending, time.monotonic() - started)
    return found


def chosen(document: Document, request: str, mode: Mode, spending: Spending | None, options: Extraction) -> Strategy:
    if mode != "auto":
        return mode
    chunks = None
    if spending is not None:
        room = chunk_room(document, request, spending, options.chunk_overlap_percent)
        chunks = chunks_needed(document.tokens, room, options.chunk_overlap_percent)
    return route(
        document,
        chunks=chunks,
        max_chunks=options.max_chunks_for_full_mode,
        average_line_bytes=options.average_line_bytes,
    )


async def run(
    document: Document, request: str, strategy: Strategy, spending: Spending | None, options: Extraction
) -> str:
    """The answer of one strategy."""
    budget = options.answer_tokens
    if strategy == "truncate":
        return await in_turn(partial(truncate_file, document.path, budget))
    binary = document.media_type if document.binary else ""
    searched = partial(answer, INDEXES, document.path, request, budget, binary=binary)
    if spending is None:
        return await in_turn(searched)
    # What the request names exactly costs no call of a model.
    exact = await in_turn(partial(exact_answer, INDEXES, document.path, request, budget))
    if exact is not None:
        return exact
    nonce = new_nonce()
    if strategy == "read-grep":
        return await extract_read_grep(
            document, request, spending, nonce, turns=READ_GREP_TURNS, tool_seconds=options.extract_timeout_s / 4
        )
    try:
        return await extract_chunked(
            document,
            request,
            spending,
            nonce,
            overlap=options.chunk_overlap_percent,
            parallel=options.extract_parallel,
            most=options.max_chunks,
        )
    except TooManyChunks:
        return await in_turn(searched)


async def fallen_back(document: Document, options: Extraction, warning: str) -> tuple[Strategy, str, bool]:
    """The truncated document under the warning; where not even that can be read, the failure."""
    hint = (
        "Below are the top and the bottom of the document. Ask again, or name a path, `lines 10-20` or a /regex/, "
        "which need no language model."
    )
    try:
        text = await in_turn(partial(truncate_file, document.path, options.answer_tokens))
    except OSError as error:
        return "truncate", f"{warning} The document cannot be read: {error.strerror or error}.", True
    return "truncate", f"{warning} {hint}\n\n{text}", False


def tell(events: Events, document: Document, found: Extract, spending: Spending | None, seconds: float) -> None:
    """One event for the accounts, whatever came of it."""
    events.emit(
        "output.extracted",
        handle=document.handle,
        tool=document.tool,
        strategy=found.strategy,
        failed=found.failed,
        model=spending.model.name if spending is not None else None,
        calls=spending.calls if spending is not None else 0,
        input_tokens=found.usage.input_tokens,
        output_tokens=found.usage.output_tokens,
        cost=found.usage.cost,
        seconds=round(seconds, 4),
    )
