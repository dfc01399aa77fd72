"""`toolfold.extract`: a question to any text, bytes or file, without a gateway. Blocking, for people's own programs."""

import asyncio
import hashlib
import math
import os
import tempfile
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from toolfold.config.values import Extraction
from toolfold.errors import ConfigError, OutputError
from toolfold.model import Model
from toolfold.outputs.counting import Lines, count_tokens
from toolfold.outputs.document import Document
from toolfold.outputs.extraction import DEFAULTS, Extract, extract_from
from toolfold.outputs.local.formats import HEAD, is_binary
from toolfold.outputs.plainfile import open_plain
from toolfold.outputs.routing import MODES, Mode

BLOCK = 1 << 20
BINARY = "application/octet-stream"


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
    return extract_blocking(document, request, mode=mode, model=model).text


def extract_blocking(
    document: str | bytes | os.PathLike[str],
    request: str,
    *,
    mode: Mode = "auto",
    model: Model | None = None,
    options: Extraction = DEFAULTS,
) -> Extract:
    """The same with its facts: strategy, failure, use of the model."""
    if mode not in MODES:
        raise ConfigError(f"there is no mode {mode!r}", hints=MODES, next_action=f"use one of {', '.join(MODES)}")
    if not request.strip():
        raise ConfigError("the request is empty", next_action="say what to extract")
    with as_document(document, exact=model is not None) as made:
        return in_own_loop(made, request, mode, model, options)


@contextmanager
def as_document(given: str | bytes | os.PathLike[str], *, exact: bool) -> Iterator[Document]:
    """The document as a file; a text is written to a private one that is removed afterwards."""
    if isinstance(given, os.PathLike):
        yield describe_path(Path(given), exact=exact)
        return
    raw = given.encode(errors="surrogatepass") if isinstance(given, str) else bytes(given)
    known_as = hashlib.sha256(raw).hexdigest()
    with tempfile.TemporaryDirectory(prefix="toolfold-extract-") as folder:
        path = Path(folder) / str(identity(known_as))
        path.write_bytes(raw)
        yield describe(path, "text", known_as, exact=exact)


def describe_path(given: Path, *, exact: bool) -> Document:
    try:
        path = given.resolve(strict=True)
        return describe(path, path.name, str(path), exact=exact)
    except OSError as error:
        raise OutputError(
            f"{given} cannot be read: {error.strerror or error}", next_action="give the path of a file that is there"
        ) from error


def describe(path: Path, name: str, known_as: str, *, exact: bool) -> Document:
    """The file with its counts. Tokens are counted only where a model needs them; else they are estimated."""
    lines, handle = Lines(), str(identity(known_as))
    with open_plain(path) as file:
        binary = is_binary(file.read(HEAD))
        file.seek(0)
        while block := file.read(BLOCK):
            lines.add(block)
        if binary:
            return Document(path, name, "{}", handle, lines.bytes, 0, 0, BINARY)
        tokens = count_tokens(file.fileno(), lines.bytes, lambda: None) if exact else math.ceil(lines.bytes / 4)
    return Document(path, name, "{}", handle, lines.bytes, lines.lines, tokens)


def identity(known_as: str) -> uuid.UUID:
    """The same document has the same handle each time."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"toolfold:{known_as}")


def in_own_loop(document: Document, request: str, mode: Mode, model: Model | None, options: Extraction) -> Extract:
    """Runs the extraction to its end, in a thread of its own where this one already runs a loop."""

    def work() -> Extract:
        return asyncio.run(extract_from(document, request, mode=mode, model=model, options=options))

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(work).result()
