"""What somebody met who tried to break the first hour: what is said is right, is said once, and leads on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fork_server

UNKNOWN_TYPE = {"type": "object", "properties": {"x": {"type": "strng"}, "y": {"$ref": "#/nowhere"}}}
TOOLS = """
def echo(text: str) -> str:
    \"\"\"Echoes the text.\"\"\"
    return text

def count(n: int) -> int:
    \"\"\"Counts.\"\"\"
    return n

def lines(most: int) -> str:
    \"\"\"Many lines.\"\"\"
    return "\\n".join(f"line {n} of the text" for n in range(most))
"""
SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    tool = {"name": "odd", "description": "Takes anything.", "inputSchema": SCHEMA}
    said = json.dumps(message.get("params", {}).get("arguments"))
    results = {
        "initialize": {
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}
        },
        "tools/list": {"tools": [tool]},
        "tools/call": {"content": [{"type": "text", "text": said}]},
    }
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": results.get(message["method"], {})}), flush=True)
"""
TWICE = '{"mcpServers": {"a": {"command": "cat"}, "a": {"command": "true"}}}'

Words = list[str | bytes]
# What is typed, its exit code, and what it says.
ROWS: dict[str, tuple[Words, int, list[str]]] = {
    "a path that is mistyped": (["import", "/nope/none.json"], 2, ["there is no file /nope/none.json"]),
    "a server that stands twice": (["import", "twice.json"], 0, ["stands twice in this file. Only the last counts"]),
    "a category that is none": (
        ["search", "--in", "nope", "echo the text"],
        4,
        ["- own.echo  Echoes the text.", "the tools above fit"],
    ),
    "a type that nobody knows": (["call", "raw.odd", "x=text"], 0, ['{"x": "text"}']),
    "a reference that leads nowhere": (["call", "raw.odd", "y=text"], 0, ['{"y": "text"}']),
    "bytes that are no text": (["call", "own.echo", b"text=\xff"], 2, ["is no UTF-8", "give it in UTF-8"]),
    "a number that is too large": (["call", "own.count", "n:=1e400"], 4, ["fits into 64 bits"]),
    "a file in UTF-16": (["--config", "utf16.toml", "servers"], 2, ["only UTF-8 can be read. Save it as UTF-8."]),
    "another shell": (["completion", "tcsh"], 2, ["no choice of shell 'tcsh': choose bash, zsh or fish"]),
    "a pattern that is none": (["output", "last", "/(?=x)/"], 1, ["cannot be bounded in time. Next: use"]),
    "a page for more": (["search", "--limit", "1000", "echo"], 2, ["no whole number up to 50"]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("edges")
    (folder / "bin").mkdir()
    (folder / "bin" / "odd server").write_text(f"#!{sys.executable}\n{SERVER.replace('SCHEMA', repr(UNKNOWN_TYPE))}")
    (folder / "bin" / "odd server").chmod(0o755)
    (folder / "tools.py").write_text(TOOLS)
    # A `~` in a command is the person's home, as in a shell.
    servers = '[servers.own]\nfunctions = "./tools.py"\n[servers.raw]\ncommand = "~/bin/odd server"\nargs = []\n'
    (folder / "toolfold.toml").write_text(servers)
    (folder / "utf16.toml").write_bytes("[servers]".encode("utf-16"))
    (folder / "twice.json").write_text(TWICE)
    assert typed(folder, ["build", "--no-search"])[0] == 0
    assert typed(folder, ["call", "own.lines", "most=20000"])[0] == 0
    return folder


def typed(folder: Path, words: Words, **more: str) -> tuple[int, str]:
    base = ["--config", "toolfold.toml"] if "--config" not in words else []
    done = fork_server.run(
        [sys.executable, "-m", "toolfold", *base, *(os.fsdecode(word) for word in words)],
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "NO_COLOR": "1", **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("name", ROWS)
def test_17_what_is_said_is_right_and_leads_on(folder: Path, name: str) -> None:
    words, code, texts = ROWS[name]
    done, said = typed(folder, words)
    assert done == code, said
    assert [text for text in texts if text not in said] == [], said


def test_17_last_words_of_a_server_show_no_password_however_it_is_called(folder: Path) -> None:
    secrets = {"DB_PW": "qwert-uiop-1", "MYPW": "qwert-uiop-2", "ADMIN_PIN": "815815", "ACCESS_CODE": "qwert-uiop-4"}
    env = ", ".join(f'{name} = "{value}"' for name, value in secrets.items())
    script = 'echo "bad login: $DB_PW $MYPW $ADMIN_PIN $ACCESS_CODE" >&2; exit 3'
    table = f"[servers.dead]\ncommand = 'sh'\nargs = ['-c', '{script}']\nenv = {{ {env} }}\n"
    (folder / "dead.toml").write_text(f"{table}[outputs]\nredact_secrets = true\n")
    said = "".join(
        typed(folder, ["--config", "dead.toml", "--home", "dead", *words])[1]
        for words in (
            ["build"],
            ["servers", "--connect"],
            ["doctor", "--connect"],
            ["call", "dead.x"],
            ["logs", "dead"],
        )
    )
    assert "bad login" in said
    assert [value for value in secrets.values() if value in said] == []
    kept = "".join(file.read_text(errors="replace") for file in (folder / "dead" / "logs").iterdir())
    assert [value for value in secrets.values() if value in kept] == []


def test_17_the_doctor_says_each_remedy_once(folder: Path) -> None:
    _, said = typed(folder, ["--config", "utf16.toml", "doctor"])
    assert said.count("Save it as UTF-8") == 1


@pytest.mark.parametrize("words", [["--help"], ["call", "--help"], ["tree"]])
def test_17_what_could_not_be_printed_is_an_error(folder: Path, words: list[str]) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "toolfold", *words],
            cwd=folder,
            env={**os.environ, "HOME": str(folder)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 1, done.stderr
    assert "cannot be written: No space left on device" in done.stderr


def test_17_an_empty_home_is_not_the_root_of_the_disk(folder: Path) -> None:
    done = fork_server.run(
        [sys.executable, "-m", "toolfold", "servers"],
        cwd=folder / "bin",
        env={**os.environ, "HOME": "", "USERPROFILE": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "looked for /.toolfold" not in done.stderr
    assert not Path("/.toolfold").exists()
