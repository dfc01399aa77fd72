"""A question to a stored document, and the answer as the plain text that the model reads.

This is the one door of the extraction half: it routes, runs the strategy inside its budget, falls back to truncation
with a warning when a strategy could not run, and writes the exact header. Above: the gateway's `tool_output` and
`toolfold.extract`. Below: the strategies, each in a module of its own.
"""

import asyncio
import hashlib
import logging
import math
import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from toolfold.config import Settings
from toolfold.config.sections import Extraction
from toolfold.errors import ConfigError, ModelError, OutputError
from toolfold.events import Events
from toolfold.model import Model, Usage
from toolfold.outputs.budget import ModelBudget
from toolfold.outputs.document import Document, open_regular_file
from toolfold.outputs.full_chunked import TooManyChunks, chunk_room, chunks_needed, extract_chunked
from toolfold.outputs.limiter import run_limited
from toolfold.outputs.local.answer import answer, exact_answer
from toolfold.outputs.local.formats import HEAD, is_binary
from toolfold.outputs.local.index import IndexCache
from toolfold.outputs.prompts import new_nonce
from toolfold.outputs.read_grep import extract_read_grep
from toolfold.outputs.service import configured_model
from toolfold.outputs.token_counter import LineCounter, count_tokens
from toolfold.outputs.tool_output import MODES, Mode, Strategy, route
from toolfold.outputs.truncate import truncate_file

log = logging.getLogger("toolfold.outputs")


class ExtractResult(Struct, frozen=True, kw_only=True):
    """The whole answer. `text` carries the success or failure header."""

    text: str
    strategy: Strategy
    failed: bool = False
    usage: Usage = Usage()
    warning: str = ""


DEFAULTS = Extraction()
READ_GREP_TURNS = 24
"""Turns of the read-grep sub-agent."""

INDEXES = IndexCache()
"""What is known of documents that were asked lately. Empty at import; `drop_gone` lets go of those that are gone."""


def _header(document: Document, strategy: str, *, failed: bool = False) -> str:
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
) -> ExtractResult:
    """Answers `request` from the document. Never raises for what the document or the model does."""
    started = time.monotonic()
    request = request.encode(errors="replace").decode()  # halves of characters cannot be searched or sent
    model = None if document.binary else model
    spending = ModelBudget(model, options.extract_max_tokens, options.extract_max_cost) if model is not None else None
    strategy: Strategy = "full-chunked" if mode == "auto" else mode
    warning = problem = body = ""
    try:
        async with asyncio.timeout(options.extract_timeout_s):
            strategy = _choose_strategy(document, request, mode, spending, options)
            body = await _run_strategy(document, request, strategy, spending, options)
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
        strategy, body, failed = await _fall_back(document, options, warning)
    elif problem:
        failed, body = True, problem
    usage = spending.usage if spending is not None else Usage()
    text = f"{_header(document, strategy, failed=failed)}\n\n{body}"
    found = ExtractResult(text=text, strategy=strategy, failed=failed, usage=usage, warning=warning)
    if events is not None:
        _emit_extracted(events, document, found, spending, time.monotonic() - started)
    return found


def _choose_strategy(
    document: Document, request: str, mode: Mode, spending: ModelBudget | None, options: Extraction
) -> Strategy:
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


async def _run_strategy(
    document: Document, request: str, strategy: Strategy, spending: ModelBudget | None, options: Extraction
) -> str:
    """The answer of one strategy."""
    budget = options.answer_tokens
    if strategy == "truncate":
        return await run_limited(partial(truncate_file, document.path, budget))
    binary = document.media_type if document.binary else ""
    searched = partial(answer, INDEXES, document.path, request, budget, binary=binary)
    if spending is None:
        return await run_limited(searched)
    # What the request names exactly costs no call of a model.
    exact = await run_limited(partial(exact_answer, INDEXES, document.path, request, budget))
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
        return await run_limited(searched)


async def _fall_back(document: Document, options: Extraction, warning: str) -> tuple[Strategy, str, bool]:
    """The truncated document under the warning; where not even that can be read, the failure."""
    hint = (
        "Below are the top and the bottom of the document. Ask again, or name a path, `lines 10-20` or a /regex/, "
        "which need no language model."
    )
    try:
        text = await run_limited(partial(truncate_file, document.path, options.answer_tokens))
    except OSError as error:
        return "truncate", f"{warning} The document cannot be read: {error.strerror or error}.", True
    return "truncate", f"{warning} {hint}\n\n{text}", False


def _emit_extracted(
    events: Events, document: Document, found: ExtractResult, spending: ModelBudget | None, seconds: float
) -> None:
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


# --- `toolfold.extract`: a question to any text, bytes or file, without a gateway. Blocking, for people's own progr

READ_BYTES = 1 << 20
BINARY_TYPE = "application/octet-stream"


def extract(
    document: str | bytes | os.PathLike[str],
    request: str,
    *,
    mode: Mode = "auto",
    model: Model | None = None,
) -> str:
    """Answers `request` from a document: a text, bytes, or a `pathlib.Path`. A `str` is always the text itself.

    The answer is plain text whose first line says the strategy. Without a `model` the document is searched.
    """
    return _extract_blocking(document, request, mode=mode, model=model).text


def _extract_blocking(
    document: str | bytes | os.PathLike[str],
    request: str,
    *,
    mode: Mode = "auto",
    model: Model | None = None,
    options: Extraction = DEFAULTS,
) -> ExtractResult:
    """The same with its facts: strategy, failure, use of the model."""
    if mode not in MODES:
        raise ConfigError(f"there is no mode {mode!r}", hints=MODES, next_action=f"use one of {', '.join(MODES)}")
    if not request.strip():
        raise ConfigError("the request is empty", next_action="say what to extract")
    with _open_document(document, exact=model is not None) as made:
        return _run_in_loop(made, request, mode, model, options)


@contextmanager
def _open_document(given: str | bytes | os.PathLike[str], *, exact: bool) -> Iterator[Document]:
    """The document as a file; a text is written to a private one that is removed afterwards."""
    if isinstance(given, os.PathLike):
        yield _describe_path(Path(given), exact=exact)
        return
    raw = given.encode(errors="surrogatepass") if isinstance(given, str) else bytes(given)
    known_as = hashlib.sha256(raw).hexdigest()
    with tempfile.TemporaryDirectory(prefix="toolfold-extract-") as folder:
        path = Path(folder) / str(_stable_handle(known_as))
        path.write_bytes(raw)
        yield _describe_file(path, "text", known_as, exact=exact)


def _describe_path(given: Path, *, exact: bool) -> Document:
    try:
        path = given.resolve(strict=True)
        return _describe_file(path, path.name, str(path), exact=exact)
    except OSError as error:
        raise OutputError(
            f"{given} cannot be read: {error.strerror or error}", next_action="give the path of a file that is there"
        ) from error


def _describe_file(path: Path, name: str, known_as: str, *, exact: bool) -> Document:
    """The file with its counts. Tokens are counted only where a model needs them; else they are estimated."""
    lines, handle = LineCounter(), str(_stable_handle(known_as))
    with open_regular_file(path) as file:
        binary = is_binary(file.read(HEAD))
        file.seek(0)
        while block := file.read(READ_BYTES):
            lines.add(block)
        if binary:
            return Document(path, name, "{}", handle, lines.bytes, 0, 0, BINARY_TYPE)
        tokens = count_tokens(file.fileno(), lines.bytes, lambda: None) if exact else math.ceil(lines.bytes / 4)
    return Document(path, name, "{}", handle, lines.bytes, lines.lines, tokens)


def _stable_handle(known_as: str) -> uuid.UUID:
    """The same document has the same handle each time."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"toolfold:{known_as}")


def _run_in_loop(
    document: Document, request: str, mode: Mode, model: Model | None, options: Extraction
) -> ExtractResult:
    """Runs the extraction to its end, in a thread of its own where this one already runs a loop."""

    def work() -> ExtractResult:
        return asyncio.run(extract_from(document, request, mode=mode, model=model, options=options))

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(work).result()


# --- `toolfold extract`: a question to a local file, with the configured model where there is one. Needs no gateway


def extract_file(settings: Settings, document: Path | bytes, request: str, mode: Any) -> dict[str, Any]:
    """The answer and its facts."""
    model = configured_model(settings)
    found = _extract_blocking(document, request, mode=mode, model=model, options=settings.outputs)
    return {
        "text": found.text,
        "strategy": found.strategy,
        "failed": found.failed,
        "warning": found.warning,
        "model": model.name if model is not None else None,
        "usage": {
            "input_tokens": found.usage.input_tokens,
            "output_tokens": found.usage.output_tokens,
            "cost": found.usage.cost,
        },
    }
