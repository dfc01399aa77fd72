"""A question to a document, and the answer as the plain text that the model reads.

The entry to all extraction: `extract_from` chooses a strategy, runs it inside its budget, falls back to truncation
with a warning where it could not run, and writes the header. `extract` and `extract_file` are its blocking forms for
programs and the command line, which need no gateway. Above: `service.py`, `toolfold.extract`. Below: the strategies,
each in a module of its own.
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

from msgspec import Struct, structs

from toolfold.config import Settings
from toolfold.config.sections import Extraction
from toolfold.errors import ConfigError, ModelError, OutputError
from toolfold.events import Events
from toolfold.model import Model, Usage
from toolfold.outputs.document import Document, open_regular_file
from toolfold.outputs.full_chunked import extract_chunked, plan_chunks
from toolfold.outputs.limiter import run_limited
from toolfold.outputs.local.answer import answer, exact_answer
from toolfold.outputs.local.index import IndexCache
from toolfold.outputs.local.source import HEAD, _media_type_of, is_binary
from toolfold.outputs.model_budget import ModelBudget
from toolfold.outputs.named_parts import NamedParts
from toolfold.outputs.prompts import new_nonce
from toolfold.outputs.read_grep import extract_read_grep
from toolfold.outputs.shape import describe_binary
from toolfold.outputs.store import OutputStore
from toolfold.outputs.token_counter import LineCounter, count_tokens
from toolfold.outputs.tool_output_definition import MODES, Mode, Strategy, header
from toolfold.outputs.truncate import truncate_file
from toolfold.text import replace_surrogates

__all__ = ["extract_file"]

log = logging.getLogger("toolfold.outputs")


DEFAULTS = Extraction()
READ_GREP_TURNS = 24

NO_MODEL = "full-chunked needs a language model, and none is configured.\n"

READ_BYTES = 1 << 20

# Indexes of the documents that were asked lately, shared by all gateways of the process: building one takes longer than
# most answers. Empty at import; `drop_gone` forgets documents whose file is gone.
INDEXES = IndexCache()


class _ExtractResult(Struct, frozen=True, kw_only=True):
    """The whole answer. `text` carries the success or failure header."""

    text: str
    strategy: Strategy
    failed: bool = False
    usage: Usage = Usage()
    warning: str = ""


async def extract_from(
    document: Document,
    request: str,
    *,
    mode: Mode = "auto",
    model: Model | None = None,
    options: Extraction = DEFAULTS,
    events: Events | None = None,
) -> _ExtractResult:
    """Answers `request` from the document. Never raises for what the document or the model does."""
    started = time.monotonic()
    request = replace_surrogates(request)  # halves of characters cannot be searched or sent
    budget = None
    if model is not None and not document.binary:
        budget = ModelBudget(model, options.extract_max_tokens, options.extract_max_cost)
    strategy, body, problem = await _attempt(document, request, mode, budget, options)
    failed, warning = False, ""
    if isinstance(problem, OutputError):  # the request itself cannot be done, so no other strategy helps
        failed, body = True, f"{problem.message.removesuffix('.')}. Next: {problem.next_action.removesuffix('.')}."
    elif problem and strategy != "truncate":
        warning = f"WARNING: the {strategy} strategy could not run: {problem}."
        log.warning("extraction from %s of %s fell back to truncate: %s", document.handle, document.tool, problem)
        if events is not None:
            events.emit(
                "output.fallback", handle=document.handle, tool=document.tool, strategy=strategy, reason=problem
            )
        strategy = "truncate"
        body, failed = await _fall_back(document, options, warning)
    elif problem:
        failed, body = True, problem
    result = _ExtractResult(
        text=f"{header(document.tool, document.handle, strategy, failed=failed)}\n\n{body}",
        strategy=strategy,
        failed=failed,
        usage=budget.usage if budget is not None else Usage(),
        warning=warning,
    )
    if events is not None:
        _emit_extracted(events, document, result, budget, time.monotonic() - started)
    return result


async def _attempt(
    document: Document, request: str, mode: Mode, budget: ModelBudget | None, options: Extraction
) -> tuple[Strategy, str, str | OutputError]:
    """The strategy that was used, its answer, and why it could not run."""
    default: Strategy = "read-grep" if budget is None else "full-chunked"
    strategy = default if mode == "auto" else mode
    problem: str | OutputError
    try:
        async with asyncio.timeout(options.extract_timeout_s):
            strategy = _choose_strategy(document, request, mode, budget, options)
            return *await _run_strategy(document, request, strategy, budget, options), ""
    except OutputError as error:
        strategy, problem = "read-grep", error
    except TimeoutError:
        problem = f"it took over {options.extract_timeout_s:g} seconds"
    except ModelError as error:
        problem = f"{error.message}. {error.next_action}".strip(" .")
    except OSError as error:
        problem = f"the stored document cannot be read: {error.strerror or error}"
    return strategy, "", problem


def _choose_strategy(
    document: Document, request: str, mode: Mode, budget: ModelBudget | None, options: Extraction
) -> Strategy:
    if mode != "auto":
        return mode
    if budget is None:
        return "read-grep"
    if not document.binary:
        _, chunks = plan_chunks(document, request, budget, options.chunk_overlap_percent)
        if chunks <= options.max_chunks_for_full_mode:
            return "full-chunked"
    # Read and Grep work by lines: they are no use where lines are long.
    long_lines = document.bytes / max(1, document.lines) > options.average_line_bytes
    return "full-chunked" if long_lines else "read-grep"


async def _run_strategy(
    document: Document, request: str, strategy: Strategy, budget: ModelBudget | None, options: Extraction
) -> tuple[Strategy, str]:
    """The answer, and the strategy that gave it: what is read and searched here, without a model, is `read-grep`."""
    if document.binary:
        handle = document.handle if document.stored else ""
        return "read-grep", describe_binary(document.media_type, document.bytes, handle)
    if strategy == "truncate":
        return strategy, await run_limited(partial(truncate_file, document.path, options.answer_tokens))
    named = await run_limited(partial(NamedParts, INDEXES, document.path, request))
    # What the request names exactly costs no call of a model.
    exact = await run_limited(partial(_answer_exactly, document.path, named, options.answer_tokens))
    if exact is not None:
        return "read-grep", exact
    search = partial(_search, document.path, named, options.answer_tokens)
    if budget is None:
        return "read-grep", (NO_MODEL if strategy == "full-chunked" else "") + await run_limited(search)
    reply = await _ask_model(document, named.request, strategy, budget, options)
    if reply is not None:
        return strategy, reply
    note = f"The document has over {options.max_chunks} chunks, too many for full-chunked.\n"
    return "read-grep", note + await run_limited(search)


async def _ask_model(
    document: Document, request: str, strategy: Strategy, budget: ModelBudget, options: Extraction
) -> str | None:
    nonce = new_nonce()
    if strategy == "read-grep":
        return await extract_read_grep(
            document, request, budget, nonce, turns=READ_GREP_TURNS, tool_seconds=options.extract_timeout_s / 4
        )
    return await extract_chunked(
        document,
        request,
        budget,
        nonce,
        overlap=options.chunk_overlap_percent,
        parallel=options.extract_parallel,
        max_chunks=options.max_chunks,
    )


def _answer_exactly(path: Path, named: NamedParts, budget: int) -> str | None:
    return named.answer(budget) or exact_answer(INDEXES, path, named.request, budget)


def _search(path: Path, named: NamedParts, budget: int) -> str:
    return answer(INDEXES, path, named.request, budget) + named.missing_paths()


async def _fall_back(document: Document, options: Extraction, warning: str) -> tuple[str, bool]:
    """The truncated document under the warning; where not even that can be read, the failure."""
    hint = (
        "Below are the top and the bottom of the document. Ask again, or name a path, `lines 10-20` or a /regex/, "
        "which need no language model."
    )
    try:
        text = await run_limited(partial(truncate_file, document.path, options.answer_tokens))
    except OSError as error:
        return f"{warning} The document cannot be read: {error.strerror or error}.", True
    return f"{warning} {hint}\n\n{text}", False


def _emit_extracted(
    events: Events, document: Document, result: _ExtractResult, budget: ModelBudget | None, seconds: float
) -> None:
    events.emit(
        "output.extracted",
        handle=document.handle,
        tool=document.tool,
        strategy=result.strategy,
        failed=result.failed,
        model=budget.model.name if budget is not None else None,
        calls=budget.calls if budget is not None else 0,
        **structs.asdict(result.usage),
        seconds=round(seconds, 4),
    )


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
) -> _ExtractResult:
    if mode not in MODES:
        raise ConfigError(f"there is no mode {mode!r}", hints=MODES, next_action=f"use one of {', '.join(MODES)}")
    if not request.strip():
        raise ConfigError("the request is empty", next_action="say what to extract")
    with _open_document(document, exact=model is not None) as opened:
        return _run_in_loop(opened, request, mode, model, options)


@contextmanager
def _open_document(document: str | bytes | os.PathLike[str], *, exact: bool) -> Iterator[Document]:
    """The document as a file; a text is written to a private one that is removed afterwards."""
    if isinstance(document, os.PathLike):
        try:
            path = Path(document).resolve(strict=True)
            described = _describe_file(path, path.name, str(path), exact=exact)
        except OSError as error:
            raise OutputError(
                f"{Path(document)} cannot be read: {error.strerror or error}",
                next_action="give the path of a file that is there",
            ) from error
        yield described
        return
    raw = document.encode(errors="surrogatepass") if isinstance(document, str) else bytes(document)
    digest = hashlib.sha256(raw).hexdigest()
    store = OutputStore(Path(tempfile.gettempdir()))
    try:
        store.sweep()
        path = store.scratch() / _stable_handle(digest)
        path.write_bytes(raw)
        yield _describe_file(path, "text", digest, exact=exact)
    finally:
        store.close()


def _describe_file(path: Path, name: str, identity: str, *, exact: bool) -> Document:
    """The file with its counts. Tokens are counted only where a model needs them, else estimated."""
    lines, handle = LineCounter(), _stable_handle(identity)
    with open_regular_file(path) as file:
        head = file.read(HEAD)
        binary = is_binary(head)
        file.seek(0)
        while block := file.read(READ_BYTES):
            lines.add(block)
        if binary:
            return Document(path, name, "{}", handle, lines.bytes, 0, 0, _media_type_of(head))
        tokens = count_tokens(file.fileno(), lines.bytes, lambda: None) if exact else math.ceil(lines.bytes / 4)
    return Document(path, name, "{}", handle, lines.bytes, lines.lines, tokens)


def _stable_handle(identity: str) -> str:
    # The handle stands in the answer's header: the same document must give the same answer each time.
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"toolfold:{identity}"))


def _run_in_loop(
    document: Document, request: str, mode: Mode, model: Model | None, options: Extraction
) -> _ExtractResult:
    """Runs the extraction to its end, in a thread of its own where this one already runs a loop."""

    def work() -> _ExtractResult:
        return asyncio.run(extract_from(document, request, mode=mode, model=model, options=options))

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(work).result()


def extract_file(settings: Settings, document: Path | bytes, request: str, mode: Any) -> dict[str, Any]:
    """`toolfold extract`: the answer and its facts, with the configured model where there is one."""
    model = None
    if settings.model.name:
        from toolfold.models.factory import create_model

        model = create_model(settings.model)
    result = _extract_blocking(document, request, mode=mode, model=model, options=settings.outputs)
    return {
        "text": result.text,
        "strategy": result.strategy,
        "failed": result.failed,
        "warning": result.warning,
        "model": model.name if model is not None else None,
        "usage": structs.asdict(result.usage),
    }
