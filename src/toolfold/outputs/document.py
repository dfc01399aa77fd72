"""A stored document as extraction sees it: where it lies, where it came from, how large it is.

Above: extraction. Below: the file system. Nothing here knows sessions or who may read; the store does.
"""

from pathlib import Path

from msgspec import Struct


class Document(Struct, frozen=True):
    """One file to extract from. `path.name` is what a sub-agent calls it: for a stored output, the handle."""

    path: Path
    tool: str
    arguments: str
    """The arguments of the call that made it, verbatim JSON."""
    handle: str
    bytes: int
    lines: int
    tokens: int
    media_type: str = "text/plain"

    @property
    def binary(self) -> bool:
        """Whether it is no text at all, so that a language model could make nothing of it: no tokens were counted."""
        return self.bytes > 0 and self.tokens == 0
