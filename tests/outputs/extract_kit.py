"""What the tests of extraction share: a document in a folder of its own, and a way to run one extraction."""

import asyncio
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toolfold import tokens
from toolfold.config.sections import Extraction
from toolfold.events import Event, Events
from toolfold.model import Model, Prompt
from toolfold.outputs.document import Document
from toolfold.outputs.extraction import _ExtractResult, extract_from
from toolfold.outputs.tool_output_definition import Mode


def stored(folder: Path, content: str | bytes, *, tool: str = "shop.list_orders") -> Document:
    """A document as the store would hand it over."""
    raw = content.encode() if isinstance(content, str) else content
    # Without digits: a test that looks for "497" in an answer would find it in some random handle, one run in fifty.
    handle = str(uuid.uuid4()).translate(str.maketrans("0123456789", "abcdefabcd"))
    path = folder / handle
    path.write_bytes(raw)
    lines = raw.count(b"\n") + (raw[-1:] not in {b"", b"\n"})
    counted = tokens.count(raw.decode(errors="replace")) if len(raw) < 2_000_000 else len(raw) // 4
    return Document(path, tool, '{"limit": 5}', handle, len(raw), lines, counted)


def ask(
    document: Document,
    request: str,
    *,
    mode: Mode = "auto",
    model: Model | None = None,
    heard: list[Event] | None = None,
    **options: Any,
) -> _ExtractResult:
    events = Events()
    if heard is not None:
        events.subscribe(heard.append)
    return asyncio.run(
        extract_from(document, request, mode=mode, model=model, options=Extraction(**options), events=events)
    )


def nonce_of(prompt: Prompt) -> str:
    """The nonce that a prompt's system message names."""
    found = re.search(r"<ai-agent-([0-9a-f]+)-FINAL", prompt.messages[0].content)
    assert found is not None
    return found[1]


def reporting(make: Callable[[Prompt], str]) -> Callable[[Prompt], str]:
    """A model's function that puts what `make` says into the wrapper."""

    def answer(prompt: Prompt) -> str:
        nonce = nonce_of(prompt)
        return f'<ai-agent-{nonce}-FINAL format="text">{make(prompt)}</ai-agent-{nonce}-FINAL>'

    return answer
