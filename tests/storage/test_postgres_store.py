"""What the PostgreSQL engine does when things go wrong: told clearly, never hung, and well again by itself."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Iterator

import psycopg
import pytest

from postgres_server import PASSWORD, PostgresServer
from toolfold.config.sections import _Storage
from toolfold.errors import NotBuilt, StoreBusy, StoreDamaged, StoreError, StoreFull
from toolfold.storage.postgres import PostgresStore, schema
from toolfold.testing.store_conformance import stamped_update


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """One that tests may stop and start."""
    with PostgresServer() as server:
        yield server


async def refusal(url: str, **options: float) -> StoreError:
    """What opening a store there is told. It takes no longer than it may, and no password is in it."""
    begun = time.monotonic()
    with pytest.raises(StoreError) as caught:
        async with PostgresStore(url, **{"timeout_s": 3.0, **options}):  # type: ignore[arg-type]
            pass
    assert time.monotonic() - begun < 10
    assert caught.value.next_action
    assert PASSWORD not in str(caught.value)
    assert "s3cret" not in f"{caught.value} {caught.value.message} {caught.value.next_action}"
    return caught.value


async def test_whoever_cannot_come_in_is_told_why(postgres: PostgresServer, database: str) -> None:
    name = database.rpartition("/")[2]
    assert "password" in (await refusal(postgres.url(name, password="s3cret"))).message
    assert "no such database" in (await refusal(postgres.url("nowhere"))).message
    assert "wants a password" in (await refusal(f"postgresql://postgres@127.0.0.1:{postgres.port}/{name}")).message
    assert "cannot be reached" in (await refusal("postgresql://me:s3cret@127.0.0.1:1/x")).message
    assert "cannot be read" in (await refusal("postgresql://me:s3cret@b@127.0.0.1/x")).message
    assert "cannot be read" in (await refusal("postgresql://me:s3cret@127.0.0.1/x?nonsense=s3cret")).message


async def test_a_port_that_never_answers_is_given_up() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        error = await refusal(f"postgresql://me:s3cret@127.0.0.1:{silent.getsockname()[1]}/x", timeout_s=0.5)
    assert "cannot be reached" in error.message


async def test_rights_that_are_missing_are_named(postgres: PostgresServer, database: str) -> None:
    name = database.rpartition("/")[2]
    postgres.execute("DROP ROLE IF EXISTS plain; CREATE ROLE plain LOGIN PASSWORD 's3cret'")
    url = postgres.url(name, user="plain", password="s3cret")
    try:
        error = await refusal(url)
        assert "permission denied" in error.message
        assert "docs/postgres.md" in error.next_action
        # What just closed may still count, so whoever holds one comes before there is a limit.
        with psycopg.connect(url):
            postgres.execute("ALTER ROLE plain CONNECTION LIMIT 1")
            assert "no connection left" in (await refusal(url)).message
        postgres.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        assert "standby" in (await refusal(database)).message
    finally:
        postgres.execute("DROP ROLE plain")


async def test_a_server_or_database_of_the_wrong_kind_is_refused(
    postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    latin = postgres.create_database("ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        assert "LATIN1, not UTF8" in (await refusal(postgres.url(latin))).message
    finally:
        postgres.drop_database(latin)
    with monkeypatch.context() as patch:
        patch.setattr(schema, "_OLDEST_SERVER", 990_000)
        assert "needs 99" in (await refusal(database)).message
    with psycopg.connect(database) as other:
        other.execute("CREATE TABLE tool (somebody integer)")
    assert "tables of another program" in (await refusal(database)).message
    assert not postgres.execute("SELECT 1 FROM pg_tables WHERE tablename = 'state'", database.rpartition("/")[2])
    with pytest.raises(NotBuilt):
        async with PostgresStore(database, create=False):
            pass


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("disk_full", StoreFull),
        ("serialization_failure", StoreBusy),
        ("deadlock_detected", StoreBusy),
        ("insufficient_privilege", StoreError),
        ("undefined_table", StoreDamaged),
        ("internal_error", StoreError),
    ],
)
async def test_what_postgres_refuses_is_translated(
    postgres: PostgresServer, database: str, code: str, kind: type[StoreError]
) -> None:
    async with PostgresStore(database) as store:
        await store.put("a", "b", b"c")
        postgres.execute(
            f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE {code}; END$$;"
            "CREATE TRIGGER refuse BEFORE INSERT ON state FOR EACH ROW EXECUTE FUNCTION refuse();"
            "CREATE TRIGGER refuse BEFORE INSERT ON server FOR EACH ROW EXECUTE FUNCTION refuse()",
            database.rpartition("/")[2],
        )
        with pytest.raises(StoreError) as caught:
            await store.put("a", "b", b"d")
        assert type(caught.value) is kind
        assert caught.value.next_action
        with pytest.raises(kind):
            await store.commit(stamped_update(1))
        async with store.snapshot() as view:
            assert view.generation == 0
            assert await view.tool_ids() == []
        assert await store.get("a", "b") == b"c"


@pytest.mark.parametrize("version", range(len(schema.MIGRATIONS)))
async def test_tables_of_every_earlier_version_are_brought_forward(database: str, version: int) -> None:
    if version:
        with psycopg.connect(database) as connection:
            connection.execute(schema._FORM.encode())
            for step in schema.MIGRATIONS[:version]:
                connection.execute(step.encode())
            connection.execute("UPDATE toolfold_form SET version = %s, usable_by = 1", [version])
    async with PostgresStore(database) as store:
        assert await store.commit(stamped_update(1)) == 1
    with psycopg.connect(database) as connection:
        found = connection.execute("SELECT version, usable_by FROM toolfold_form").fetchall()
    assert found == [(len(schema.MIGRATIONS), schema._USABLE_BY)]


async def test_many_gateways_that_start_at_once_make_the_tables_once(database: str) -> None:
    async def start(number: int) -> None:
        async with PostgresStore(database, connections=2) as store:
            await store.put("started", str(number), b"")

    await asyncio.gather(*(start(number) for number in range(20)))
    async with PostgresStore(database) as store:
        assert len(await store.items("started")) == 20
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM toolfold_form").fetchone() == (1,)


async def test_newer_tables_are_used_where_they_say_so_and_refused_where_they_do_not(database: str) -> None:
    async with PostgresStore(database) as store:
        await store.commit(stamped_update(1))
    known = len(schema.MIGRATIONS)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("UPDATE toolfold_form SET version = %s, usable_by = %s", [known + 1, known])
        async with PostgresStore(database) as store:
            assert await store.commit(stamped_update(2)) == 2
        connection.execute("UPDATE toolfold_form SET usable_by = %s", [known + 1])
        assert "newer toolfold" in (await refusal(database)).message
        assert connection.execute("SELECT version FROM toolfold_form").fetchone() == (known + 1,)


async def test_connections_that_are_cut_while_idle_are_replaced_unnoticed(
    postgres: PostgresServer, database: str
) -> None:
    async with PostgresStore(database) as store:
        for number in range(5):
            await asyncio.gather(*(store.put("a", str(n), b"%d" % number) for n in range(5)))
            cut = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE datname = '{}'"
            assert postgres.execute(cut.format(database.rpartition("/")[2]))[0][0] > 0


async def test_more_readers_than_connections_take_turns_even_where_each_needs_two(database: str) -> None:
    async with PostgresStore(database, connections=2, timeout_s=5) as store:
        await store.commit(stamped_update(1))
        entered = asyncio.Barrier(2)

        async def read(number: int) -> None:
            async with store.snapshot() as view:
                if number < 2:
                    await entered.wait()  # both connections are taken
                await store.put("seen", str(number), b"")
                assert len(await view.tool_ids()) == 40

        await asyncio.gather(*(read(number) for number in range(30)))
        assert len(await store.items("seen")) == 30


async def test_whoever_gets_no_connection_in_time_is_told(database: str) -> None:
    async with PostgresStore(database, connections=2, timeout_s=0.5) as store:
        entered, enough = asyncio.Barrier(3), asyncio.Event()

        async def hold() -> None:
            async with store.snapshot():
                await entered.wait()
                await enough.wait()

        holders = [asyncio.create_task(hold()) for _ in range(2)]
        await entered.wait()
        with pytest.raises(StoreBusy, match="in use"):
            await store.get("a", "b")
        enough.set()
        await asyncio.gather(*holders)
        assert await store.get("a", "b") is None


async def test_a_lock_that_is_not_given_back_holds_nobody_for_ever(database: str) -> None:
    async with PostgresStore(database, timeout_s=1) as store:
        with psycopg.connect(database) as other:
            other.execute("SELECT version FROM toolfold_form FOR UPDATE")
            begun = time.monotonic()
            with pytest.raises(StoreBusy):
                await store.commit(stamped_update(1))
            assert time.monotonic() - begun < 5
        assert await store.commit(stamped_update(1)) == 1


async def test_a_server_that_stops_answering_is_left_and_found_again(own_server: PostgresServer) -> None:
    name = own_server.create_database()
    async with PostgresStore(own_server.url(name), timeout_s=1) as store:
        await store.put("a", "b", b"1")
        frozen = own_server.processes()
        for process in frozen:
            os.kill(process, signal.SIGSTOP)
        try:
            begun = time.monotonic()
            with pytest.raises(StoreError):
                await store.get("a", "b")
            with pytest.raises(StoreError):
                async with store.snapshot():
                    pass
            assert time.monotonic() - begun < 8
        finally:
            for process in frozen:
                os.kill(process, signal.SIGCONT)
        async with asyncio.timeout(30):
            while True:
                try:
                    assert await store.get("a", "b") == b"1"
                except StoreError:
                    await asyncio.sleep(0.1)
                else:
                    break


async def test_a_server_that_is_restarted_is_found_again_and_nothing_written_meanwhile_is_missed(
    own_server: PostgresServer,
) -> None:
    url = own_server.url(own_server.create_database())
    async with PostgresStore(url) as one, PostgresStore(url) as other:
        await other.wait_changed()
        await one.put("a", "b", b"1")
        async with asyncio.timeout(10):
            while await other.get("a", "b") != b"1":
                await other.wait_changed()
        async with one.snapshot() as view:
            await asyncio.to_thread(own_server.stop)
            with pytest.raises(StoreError):
                await view.tools()
        begun = time.monotonic()
        for _ in range(20):
            with pytest.raises(StoreError, match="cannot be reached"):
                await one.put("a", "b", b"2")
        assert time.monotonic() - begun < 10, "not one of them waited for the time limit while it is away"
        await asyncio.to_thread(own_server.start)
        await asyncio.sleep(0.5)  # what could not be reached is not asked again sooner
        await one.put("a", "b", b"3")
        async with asyncio.timeout(30):
            while await other.get("a", "b") != b"3":
                await other.wait_changed()
            for number in range(3):
                await one.put("a", "c", b"%d" % number)
                while await other.get("a", "c") != b"%d" % number:
                    await other.wait_changed()


async def test_each_task_that_waits_is_told(database: str) -> None:
    async with PostgresStore(database) as one, PostgresStore(database) as other:
        first = [asyncio.create_task(other.wait_changed()) for _ in range(3)]
        await asyncio.wait_for(asyncio.gather(*first), 10)

        async def follow(wanted: bytes) -> None:
            while await other.get("a", "b") != wanted:
                await other.wait_changed()

        following = [asyncio.create_task(follow(b"x")) for _ in range(3)]
        await one.put("a", "b", b"x")
        await asyncio.wait_for(asyncio.gather(*following), 10)


async def test_what_a_gateway_writes_itself_is_no_news(database: str) -> None:
    async with PostgresStore(database) as store:
        await store.wait_changed()
        waiting = asyncio.create_task(_twice(store))
        async with asyncio.timeout(10):
            await store.put("a", "b", b"x")
            await store.commit(stamped_update(1))
            await asyncio.sleep(0.3)
        assert not waiting.done()
        waiting.cancel()


async def _twice(store: PostgresStore) -> None:
    await store.wait_changed()  # of a new task, the first returns at once
    await store.wait_changed()


def test_no_printed_form_of_the_settings_holds_the_address() -> None:
    storage = _Storage(url="postgresql://me:s3cret@host/x", listen_url="postgresql://me:s3cret@host/x")
    assert "s3cret" not in f"{storage!r} {storage}"
