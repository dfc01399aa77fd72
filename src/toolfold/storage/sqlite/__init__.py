"""The default engine: one SQLite file, nothing to set up. See `store.py` for its guarantees."""

from toolfold.storage.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
