"""A program that forks while it holds an open gateway: the child is told so, and the parent goes on."""

import subprocess
import sys
from pathlib import Path

PROGRAM = '''
import os, sys
from toolfold import Gateway
from toolfold.errors import StoreError

def add(a: int, b: int) -> int:
    """Adds."""
    return a + b

with Gateway(functions=[add]).blocking() as gateway:
    gateway.build()
    child = os.fork()
    if not child:
        try:
            gateway.call_tool("functions.add", {"a": 1, "b": 2})
        except StoreError as error:
            print("child:", error.message, "-", error.next_action, flush=True)
        gateway.close()
        with Gateway(functions=[add]).blocking() as own:
            own.build()
            print("own:", own.call_tool("functions.add", {"a": 2, "b": 2}).text, flush=True)
        sys.exit(5)
    print("ended:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print("parent:", gateway.call_tool("functions.add", {"a": 1, "b": 2}).text)
'''


def test_17_a_fork_of_a_program_with_an_open_gateway_is_told_to_open_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "child: the gateway was opened by the process that this one was forked from - "
        "open a gateway here: with BlockingGateway(settings) as gateway",
        "own: 4",
        "ended: 5",
        "parent: 3",
    ]
