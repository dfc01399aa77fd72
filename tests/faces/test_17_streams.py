"""Every command in every state that a shell can start it in: no traceback, the right exit code, no hang."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from toolfold.__main__ import main
from toolfold.faces.cli import COMMANDS

ODD = os.fsdecode(b"a\xffb")
WAIT_S = 90

# How each command is started, and the code it then ends with where everything can be written and read.
TABLE: dict[str, tuple[tuple[str, ...], int]] = {
    "demo": (("--help",), 0),
    "serve": ((), 0),
    "init": (("--schema",), 0),
    "import": ((), 0),
    "add": (("--help",), 0),
    "remove": (("nothing",), 2),
    "enable": (("nothing",), 2),
    "disable": (("nothing",), 2),
    "build": ((), 0),
    "login": ((), 0),
    "logout": ((), 2),
    "servers": ((), 0),
    "enrich": (("--forget",), 0),
    "learn": ((), 0),
    "tree": ((), 0),
    "list": ((), 0),
    "nodes": (("read", "files"), 0),
    "search": (("list", "the", "latest", "commits"), 0),
    "expand": (("git.log",), 0),
    "call": (("git.log", "limit=1"), 0),
    "outputs": ((), 0),
    "output": (("last", "x"), 4),
    "inspect-output": (("git.log",), 0),
    "run": (("-",), 0),
    "scripts": ((), 0),
    "stubs": (("git.log",), 0),
    "repl": ((), 0),
    "agent": (("--runs",), 0),
    "audit": ((), 0),
    "logs": ((), 0),
    "trust": ((), 0),
    "stats": ((), 0),
    "extract": (("data/files/README.md", "lines 1-3"), 0),
    "doctor": ((), 0),
    "bench": (("--help",), 0),
    "help": ((), 0),
    "completion": (("bash",), 0),
    "conformance": (("http://127.0.0.1:1/mcp",), 3),
    "console": (("--help",), 0),
}
# What the shell does with the streams; whether what is printed has nowhere to go counts as an error. A closed one does,
# as with GNU tools: a script that reads a file which stayed empty must hear of it.
STATES = {">&- <&-": True, "2>&- <&-": False, ">/dev/full": True}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        patch.delenv("TOOLFOLD_HOME", raising=False)
        patch.chdir(folder)
        assert main(["demo", "--keep", "kept", "--json"]) == 0
        patch.chdir(folder / "kept")
        assert main(["build"]) == 0
    return folder / "kept"


def shell(place: Path, line: str, **environ: str) -> "subprocess.CompletedProcess[bytes]":
    """A line of bash, in which `$T` is the program."""
    environment = {
        "PATH": os.environ["PATH"],
        "TOOLFOLD_TRUST_PROJECT": "1",
        "HOME": str(place.parent),
        "T": f"{sys.executable} -m toolfold",
    }
    return subprocess.run(
        ["bash", "-c", line],
        cwd=place,
        env={**environment, **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )


def assert_well(done: "subprocess.CompletedProcess[bytes]", *codes: int) -> None:
    said = (done.stdout + done.stderr).decode(errors="replace")
    assert "Traceback" not in said, said
    assert "Exception ignored" not in said, said
    assert done.returncode in codes, (done.args, done.returncode, said)


def test_17_the_table_has_every_command() -> None:
    assert set(TABLE) == set(COMMANDS)


@pytest.mark.parametrize("command", TABLE)
def test_17_a_command_ends_well_whatever_its_streams_are(place: Path, command: str) -> None:
    words, code = TABLE[command]
    line = f"$T {command} {' '.join(words)}" if command != "extract" else f"$T extract {words[0]} '{words[1]}'"
    for state, matters in STATES.items():
        done = shell(place, f"{line} {state}; exit ${{PIPESTATUS[0]}}")
        # Who prints nothing to standard output is not bothered by a full one; what is broken off early may not matter.
        assert_well(done, code, *((1,) if matters else ()))
        if matters and done.returncode and not code:
            assert b"cannot be written" in done.stderr, (state, done.stderr)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_17_a_full_disk_is_an_error_and_a_reader_who_left_is_none(place: Path, unbuffered: str) -> None:
    for words in ("tree --json", "--version"):
        full = shell(place, f"$T {words} >/dev/full", PYTHONUNBUFFERED=unbuffered)
        assert_well(full, 1)
        assert b"cannot be written" in full.stderr
        assert_well(shell(place, f"$T {words} | true; exit ${{PIPESTATUS[0]}}", PYTHONUNBUFFERED=unbuffered), 0)
    assert_well(shell(place, "$T no-such-thing 2>/dev/full", PYTHONUNBUFFERED=unbuffered), 2)


def test_17_a_closed_output_is_an_error_where_there_was_something_to_print(place: Path) -> None:
    for words in ("tree", "--version", "tree --json"):
        closed = shell(place, f"$T {words} >&-")
        assert_well(closed, 1)
        assert closed.stderr.startswith(b"error: what was to be printed cannot be written")
        assert closed.stderr.count(b"\n") == 1


TAKES_TEXT = (
    *("tree", "list", "nodes", "search", "expand", "call", "call git.log", "output", "inspect-output", "run", "stubs"),
    *("audit --tool", "audit --session", "audit --caller", "logs", "trust", "extract", "help", "completion"),
    *("completion bash --", "completion bash --line", "build --server", "remove", "enable", "import", "import --to"),
    *("--config", "--home", "tree --as", "serve --subset", "scripts add", "scripts show", "agent --resume", "nosuch"),
    *("enrich --server", "demo --keep data/files/README.md --json", "search --in"),
)


@pytest.mark.parametrize("words", TAKES_TEXT)
def test_17_bytes_that_are_no_utf_8_end_in_an_answer(place: Path, words: str) -> None:
    done = shell(place, f"$T {words} $'a\\xffb' --json")
    assert_well(done, *range(9))
    if done.returncode and done.stdout:
        assert "error" in json.loads(done.stdout)


@pytest.mark.parametrize("words", ["search list commits", "help policy", "nosuch"])
def test_17_a_locale_without_utf_8_and_odd_variables_change_nothing_but_the_letters(place: Path, words: str) -> None:
    wanted = shell(place, f"$T {words}").returncode
    for environ in (
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"ODD": ODD, "LANG": ODD},
        {"COLUMNS": "20"},
        {"COLUMNS": "x", "TERM": ODD},
    ):
        assert_well(shell(place, f"$T {words}", **environ), wanted)


def test_17_a_folder_whose_name_is_no_utf_8_is_named_as_the_reason(place: Path) -> None:
    folder = place.parent / ODD
    folder.mkdir()
    text = (place / "toolfold.toml").read_text().replace("data/", f"{place}/data/")
    (folder / "toolfold.toml").write_text(text)
    for words in ("build", "doctor", "call git.log limit=1", "import"):
        done = shell(folder, f"$T {words}")
        assert_well(done, 0, 1, 2)
        assert done.returncode != 2 or b"the name of this folder" in done.stderr, done.stderr


def test_17_a_script_that_is_looked_over_hides_nothing(place: Path) -> None:
    source = '"""Counts."""\n# \x1b[8m\x9b8m do evil\nprint(1)\n'
    (place / "sly.py").write_text(source, encoding="utf-8")
    assert_well(shell(place, "$T scripts add sly.py"), 0)
    on_terminal = f"{sys.executable} -c 'import pty, sys; pty.spawn(sys.argv[1:])'"
    seen = shell(place, f"{on_terminal} $T scripts show sly", NO_COLOR="1").stdout.decode()
    assert shell(place, "$T scripts show sly").stdout.decode() == source  # a program gets it as it is
    assert "do evil" in seen
    assert {"\x1b", "\x9b"}.isdisjoint(seen)


# Ctrl-C while the module of this number is imported.
INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
left, loaded = int(sys.argv.pop(1)), set(sys.modules)
from toolfold.__main__ import main
print(*sorted(set(sys.modules) - loaded), file=sys.stderr)
def interrupt(event, arguments):
    global left
    left -= event == "import"
    if not left:
        left = -1
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(interrupt)
sys.argv[0] = "toolfold"
sys.exit(main())
"""


@pytest.mark.parametrize("number", [1, 2, 3, 5, 8, 13, 21, 34, 55, 89])
def test_17_ctrl_c_is_answered_from_the_start_on(place: Path, number: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(number), "tree"],
        cwd=place,
        env={"PATH": os.environ["PATH"], "TOOLFOLD_TRUST_PROJECT": "1", "HOME": str(place.parent)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    before, _, said = done.stderr.partition("\n")
    # What is loaded before `main` runs is the time in which nobody answers.
    assert set(before.split()) <= {"errno", "toolfold", "toolfold.__main__"}
    assert (done.returncode, said, done.stdout) == (130, "interrupted\n", "")
