"""The definition of `tool_output`, as the model sees it. The schema is fixed: a test compares it to the letter."""

from typing import Any, Literal, get_args

from toolfold.outputs.document import Document
from toolfold.types import Stored

# --- What the model reads instead of a result that was too large: the exact words, with true counts.


def too_large_message(stored: Stored) -> str:
    """The message. Its form is fixed: models and tests know it to the letter."""
    return (
        f"Tool output is too large ({stored.bytes} bytes, {stored.lines} lines, {stored.tokens} tokens).\n"
        f'Call tool_output(handle = "{stored.handle}", extract = "what to extract").\n'
        "Provide precise and detailed instructions in `extract` about what you are looking for."
    )


def part_message(stored: Stored, what: str) -> str:
    """Says which part of a result a handle holds."""
    return f"Handle {stored.handle} holds {what} ({stored.media_type})."


# --- Which strategy a document gets when the caller leaves it open.

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


NAME = "tool_output"

DESCRIPTION = (
    "Extract what you need from a tool result that was too large to show and was stored under a handle. A path "
    "(`orders[3].email`), a range (`lines 100-140`) or a `/regex/` is answered exactly."
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["handle", "extract"],
    "properties": {
        "handle": {
            "type": "string",
            "minLength": 1,
            "description": (
                "UUID handle of the stored tool output (provided in the tool-result message: "
                'tool_output(handle = "<uuid>", ...)).'
            ),
        },
        "extract": {
            "type": "string",
            "minLength": 1,
            "description": (
                "Provide precise, detailed instructions about what you need from the tool output "
                "(be specific, include keys/fields/sections if known)."
            ),
        },
        "mode": {
            "type": "string",
            "enum": list(MODES),
            "description": (
                "Optional override. auto=module decides; full-chunked=LLM chunk+reduce; read-grep=dynamic sub-agent "
                "with Read/Grep; truncate=keeps top and bottom, truncates in the middle."
            ),
        },
    },
}
