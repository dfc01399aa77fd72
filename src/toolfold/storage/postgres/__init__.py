"""The engine that several gateways share: a PostgreSQL database. See `store.py` for its guarantees."""

from toolfold.storage.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
