"""What is particular to the SQLite file: its faults told as ours, its versions, its threads, its privacy."""

import asyncio
import sqlite3
import stat
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from toolfold.errors import NotBuilt, StoreBusy, StoreDamaged, StoreError, StoreFull
from toolfold.storage.base import Update
from toolfold.storage.sqlite import SqliteStore
from toolfold.storage.sqlite.connection import _MIGRATIONS, _store_error
from toolfold.testing.store_conformance import assert_one_generation, sample_tool, stamped_update


def opened(path: Path) -> Coroutine[Any, Any, None]:
    async def main() -> None:
        async with SqliteStore(path):
            pass

    return main()


def filled(path: Path) -> Path:
    async def main() -> None:
        async with SqliteStore(path) as store:
            await store.commit(stamped_update(1))

    asyncio.run(main())
    return path


def test_a_file_that_is_no_database_is_told_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.db"
    path.write_bytes(b"this is a letter, not a database. " * 100)
    with pytest.raises(StoreDamaged) as caught:
        asyncio.run(opened(path))
    assert str(path) in caught.value.message
    assert "toolfold build" in caught.value.next_action


def test_a_database_with_broken_pages_is_told_as_damaged(tmp_path: Path) -> None:
    path = filled(tmp_path / "catalogue.db")
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)

    async def read() -> None:
        async with SqliteStore(path) as store, store.snapshot() as view:
            await view.tools()

    with pytest.raises(StoreDamaged):
        asyncio.run(read())


def test_a_row_that_cannot_be_read_is_told_as_damage(tmp_path: Path) -> None:
    path = filled(tmp_path / "catalogue.db")
    with sqlite3.connect(path) as database:
        database.execute("UPDATE node SET record = '{'")
    database.close()

    async def read() -> None:
        async with SqliteStore(path) as store, store.snapshot() as view:
            await view.nodes()

    with pytest.raises(StoreDamaged):
        asyncio.run(read())


def test_the_file_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE bookmark (url TEXT)")
    database.close()
    before = path.read_bytes()
    with pytest.raises(StoreDamaged, match="another program"):
        asyncio.run(opened(path))
    assert path.read_bytes() == before


def test_the_file_of_a_newer_toolfold_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = filled(tmp_path / "catalogue.db")
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {len(_MIGRATIONS) + 1}")
    database.close()
    with pytest.raises(StoreError, match="newer toolfold") as caught:
        asyncio.run(opened(path))
    assert "upgrade" in caught.value.next_action


def test_a_missing_file_is_not_made_by_a_command_that_only_reads(tmp_path: Path) -> None:
    path = tmp_path / "home" / "catalogue.db"

    async def read() -> None:
        async with SqliteStore(path, create=False):
            pass

    with pytest.raises(NotBuilt) as caught:
        asyncio.run(read())
    assert "toolfold build" in caught.value.next_action
    assert not path.parent.exists()


def test_a_folder_that_cannot_be_made_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreError, match="cannot be made"):
        asyncio.run(opened(tmp_path / "file" / "catalogue.db"))


@pytest.mark.parametrize("name", ["n" * 300, "."], ids=["a name that is too long", "a folder"])
def test_a_path_that_can_be_no_file_is_a_store_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened") as caught:
        asyncio.run(opened(tmp_path / name))
    assert "--home" in caught.value.next_action


def test_a_locked_store_is_told_as_busy_while_readers_go_on(tmp_path: Path) -> None:
    path = filled(tmp_path / "catalogue.db")

    async def main() -> None:
        async with SqliteStore(path, busy_s=0.2) as store:
            holder = sqlite3.connect(path, isolation_level=None)
            try:
                holder.execute("BEGIN IMMEDIATE")
                commit = asyncio.create_task(store.commit(stamped_update(2)))
                async with store.snapshot() as view:
                    await assert_one_generation(view)
                with pytest.raises(StoreBusy):
                    await commit
            finally:
                holder.close()
            assert await store.commit(stamped_update(2)) == 2

    asyncio.run(main())


def test_a_full_disk_is_told_and_the_last_catalogue_stays(tmp_path: Path) -> None:
    path = filled(tmp_path / "catalogue.db")

    async def main() -> None:
        async with SqliteStore(path) as store:
            await store.put("warm", "up", b"")
            assert store._writer is not None
            store._writer.execute(
                "PRAGMA max_page_count = 20"
            )  # what SQLite says then is what a full disk makes it say
            big = sample_tool("big.tool", description="x" * 1_000_000)
            with pytest.raises(StoreFull) as caught:
                await store.commit(Update(based_on=1, at=2.0, tools=(big,)))
            assert "free some space" in caught.value.next_action
            async with store.snapshot() as view:
                await assert_one_generation(view)

    asyncio.run(main())


def test_a_store_that_may_only_be_read_is_told_as_such(tmp_path: Path) -> None:
    path = filled(tmp_path / "catalogue.db")
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        with pytest.raises(sqlite3.Error) as caught:
            database.execute("DELETE FROM tool")
    finally:
        database.close()
    error = _store_error(caught.value, path)
    assert "may only be read" in error.message
    assert "writable" in error.next_action


def test_closing_leaves_no_thread_and_only_the_one_private_file(tmp_path: Path) -> None:
    path = filled(tmp_path / "home" / "catalogue.db")
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("toolfold")] == []
    assert [one.name for one in path.parent.iterdir()] == ["catalogue.db"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_closed_store_says_so_and_ends_the_snapshots_that_were_open(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "catalogue.db")
    with pytest.raises(StoreError, match="not open"):
        await store.get("a", "b")
    async with store:
        await store.commit(stamped_update(1))
        async with store.snapshot() as view:
            await store.aclose()
            with pytest.raises(StoreError, match="snapshot is over"):
                await view.tools()
    await store.aclose()
    with pytest.raises(StoreError, match="not open"):
        await store.commit(stamped_update(2))


async def test_a_snapshot_is_over_when_it_is_left(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "catalogue.db") as store:
        async with store.snapshot() as view:
            pass
        with pytest.raises(StoreError, match="snapshot is over"):
            await view.servers()
