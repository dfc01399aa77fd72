"""The PostgreSQL engine through a real pgbouncer in transaction mode."""

import asyncio
import logging
from collections.abc import Iterator

import pytest

from postgres_server import Pooler, PostgresServer
from toolfold.storage.postgres import PostgresStore
from toolfold.testing.store_conformance import CHECKS, Check


@pytest.fixture(scope="module")
def pooler(postgres: PostgresServer) -> Iterator[Pooler]:
    with Pooler(postgres) as pooler:
        yield pooler


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_store_conforms_through_a_pooler(check: Check, pooler: Pooler, database: str) -> None:
    async with asyncio.timeout(60):
        await check(lambda: PostgresStore(pooler.url(database)))


@pytest.mark.parametrize("direct", [True, False])
async def test_news_come_by_a_direct_connection_or_by_looking(
    pooler: Pooler, database: str, direct: bool, caplog: pytest.LogCaptureFixture
) -> None:
    url, listen_url = pooler.url(database), database if direct else ""
    with caplog.at_level(logging.WARNING, "toolfold.storage"):
        async with PostgresStore(url) as one, PostgresStore(url, listen_url=listen_url) as other, asyncio.timeout(30):
            await other.wait_changed()
            for number in range(3):
                await one.put("a", "b", b"%d" % number)
                while await other.get("a", "b") != b"%d" % number:
                    await other.wait_changed()
            if not direct:
                while not caplog.messages:
                    await other.wait_changed()
                    await one.put("a", "b", b"x")
    assert any("passes no notifications on" in message for message in caplog.messages) is not direct
