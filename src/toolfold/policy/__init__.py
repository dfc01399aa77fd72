"""Policy: which tools a caller may see and call, which calls a person must confirm, and which tools are trusted.

`access` compiles what the configuration says and hands out views; `view` is what one caller may see of the catalogue.
`trust` remembers what the owner accepted, with `description_scan`, which looks for what a description hides or tells a
model to do. Below lies the catalogue; search, disclosure and calls stand above.
"""

from msgspec import Struct

__all__ = ["Flag"]


class Flag(Struct, frozen=True):
    """One finding: its kind, as `flag:` patterns name it, what it is, and a few words around the place."""

    kind: str
    reason: str
    excerpt: str = ""
