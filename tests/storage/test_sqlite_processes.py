"""Several real processes on one file: no reader sees half a commit, and a killed writer leaves the last whole one."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from toolfold.storage.sqlite import SqliteStore
from toolfold.testing.store_conformance import assert_one_generation, stamped_update

SCRIPT = Path(__file__).with_name("commit_process.py")


@contextmanager
def writer(path: Path, *, last: int, tools: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, str(SCRIPT), str(path), str(last), str(tools)], stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_readers_in_another_process_see_only_whole_generations(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.db"

    async def read_until(last: int) -> set[int]:
        seen = set()
        async with SqliteStore(path) as store, asyncio.timeout(60):
            while last not in seen:
                async with store.snapshot() as view:
                    await assert_one_generation(view, tools=100)
                    seen.add(view.generation)
        return seen

    with writer(path, last=60, tools=100) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert 60 in asyncio.run(read_until(60))
        assert process.wait(timeout=60) == 0


def test_a_writer_killed_in_the_middle_leaves_the_last_whole_generation(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.db"

    async def generation() -> int:
        async with SqliteStore(path) as store, store.snapshot() as view:
            await assert_one_generation(view, tools=1500)
            return view.generation

    for _ in range(4):
        with writer(path, last=1_000_000, tools=1500) as process:
            assert process.stdout is not None
            told = int(process.stdout.readline())
            process.kill()  # the next commit, of 1,500 tools, is under way
            process.wait(timeout=60)
            rest = process.stdout.read().split()
        found = asyncio.run(generation())
        assert found >= (int(rest[-1]) if rest else told)

    async def goes_on() -> None:
        async with SqliteStore(path) as store:
            async with store.snapshot() as view:
                last = view.generation
            assert await store.commit(stamped_update(last + 1, tools=1500)) == last + 1

    asyncio.run(goes_on())
    assert asyncio.run(generation()) > 4


def test_processes_that_make_the_file_at_the_same_moment_agree(tmp_path: Path) -> None:
    path = tmp_path / "new" / "catalogue.db"
    script = (
        "import asyncio, sys\n"
        "from toolfold.storage.sqlite import SqliteStore\n"
        "async def main():\n"
        "    sys.stdin.readline()\n"
        "    async with SqliteStore(sys.argv[1]) as store:\n"
        "        await store.put('started', sys.argv[2], b'yes')\n"
        "asyncio.run(main())\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(path), str(i)], stdin=subprocess.PIPE) for i in range(4)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    try:
        assert [process.wait(timeout=60) for process in processes] == [0, 0, 0, 0]
    finally:
        for process in processes:
            process.kill()
            process.communicate()

    async def started() -> list[str]:
        async with SqliteStore(path) as store:
            return sorted(await store.items("started"))

    assert asyncio.run(started()) == ["0", "1", "2", "3"]
