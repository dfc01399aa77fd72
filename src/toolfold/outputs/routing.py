"""Which strategy a document gets when the caller leaves it open.

Whole documents that fit the model in few chunks, and documents of long lines, are read in chunks: lines are no use to
Read and Grep there. All others are searched. Without a model there is no window, so only the lines decide.
"""

from typing import Literal, get_args

from toolfold.outputs.document import Document

Strategy = Literal["full-chunked", "read-grep", "truncate"]
Mode = Literal["auto", Strategy]
"""What a caller may ask for."""

MODES: tuple[Mode, ...] = get_args(Mode)


def route(document: Document, *, chunks: int | None, max_chunks: int, average_line_bytes: int) -> Strategy:
    """`chunks` is how many of the model's chunks the document takes; `None` where there is no model."""
    if chunks is not None and chunks <= max_chunks:
        return "full-chunked"
    if document.bytes / max(1, document.lines) > average_line_bytes:
        return "full-chunked"
    return "read-grep"
