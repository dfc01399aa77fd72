"""Which engine the configuration asks for. Only its own is imported: a SQLite file needs no driver of PostgreSQL."""

from toolfold.config import Settings, fill
from toolfold.errors import ConfigError
from toolfold.storage.base import Store


def open_store(settings: Settings, create: bool) -> Store:
    """The store of the configuration, to be entered with `async with`. With `create`, its folder and tables are made.

    Raises `SecretNotFound` for a reference in `storage.url` that leads nowhere.
    """
    if create:
        settings.make_home()
    storage = settings.storage
    if not storage.url:
        from toolfold.storage.sqlite import SqliteStore

        return SqliteStore(settings.home / "toolfold.sqlite", create=create)
    url, listen_url = fill(storage.url, "[storage]"), fill(storage.listen_url, "[storage]")
    if not url.startswith(("postgresql://", "postgres://")):
        raise ConfigError(
            "storage.url does not begin with postgresql://",
            next_action='write url = "postgresql://USER@HOST/DATABASE", or remove it for a SQLite file',
        )
    try:
        from toolfold.storage.postgres import PostgresStore
    except ImportError as error:
        raise ConfigError(
            f"storage.url names PostgreSQL, whose driver cannot be loaded: {error}",
            next_action="run: pip install 'toolfold[postgres]'",
        ) from error
    return PostgresStore(
        url, listen_url=listen_url, connections=storage.connections, timeout_s=storage.timeout_s, create=create
    )
