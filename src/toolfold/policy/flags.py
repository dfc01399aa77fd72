"""What the check of a tool's texts finds, as a value. The check itself is `scanning.py`, loaded only where it runs."""

from msgspec import Struct


class Flag(Struct, frozen=True):
    """One finding: its kind, as `flag:` patterns name it, what it is, and a few words around the place."""

    kind: str
    reason: str
    excerpt: str = ""
