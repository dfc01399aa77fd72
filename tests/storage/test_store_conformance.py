"""The SQLite store passes the conformance kit."""

import asyncio
from pathlib import Path

import pytest

from toolfold.storage.base import Store
from toolfold.storage.sqlite import SqliteStore
from toolfold.testing.store_conformance import CHECKS, Check


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_sqlite_store_conforms(check: Check, tmp_path: Path) -> None:
    def open_store() -> Store:
        return SqliteStore(tmp_path / "home" / "catalogue.db")

    async def run() -> None:
        async with asyncio.timeout(60):
            await check(open_store)

    asyncio.run(run())
