"""What the model reads instead of a result that was too large: the exact words, with true counts.

Above: `keeping.py`. Further lines, where one result was stored as several, stand in content blocks of their own.
"""

from toolfold.types import Stored


def too_large(stored: Stored) -> str:
    """The message. Its form is fixed: models and tests know it to the letter."""
    return (
        f"Tool output is too large ({stored.bytes} bytes, {stored.lines} lines, {stored.tokens} tokens).\n"
        f'Call tool_output(handle = "{stored.handle}", extract = "what to extract").\n'
        "Provide precise and detailed instructions in `extract` about what you are looking for."
    )


def which(stored: Stored, what: str) -> str:
    """Says which part of a result a handle holds."""
    return f"Handle {stored.handle} holds {what} ({stored.media_type})."
