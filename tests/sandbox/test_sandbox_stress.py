"""Three hundred hostile or broken children in a row, a few at a time, while others are served."""

import asyncio
import contextlib
import gc
import os
import resource
from pathlib import Path

import pytest
from sandbox_lab import ENTRY, Lab
from test_sandbox_lifecycle import ask, descriptors, family, leftovers, until_gone, use_as_tempdir

from toolfold.errors import SandboxError
from toolfold.sandbox.base import MIB, ChildLimits
from toolfold.sandbox.zygote import Zygote

pytestmark = pytest.mark.load

HOSTILE = [
    ("while True: pass", {"timed_out"}),
    ("x = [bytearray(2**20) for _ in range(4096)]", {"out_of_memory"}),
    ("import os\nfor _ in range(50): os.write(1, b'x' * 2**20)", {"finished"}),
    ("import os\nos.fork()", {"finished"}),
    ("import ctypes\nctypes.string_at(0)", {"crashed"}),
    ("import os\nos.abort()", {"crashed"}),
    ("import os\nos._exit(9)", {"exited"}),
    ("import os\nos.write(3, b'\\xff' * 100)", {"protocol_violation"}),
    ("for n in range(10**5): open(str(n), 'w').close()", {"finished", "killed"}),
    (
        "import threading, time\nfor _ in range(100): threading.Thread(target=time.sleep, args=(9,)).start()",
        {"finished"},
    ),
    ("import os\nos.close(3)", {"exited", "finished"}),
    ("import sys\nsys.stdout = sys.stderr = None\ndel sys.modules['os']\nraise KeyboardInterrupt", {"exited"}),
]
LIMITS = ChildLimits(wall_s=0.4, memory_bytes=64 * MIB, scratch_files=100, threads=8, output_bytes=1000)


def files_in(folder: Path) -> list[Path]:
    return [each for each in folder.rglob("*") if each.is_file()]


@pytest.mark.requirement("U-10")
@pytest.mark.timeout(300)
async def test_three_hundred_hostile_children_leave_nothing(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_as_tempdir(tmp_path, monkeypatch)

    wrong: list[object] = []
    gate = asyncio.Semaphore(4)

    async def attack(zygote: Zygote, number: int) -> None:
        code, expected = HOSTILE[number % len(HOSTILE)]
        async with gate, await zygote.take() as child:
            with contextlib.suppress(SandboxError):
                await ask(child, code)
            child.close_input()
            end = await child.wait()
            if end.ending not in expected | {"timed_out"}:  # on a busy machine anything may take too long
                wrong.append((code, end))

    async def served(zygote: Zygote) -> int:
        async with await zygote.take() as child:
            count = 0
            while gate.locked() or count < 10:
                assert await ask(child, f"result = {count}") == {"result": count}
                count += 1
                await asyncio.sleep(0.01)
            return count

    async with Zygote(ENTRY, limits=LIMITS) as zygote, Zygote(ENTRY) as others:
        await zygote.start()
        async with await zygote.take() as first:
            session = os.getsid(first.pid)
        await asyncio.gather(*(attack(zygote, number) for number in range(len(HOSTILE))))
        gc.collect()
        before, memory = descriptors(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        async with asyncio.TaskGroup() as group:
            answers = group.create_task(served(others))
            for number in range(300):
                group.create_task(attack(zygote, number))
        assert answers.result() >= 10
        gc.collect()
        assert wrong == []
        assert len(descriptors()) <= len(before) + 16  # the children that wait, and the one that served
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 64 * 1024
        assert len(family(session)) <= 2 + 2 * 2 + 2
        assert files_in(tmp_path) == []
    await until_gone(session)
    assert leftovers() == set()
    lab.canaries.assert_whole()
