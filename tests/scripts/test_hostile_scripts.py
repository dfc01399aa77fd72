"""Hundreds of hostile and broken scripts in a row: other callers are answered throughout, and nothing is left."""

import asyncio
import os
import resource
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from script_kit import git, open_gateway

from toolfold import Gateway
from toolfold.config.sections import Scripts
from toolfold.errors import ScriptError

pytestmark = pytest.mark.load

ROUNDS = int(os.environ.get("TOOLFOLD_HOSTILE_ROUNDS", "6"))
"""Each runs every script once. 25 make a thousand."""
RAW = """
import os
log, = use_tools('git.git_log')
os.set_blocking(3, True)
def say(*bodies):
    data = memoryview(b''.join(len(body).to_bytes(4, 'big') + body for body in bodies))
    while data:
        data = data[os.write(3, data):]
"""
HOSTILE = {
    "loop": "while True: pass",
    "sleep": "import time\ntime.sleep(1000)",
    "deaf": "import signal, time\nfor n in {1, 2, 3, 10, 12, 13, 14, 15}: signal.signal(n, 1)\ntime.sleep(1000)",
    "memory": "x = []\nwhile True: x.append(bytearray(50_000_000))",
    "flood": "while True: print('x' * 65536)",
    "no newline": "import sys\nwhile True: sys.stdout.write('y' * 100_000)",
    "stderr": "import os\nfor _ in range(2000): os.write(2, b'z' * 10_000)",
    "fork": "import os\nwhile True: os.fork()",
    "threads": "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(100,)).start()",
    "exec": "import subprocess\nsubprocess.run(['/bin/sh', '-c', 'sleep 100'])",
    "segfault": "import ctypes\nctypes.string_at(0)",
    "abort": "import os\nos.abort()",
    "leave": "import os\nos._exit(3)",
    "recursion": "def f(): return f()\nf()",
    "deep repr": "x = []\nfor _ in range(100_000): x = [x]\nprint(x)",
    "junk": "import os\nos.write(3, os.urandom(1000))",
    "close": "import os, time\nos.close(3)\ntime.sleep(1000)",
    "close all": "import os\nfor n in range(64):\n    try: os.close(n)\n    except OSError: pass",
    "half frame": "import os, time\nos.write(3, b'\\x00\\x00\\x10\\x00abc')\ntime.sleep(1000)",
    "files": "n = 0\nwhile True:\n    open(f'f{n}', 'w').write('x' * 100_000)\n    n += 1",
    "one file": "f = open('f', 'wb')\nwhile True: f.write(bytes(1_000_000))",
    "raise": "raise BaseException('\\ud800' * 10)",
    "atexit": "import atexit, time\natexit.register(time.sleep, 1000)",
    "patched": "import builtins, sys\nbuiltins.len = None\nsys.stdout = None\nsys.modules.clear()",
    "syntax": "def f(:",
    "nul": "x = 1\0",
    "return": "return 1",
    "calls": "log, = use_tools('git.git_log')\nimport asyncio\nawait asyncio.gather(*(log() for _ in range(3000)))",
    "far too many": "log, = use_tools('git.git_log')\nimport asyncio\n"
    "await asyncio.gather(*(log() for _ in range(100_000)))",
    "far too deep": "log, = use_tools('git.git_log')\nx = 1\nfor _ in range(50_000): x = [x]\nawait log(max_count=x)",
    "huge frame": RAW + "say(b'x' * 15_000_000)",
    "large error": RAW + """say(b'{"op":"done","outcome":"failed","error":{"x":[' + b'[],' * 1_000_000 + b'1]}}')""",
    "large arguments": RAW
    + """say(b'{"op":"call","id":1,"tool":"git.git_log","args":[' + b'[],' * 1_000_000 + b'1]}')""",
    "frame flood": RAW + """say(*(b'{"op":"call","id":%d}' % n for n in range(1, 300_000)))""",
    "cancel flood": RAW + """while True: say(*[b'{"op":"cancel","id":1}'] * 5000)""",
    "control characters": "import os\nfor fd in (1, 2): os.write(fd, bytes(1 << 20))",
    "terminal codes": "import os\nfor fd in (1, 2): os.write(fd, b'\\x1b[' * (1 << 19))",
    "many words": "a\n" * 29_000,
    "cancelled": "log, = use_tools('git.git_log')\nimport asyncio\nx = asyncio.create_task(log())\n1 / 0",
    "fine": "log, = use_tools('git.git_log')\nlen((await log(max_count=2)).commits)",
}


def children() -> set[int]:
    task = Path(f"/proc/{os.getpid()}/task")
    found: set[int] = set()
    for thread in task.iterdir() if task.is_dir() else ():
        found |= {int(pid) for pid in (thread / "children").read_text().split()}
    return found


def files(folder: Path) -> set[str]:
    """All that lies below, but for what a database keeps beside itself."""
    found = (str(path.relative_to(folder)) for path in folder.rglob("*"))
    return {name for name in found if not name.endswith(("-wal", "-shm", "-journal"))}


def descriptors() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


@pytest.mark.requirement("U-10")
@pytest.mark.timeout(900)
def test_hundreds_of_hostile_scripts_hurt_nobody_and_leave_nothing(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    endings: Counter[tuple[str, str]] = Counter()
    answered = 0

    async def one(gateway: Gateway, name: str, gate: asyncio.Semaphore) -> None:
        async with gate:
            try:
                result = await gateway.run_script(HOSTILE[name], timeout_s=0.6)
            except ScriptError:
                endings[name, "refused"] += 1
            else:
                endings[name, result.outcome] += 1
                assert len(result.stdout) <= 200_000, "50,000 bytes, each written out"

    async def other_callers(gateway: Gateway, done: asyncio.Event) -> None:
        nonlocal answered
        while not done.is_set():
            async with asyncio.timeout(20):
                await gateway.call_tool("git.git_log", {"max_count": 1})
            answered += 1
            await asyncio.sleep(0.02)

    async def main() -> None:
        settings = Scripts(output_bytes=50_000, memory_bytes=512 << 20, scratch_bytes=8 << 20, calls=500, ready=4)
        async with open_gateway(tmp_path, [git()], settings) as gateway:
            await gateway.run_script("pass")
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            kept = files(tmp_path)
            done = asyncio.Event()
            others = asyncio.create_task(other_callers(gateway, done))
            gate = asyncio.Semaphore(6)
            await asyncio.gather(*(one(gateway, name, gate) for _ in range(ROUNDS) for name in HOSTILE))
            done.set()
            await others
            last = await gateway.run_script(HOSTILE["fine"])
            assert last.answer == 2
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            assert grown < 200_000, "KiB of memory more than before"
            assert files(tmp_path) == kept
            scratch = [path for base in temporary.iterdir() for path in base.iterdir()]
            assert len(scratch) <= settings.ready + 1, "folders of those that are over"
            assert not [path for folder in scratch for path in folder.iterdir()]

    open_before, children_before = descriptors(), children()
    asyncio.run(main())
    assert children() <= children_before
    assert files(temporary) == set()
    assert descriptors() <= open_before + 2
    assert sum(endings.values()) == ROUNDS * len(HOSTILE)
    assert answered > ROUNDS
    assert {name for name, _ in endings} == set(HOSTILE)
    for name, expected in {
        "loop": "timed_out",
        "deaf": "timed_out",
        "segfault": "crashed",
        "syntax": "refused",
    }.items():
        assert endings[name, expected] == ROUNDS, endings
    assert endings["fine", "finished"] + endings["fine", "timed_out"] == ROUNDS, endings
    assert endings["fine", "finished"], endings
