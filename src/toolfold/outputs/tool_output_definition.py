"""`tool_output` as a model sees it: its definition, its modes, and the messages that point to it.

The texts are fixed to the letter: tests compare them, and prompts in the field quote them. Nothing here imports the
extraction, which loads numpy. Above: the faces, `service.py`, `split.py`.
"""

from typing import Any, Literal, get_args

from toolfold.types import Stored

__all__ = ["FAILED", "MODES", "Mode", "failure_text"]

Strategy = Literal["full-chunked", "read-grep", "truncate"]
Mode = Literal["auto", Strategy]

MODES: tuple[Mode, ...] = get_args(Mode)

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


# The first words of an answer that failed: the rest of its header names the tool, the handle and the strategy.
FAILED = "TOOL_OUTPUT FAILED FOR"


def header(tool: str, handle: str, strategy: str, *, failed: bool = False) -> str:
    """The first line of every answer."""
    opening = FAILED if failed else "ABSTRACT FROM TOOL OUTPUT"
    return f"{opening} {tool} WITH HANDLE {handle}, STRATEGY:{strategy}:"


def failure_text(error: dict[str, Any], *, handle: str, mode: str) -> str:
    """What a model reads of a request that could not be tried: an error as a face shows it, in plain text."""
    shown = " ".join(handle.split())[:80] or "(none)"
    hints = [hint for hint in error["hints"] if isinstance(hint, str)]
    lines = [f"{error['code']}: {error['message']}."]
    lines += [f"There is: {', '.join(hints)}."] if hints else []
    return "\n".join(
        [header(error.get("tool", "unknown"), shown, mode, failed=True), "", *lines, f"Next: {error['next_action']}."]
    )


def too_large_message(stored: Stored) -> str:
    """What the model reads instead of a result that was stored."""
    return (
        f"Tool output is too large ({stored.bytes} bytes, {stored.lines} lines, {stored.tokens} tokens).\n"
        f'Call tool_output(handle = "{stored.handle}", extract = "what to extract").\n'
        "Provide precise and detailed instructions in `extract` about what you are looking for."
    )
