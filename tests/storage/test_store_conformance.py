"""Both engines pass the conformance kit."""

import asyncio
from pathlib import Path

import pytest

from toolfold.storage.postgres import PostgresStore
from toolfold.storage.sqlite import SqliteStore
from toolfold.testing.store_conformance import CHECKS, Check, OpenStore


async def _run(check: Check, open_store: OpenStore) -> None:
    async with asyncio.timeout(60):
        await check(open_store)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_sqlite_store_conforms(check: Check, tmp_path: Path) -> None:
    await _run(check, lambda: SqliteStore(tmp_path / "home" / "catalogue.db"))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_postgres_store_conforms(check: Check, database: str) -> None:
    await _run(check, lambda: PostgresStore(database))
