"""Text that can be stored, compared and shown: cut to a length, without lone surrogates."""

from collections.abc import Iterable


def truncate(text: str, limit: int) -> str:
    """At most `limit` characters; a cut text ends in an ellipsis, which counts."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def replace_surrogates(text: str) -> str:
    """Replaces lone surrogates, which a Python string may hold and UTF-8 cannot encode, by question marks."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def replace_surrogates_all(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(replace_surrogates, texts))
