"""The tables of the PostgreSQL store, by version: made and brought forward by whichever gateway comes first.

Going back is not possible. A gateway of an earlier toolfold may go on with newer tables where those say so, so that
gateways can be replaced one by one.
"""

from pathlib import Path

import psycopg

from toolfold.errors import NotBuilt, StoreError
from toolfold.storage.postgres.connection import _Session

# One file a version. A file that was released never changes; a new one is added behind it.
MIGRATIONS = tuple(file.read_text("utf-8") for file in sorted(Path(__file__).with_name("migrations").glob("*.sql")))
# The oldest form whose gateways can work with these tables: raise it with a step that takes something away from them.
_USABLE_BY = 1
# Of PostgreSQL, as it numbers itself.
_OLDEST_SERVER = 140_000
# "toolfold" as a number: the lock of whoever makes the tables.
_LOCK = 0x746F6F6C666F6C64
_FORM = """
    CREATE TABLE toolfold_form (version integer NOT NULL, usable_by integer NOT NULL);
    INSERT INTO toolfold_form VALUES (0, 0)
"""
# By the rows of its catalogue: `to_regclass` may not have heard of what another made a moment ago.
_HAS_FORM = """
    SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname = 'toolfold_form' AND n.nspname = ANY(current_schemas(false))
"""


async def _prepare(session: _Session, shown: str, *, create: bool) -> None:
    """Sees that the tables are there in this version, and makes them or brings them forward where they are not."""
    _check_server(session, shown)
    version = await _known_version(session, shown)
    if version == 0 and not create:
        raise NotBuilt(f"there is no catalogue in {shown}", next_action="run `toolfold build`")
    if version < len(MIGRATIONS):
        await _migrate(session, shown)


def _check_server(session: _Session, shown: str) -> None:
    info = session.connection.info
    if info.server_version < _OLDEST_SERVER:
        raise StoreError(
            f"{shown} is PostgreSQL {info.server_version // 10_000}: this toolfold needs {_OLDEST_SERVER // 10_000}",
            next_action="upgrade PostgreSQL, or name another server in storage.url",
        )
    if info.parameter_status("server_encoding") != "UTF8":
        raise StoreError(
            f"the encoding of {shown} is {info.parameter_status('server_encoding')}, not UTF8",
            next_action="create the database with ENCODING 'UTF8' TEMPLATE template0",
        )


async def _known_version(session: _Session, shown: str) -> int:
    """The version of the tables, 0 where there are none; refuses those that this toolfold cannot use."""
    if not await session.run(_HAS_FORM):
        return 0
    version, usable_by = (await session.run("SELECT version, usable_by FROM toolfold_form"))[0]
    if usable_by > len(MIGRATIONS):
        raise StoreError(
            f"the tables in {shown} are of a newer toolfold: this one knows their form {len(MIGRATIONS)}, and"
            f" {usable_by} is the oldest that can use them",
            next_action="upgrade toolfold, or name another database in storage.url",
        )
    return int(version)


async def _migrate(session: _Session, shown: str) -> None:
    """All missing steps in one transaction. Others who come meanwhile wait, and find it done."""
    await session.run("BEGIN ISOLATION LEVEL READ COMMITTED", binary=False)
    await session.run("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    version = await _known_version(session, shown)
    try:
        if version == 0:
            await session.run(_FORM, binary=False)
        for step in MIGRATIONS[version:]:
            await session.run(step, binary=False)
    except StoreError as error:
        if isinstance(error.__cause__, psycopg.errors.DuplicateTable):
            raise StoreError(
                f"{shown} holds tables of another program: {error.__cause__}",
                next_action="name a database of toolfold's own, or give its user a schema of its own as search_path",
            ) from error
        raise
    if version < len(MIGRATIONS):
        await session.run("UPDATE toolfold_form SET version = %s, usable_by = %s", [len(MIGRATIONS), _USABLE_BY])
    await session.run("COMMIT")
