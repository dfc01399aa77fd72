"""Texts that are made here and go to a model, such as what a script printed: bounded like any tool's result.

What is too large is stored, and the message that stands in for it tells how to get at it.
"""

from typing import TYPE_CHECKING

from toolfold.types import Caller

if TYPE_CHECKING:
    from toolfold.config.values import Limits
    from toolfold.gateway.storing import StoredOutputs


async def fitting(
    outputs: "StoredOutputs", limits: "Limits", text: str, *, tool_id: str, arguments: str, caller: Caller
) -> str:
    """The text itself, or the message about where it is kept."""
    if not _too_large(text, limits):
        return text
    from toolfold.outputs.message import too_large

    return too_large(await outputs.keep_text(text, tool_id=tool_id, arguments=arguments, caller=caller))


def _too_large(text: str, limits: "Limits") -> bool:
    size = len(text.encode(errors="replace"))
    if size > limits.tool_response_max_bytes:
        return True
    if size <= limits.tool_response_max_tokens:
        return False
    from toolfold import tokens

    return tokens.count(text) > limits.tool_response_max_tokens
