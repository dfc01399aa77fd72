"""The definition of `tool_output`, as the model sees it. The schema is fixed: a test compares it to the letter."""

from typing import Any

from toolfold.outputs.routing import MODES

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
