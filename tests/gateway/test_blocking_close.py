"""Closing the blocking form while other threads are in it: each of them hears so, and none waits for ever."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from toolfold import BlockingGateway, Settings
from toolfold.errors import StoreError

ASKING = 8


@pytest.mark.requirement("G-02")
def test_threads_that_wait_when_it_is_closed_hear_that_it_was(tmp_path: Path) -> None:
    gateway = BlockingGateway(Settings(home=tmp_path)).__enter__()
    began = threading.Semaphore(0)

    async def endless() -> None:
        began.release()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(ASKING) as threads:
        waiting = [threads.submit(lambda: gateway.run(endless())) for _ in range(ASKING)]
        for _ in waiting:
            assert began.acquire(timeout=10)
        gateway.close()
        for one in waiting:
            with pytest.raises(StoreError, match="was closed"):
                one.result(10)
    assert "toolfold" not in {thread.name for thread in threading.enumerate()}


def test_threads_that_go_on_asking_while_it_is_closed_all_come_to_an_end(tmp_path: Path) -> None:
    gateway = BlockingGateway(Settings(home=tmp_path)).__enter__()
    began = threading.Semaphore(0)

    def ask_on() -> StoreError:
        try:
            while True:
                began.release()
                gateway.run(asyncio.sleep(0))
        except StoreError as error:
            return error

    with ThreadPoolExecutor(ASKING) as threads:
        asking = [threads.submit(ask_on) for _ in range(ASKING)]
        for _ in asking:
            assert began.acquire(timeout=10)
        gateway.close()
        told = {one.result(10).message for one in asking}
    assert told <= {"the gateway is not open", "the gateway was closed before this was done"}
