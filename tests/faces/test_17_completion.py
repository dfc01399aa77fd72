"""Completion in real shells on a real terminal, with a server whose texts attack the shell."""

import json
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fork_server

SERVER = Path(__file__).parents[1] / "servers" / "misbehaving_stdio.py"
# Each would leave a file if the shell ran it. The first letter tells them apart, so that one Tab completes each.
HOSTILE = {
    "A": "A$(touch RAN)",
    "B": "B`touch RAN`",
    "C": "C;touch RAN;",
    "D": "D'; touch RAN; '",
    "E": "E\ntouch RAN\n",
    "F": 'F";touch RAN;"',
    "G": "G>RAN",
    "H": "H&touch RAN&",
    "I": "I|touch RAN|",
    "K": "K\x1b[201~\ntouch RAN\n",
    "L": "L *",
    "M": "M${IFS}<(touch RAN)",
    "O": "O\u2028touch RAN",
    "Q": "Q!!$'\\n'",
}
START = {
    "bash": ["--norc", "--noprofile", "-i"],
    "zsh": ["-f", "-i"],
    "fish": ["--no-config", "-i"],
}
SETUP = {
    "bash": "source complete.sh",
    "zsh": "autoload -Uz compinit; compinit -u -d zcompdump; source complete.sh",
    "fish": "source complete.sh",
}
WAIT_S = 90
# Completes, and writes down how it was called otherwise.
PROGRAM = f"""#!{sys.executable}
import json, os, sys
if sys.argv[1] == "completion":
    os.execv(sys.executable, [sys.executable, "-m", "toolfold", *sys.argv[1:]])
with open("given", "a") as file:
    print(json.dumps(sys.argv[1:]), file=file)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the catalogue of a hostile server, and `toolfold` on the path."""
    folder = tmp_path_factory.mktemp("hostile")
    enum = [f"open{text}" for text in HOSTILE.values()]
    properties: dict[str, object] = {name: {"type": "string", "description": name} for name in HOSTILE.values()}
    schema = {
        "type": "object",
        "properties": {**properties, "state": {"enum": ["fine", *enum]}, "limit": {}, "--save": {}},
    }
    tools = [
        {"name": "tool", "description": "$(touch RAN)", "inputSchema": schema},
        {"name": "$(touch RAN)", "description": "`touch RAN`", "inputSchema": {"type": "object"}},
    ]
    start = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "hostile", "version": "1"},
    }
    # No file is called so that a shell takes it for one of the letters.
    (folder / "recorded").write_text(json.dumps({"initialize": start, "tools": tools}))
    args = json.dumps([str(SERVER), "--replay", str(folder / "recorded")])
    (folder / "toolfold.toml").write_text(
        f"[servers.evil]\ncommand = {json.dumps(sys.executable)}\nargs = {args}\n"
        "[subsets.small]\ntools = ['evil.*']\n[callers.boss]\nkey = '${BOSS_KEY:-a-long-key-of-the-boss}'\n"
    )
    program = folder / "bin" / "toolfold"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    (folder / "counted.py").write_text("def main(limit: int = 1):\n    return limit\n")
    assert toolfold(folder, "build").returncode == 0
    assert toolfold(folder, "scripts", "add", "counted.py").returncode == 0
    return folder


def environment(folder: Path) -> dict[str, str]:
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    own = {"TOOLFOLD_HOME": str(folder / "s"), "TOOLFOLD_TRUST_PROJECT": "1"}
    return {"PATH": path, "HOME": str(folder), "TERM": "xterm", "LANG": "C.UTF-8", **own}


def toolfold(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "toolfold", *words]
    return fork_server.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=60, check=False
    )


def type_into(shell: str, folder: Path, keys: str) -> str:
    """What the shell shows on a terminal while these keys are typed, up to the word that ends them."""
    (folder / "complete.sh").write_text(toolfold(folder, "completion", shell).stdout)
    process, terminal = pty.fork()
    if not process:
        os.chdir(folder)
        os.execvpe(shell, [shell, *START[shell]], environment(folder))
    try:
        shown = _read_until(terminal, "ready-2", f"{SETUP[shell]}; echo ready-$(expr 1 + 1)\r")
        return shown + _read_until(terminal, "done-2", f"{keys}echo done-$(expr 1 + 1)\r")
    finally:
        os.kill(process, 9)
        os.waitpid(process, 0)
        os.close(terminal)


def _read_until(terminal: int, word: str, keys: str) -> str:
    os.write(terminal, keys.encode())
    shown, end = b"", time.monotonic() + WAIT_S
    while word.encode() not in shown:
        assert select.select([terminal], [], [], max(end - time.monotonic(), 0))[0], shown.decode(errors="replace")
        shown += os.read(terminal, 65536)
    return shown.decode(errors="replace")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_17_no_text_of_a_server_is_run_by_a_shell_that_completes_it(place: Path, shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed here")
    for left in ("RAN", "given"):
        (place / left).unlink(missing_ok=True)
    # Each word is completed, and the line then run, as somebody in a hurry does; with an open quote, too.
    words = [*HOSTILE, "'D", '"A', '"B', "state=openA", "state='openD", "state=fi"]
    keys = "".join(f"toolfold call evil.tool {word}\t\r" for word in words)
    shown = type_into(shell, place, f"{keys}toolfold expand evil.touch\t\rtoolfold call evil.tool li\t3\r")
    assert not (place / "RAN").exists(), shown
    given = [word for line in (place / "given").read_text().splitlines() for word in json.loads(line)]
    # What can be typed is completed as it is, and as one word.
    for letter in "ABCDFGHILM":
        assert f"{HOSTILE[letter]}=" in given, (letter, given, shown)
    assert {"state=fine", "limit=3", "evil.touch_RAN-7f0a6fb0"} <= set(given), (given, shown)
    assert set("EKO") <= set(given)


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        (["logs", ""], ["evil"]),
        (["disable", "e"], ["evil"]),
        (["audit", "--server", ""], ["evil"]),
        (["audit", "--tool", "evil.to"], ["evil.tool", "evil.touch_RAN-7f0a6fb0"]),
        (["audit", "--caller", ""], ["boss"]),
        (["tree", "--as", ""], ["boss"]),
        (["serve", "--subset", ""], ["small"]),
        (["serve", "--profile", "d"], ["direct", "discovery"]),
        (["serve", "--profile", "live", "--log", ""], ["json", "text"]),
        (["output", ""], ["last"]),
        (["call", "--timeout", "3", "evil.too"], ["evil.tool"]),
        (["call", "evil.tool", "state=fi"], ["state=fine"]),
        (["call", "evil.tool", "--sa"], ["--save"]),
        (["expand", "evil.tool", ""], []),
        (["scripts", "s"], ["show"]),
        (["scripts", "show", ""], ["counted"]),
        (["scripts", "run", "counted", "li"], ["limit="]),
    ],
    ids=" ".join,
)
def test_17_every_name_that_there_is_can_be_completed(place: Path, typed: list[str], wanted: list[str]) -> None:
    done = toolfold(place, "completion", "zsh", "--", *typed)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, wanted)
