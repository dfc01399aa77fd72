"""What a child may use is bounded, and its end has the right name, whatever it does to avoid it."""

import os
import signal

import pytest
from sandbox_lab import CONFINED, Lab

from toolfold.sandbox.base import MIB, ChildLimits

BRIEF = ChildLimits(wall_s=0.5)
SMALL = ChildLimits(
    wall_s=20, memory_bytes=128 * MIB, scratch_bytes=4 * MIB, scratch_files=200, output_bytes=1000, threads=16
)
FORKING = ChildLimits(wall_s=20, memory_bytes=128 * MIB, threads=16, may_fork=True)
WAYS = pytest.mark.parametrize("way", CONFINED)

ENDLESS = {
    "a loop": "while True: pass",
    "sleep": "import time\ntime.sleep(600)",
    "a loop in C": "sum(iter(int, 1))",
    "a loop that swallows every exception": """
while True:
    try:
        while True: pass
    except BaseException: pass
""",
    "every signal ignored": """
import signal, time
for number in range(1, 64):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
time.sleep(600)
""",
    "a regular expression": "import re\nre.match('(a+)+$', 'a' * 60 + 'b')",
    "a lock held twice": "import threading\nl = threading.Lock()\nl.acquire()\nl.acquire()",
}


@pytest.mark.requirement("U-10")
@WAYS
@pytest.mark.parametrize("code", ENDLESS.values(), ids=ENDLESS.keys())
def test_what_never_ends_is_ended_by_the_clock_of_the_host(lab: Lab, code: str, way: str) -> None:
    outcome = lab.attack(way, code, limits=BRIEF)
    assert (outcome.answer, outcome.exit.ending) == (None, "timed_out")


@WAYS
def test_processor_time_has_a_limit_of_its_own(lab: Lab, way: str) -> None:
    ignoring = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    limits = ChildLimits(wall_s=30, cpu_s=1)
    assert lab.attack(way, "while True: pass", limits=limits).exit.ending == "timed_out"
    if way == "namespaces":
        assert lab.attack(way, ignoring, limits=limits).exit.ending == "timed_out"


@pytest.mark.requirement("U-10")
@WAYS
def test_four_gigabytes_end_the_child_only_and_are_told_as_such(lab: Lab, way: str) -> None:
    outcome = lab.attack(way, "result = [bytearray(2**20) for _ in range(4096)]", limits=SMALL)
    assert (outcome.answer, outcome.exit.ending) == (None, "out_of_memory")


@WAYS
def test_a_script_may_catch_its_memory_error_and_go_on(lab: Lab, way: str) -> None:
    code = """
try:
    bytearray(4 * 2**30)
except MemoryError:
    result = "caught"
"""
    assert lab.attack(way, code, limits=SMALL).answer == {"result": "caught"}


@pytest.mark.requirement("U-10")
@WAYS
def test_ten_thousand_threads_are_capped(lab: Lab, way: str) -> None:
    code = """
import threading
hold = threading.Event(); started = 0
try:
    for _ in range(10_000):
        threading.Thread(target=hold.wait, daemon=True).start(); started += 1
except RuntimeError:
    pass
result = started
"""
    limits = ChildLimits(wall_s=20, threads=16)
    answer = lab.attack(way, code, limits=limits).answer
    assert answer is not None
    assert limits.threads - 8 <= answer["result"] <= limits.threads + 8


@pytest.mark.requirement("U-10")
@WAYS
def test_a_fork_bomb_is_capped_and_leaves_nobody(lab: Lab, way: str) -> None:
    code = """
import time
made = 0
try:
    for _ in range(1000):
        if os.fork() == 0:
            time.sleep(600)
        made += 1
except OSError:
    pass
result = made
"""
    outcome = lab.attack(way, code, limits=FORKING)
    assert outcome.answer is not None
    assert 1 <= outcome.answer["result"] <= FORKING.threads + 8
    assert outcome.exit.ending == "finished"


@WAYS
def test_one_huge_file_is_stopped(lab: Lab, way: str) -> None:
    code = (
        "f = open('big', 'wb', buffering=0)\nfor _ in range(64): f.write(bytes(2**20))\nresult = os.stat('big').st_size"
    )
    outcome = lab.attack(way, code, limits=SMALL)
    assert outcome.answer is None or outcome.answer.get("error") == "OSError" or outcome.answer["result"] <= 4 * MIB


@WAYS
@pytest.mark.parametrize(
    "code",
    [
        "for n in range(10**6):\n    with open(f'{n}', 'wb') as f: f.write(bytes(2**19))",
        "for n in range(10**6): open(f'{n}', 'w').close()",
        "for n in range(10**6): os.mkdir(f'{n}')",
        "for n in range(10**6): os.symlink('x', f'{n}')",
        "for n in range(4000):\n    os.mkdir('d' * 20); os.chdir('d' * 20)\nimport time; time.sleep(600)",
        "import time\nkept = []\nwhile True:\n    kept.append(open('x', 'wb', buffering=0)); os.unlink('x')\n"
        "    kept[-1].write(bytes(2**20)); time.sleep(0.02)",
        "f = open('x', 'wb'); os.unlink('x')\nf.seek(2**40); f.write(b'x'); f.flush()",
        "import time\nlibc.mmap.argtypes = [ctypes.c_size_t] * 6\nwhile True:\n"
        "    with open('x', 'w+b', buffering=0) as f:\n        os.unlink('x'); f.write(bytes(2**20))\n"
        "        libc.mmap(0, 4096, 1, 1, f.fileno(), 0); time.sleep(0.02)",
    ],
    ids=[
        *("many files", "empty files", "folders", "links", "a deep folder", "files without a name", "a sparse file"),
        "files that are only mapped",
    ],
)
def test_a_full_folder_stops_the_child(lab: Lab, way: str, code: str) -> None:
    outcome = lab.attack(way, code, limits=SMALL)
    refused = outcome.answer is not None and outcome.answer.get("error") == "OSError"
    assert refused or outcome.exit.ending == "killed", outcome


@WAYS
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_flood_of_output_is_cut_and_counted(lab: Lab, way: str, stream: str) -> None:
    code = f"for _ in range(100): os.write(sys.{stream}.fileno(), bytes([0xFF]) * 2**20)\nresult = 'done'"
    outcome = lab.attack(way, code, limits=SMALL)
    assert outcome.answer == {"result": "done"}
    assert getattr(outcome.exit, stream) == bytes([0xFF]) * 1000
    assert outcome.exit.output_dropped == 100 * MIB - 1000


ENDINGS = {
    "returns": ("result = 1", "finished", 0, None),
    "exit()": ("exit()", "exited", 0, None),
    "sys.exit(3)": ("sys.exit(3)", "exited", 3, None),
    "sys.exit('why')": ("sys.exit('why')", "exited", 1, None),
    "os._exit(0)": ("os._exit(0)", "exited", 0, None),
    "os._exit(7)": ("os._exit(7)", "exited", 7, None),
    "raise SystemExit": ("raise SystemExit", "exited", 0, None),
    "raise KeyboardInterrupt": ("raise KeyboardInterrupt", "exited", 1, None),
    "a null pointer": ("ctypes.string_at(0)", "crashed", None, signal.SIGSEGV),
    "abort": ("os.abort()", "crashed", None, signal.SIGABRT),
    "kills itself": ("os.kill(os.getpid(), 9)", "crashed", None, signal.SIGKILL),
    "ends itself, as pid 1 could not": ("os.kill(os.getpid(), 15)", "crashed", None, signal.SIGTERM),
    "raises a signal": ("import signal\nsignal.raise_signal(signal.SIGUSR1)", "crashed", None, signal.SIGUSR1),
}


@WAYS
@pytest.mark.parametrize("name", ENDINGS)
def test_an_end_has_its_name(lab: Lab, way: str, name: str) -> None:
    code, ending, number, by = ENDINGS[name]
    end = lab.attack(way, code).exit
    assert (end.ending, end.code, end.signal) == (ending, number, by)


@WAYS
def test_a_forged_code_object_takes_its_own_process_at_most(lab: Lab, way: str) -> None:
    code = """
def f(): return [1] * 50
forged = f.__code__.replace(co_code=bytes([100, 200]) * 400 + f.__code__.co_code, co_stacksize=1, co_consts=())
exec(forged)
"""
    outcome = lab.attack(way, code)
    assert outcome.exit.ending in ("crashed", "finished")
    lab.canaries.assert_whole()


@WAYS
@pytest.mark.parametrize(
    "code",
    [
        "import atexit, time\natexit.register(time.sleep, 600)\nsys.exit(0)",
        "import time\nclass Slow:\n    def __del__(self): time.sleep(600)\nsys.kept = Slow()\nsys.exit(0)",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\nsys.exit(0)",
    ],
    ids=["atexit", "__del__", "a thread"],
)
def test_nothing_holds_up_the_end(lab: Lab, way: str, code: str) -> None:
    end = lab.attack(way, code, limits=ChildLimits(wall_s=15)).exit
    assert (end.ending, end.code) == ("exited", 0)


@WAYS
@pytest.mark.parametrize("code", ["input()", "breakpoint()"])
def test_there_is_nobody_to_ask(lab: Lab, way: str, code: str) -> None:
    answer = lab.attack(way, code).answer
    assert answer is None or answer["error"] in ("EOFError", "BdbQuit")


@WAYS
def test_standard_streams_are_what_they_seem(lab: Lab, way: str) -> None:
    outcome = lab.attack(way, "print('to out'); print('to err', file=sys.stderr)\nresult = sys.stdin.read()")
    assert outcome.answer == {"result": ""}
    assert (outcome.exit.stdout, outcome.exit.stderr) == (b"to out\n", b"to err\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user to become")
def test_root_becomes_a_user_that_nobody_is(lab: Lab) -> None:
    for way in ("namespaces", "plain"):
        outcome = lab.attack(way, "result = [*os.getresuid(), *os.getresgid(), *os.getgroups()]")
        assert outcome.answer is not None
        assert 0 not in outcome.answer["result"]
        assert "user" in outcome.layers
