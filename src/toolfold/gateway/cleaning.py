"""Text as it can be kept and compared: without halves of characters, which a Python string may hold and UTF-8 not."""

from collections.abc import Iterable


def clean(text: str) -> str:
    """Half a character becomes a question mark; all else stays."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def cleaned(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(clean, texts))
