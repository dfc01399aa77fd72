"""The command line: a result that one command stored is asked by the next, until its time is over."""

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from output_scene import SERVER

import fork_server

CONFIG = """
[servers.large]
command = {python}
args = [{server}]
[outputs]
directory = {base}
"""


class Shell:
    """Commands in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        text = CONFIG.format(
            python=json.dumps(sys.executable), server=json.dumps(str(SERVER)), base=json.dumps(str(folder / "base"))
        )
        (folder / "toolfold.toml").write_text(text, encoding="utf-8")
        self.said = ""
        self.environment = {**os.environ, "TOOLFOLD_HOME": str(folder / "home")}

    def run(self, *words: str, code: int = 0) -> str:
        done = fork_server.run(
            [sys.executable, "-m", "toolfold", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == code, done.stdout + done.stderr
        self.said = done.stderr
        return str(done.stdout)

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.run(*words, "--json", code=code))


@pytest.mark.requirement("O-02")
@pytest.mark.requirement("O-10")
def test_what_one_command_stored_the_next_one_reads(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.run("build")
    assert shell.json("outputs") == {"outputs": []}
    assert shell.run("call", "large.echo", '{"text": "hi"}') == "hi\n"
    assert shell.json("outputs") == {"outputs": []}
    message, told = shell.run("call", "large.large", '{"megabytes": 0.1}'), shell.said
    (stored,) = shell.json("outputs")["outputs"]
    size = f"{stored['bytes']} bytes, {stored['lines']} lines, {stored['tokens']} tokens"
    assert message.startswith(f"Tool output is too large ({size}).\n")
    assert "tool_output(" not in message, "that is for models; how a person goes on stands in the note"
    assert f"toolfold output {stored['handle']} " in told
    assert stored["handle"] in shell.run("outputs")
    first = shell.run("output", stored["handle"], "lines 1-1")
    assert first.startswith(f"ABSTRACT FROM TOOL OUTPUT large.large WITH HANDLE {stored['handle']}, STRATEGY:")
    assert "worker-7 handled" in first
    assert shell.json("output", stored["handle"], "lines 1-1")["text"] == first.rstrip("\n")
    assert "truncate" in shell.run("output", stored["handle"], "all", "--mode", "truncate")
    reference = json.dumps({"text": {"$output": stored["handle"]}})
    assert json.loads(shell.run("call", "large.length", reference))["kind"] == "str"
    whole = shell.run("call", "large.large", '{"megabytes": 0.1}', "--whole")
    assert whole.count("worker-7") == stored["lines"]


def test_15_06_a_handle_is_data_and_its_output_can_be_saved_as_it_is(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.run("build")
    picture = bytes(range(256)) * 30_000
    block = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(picture).decode()}
    (tmp_path / "result.json").write_text(json.dumps({"content": [block]}), encoding="utf-8")
    result = shell.json("call", "large.give", json.dumps({"file": str(tmp_path / "result.json")}))
    (stored,) = result["stored"]
    assert (stored["bytes"], stored["media_type"]) == (len(picture), "image/png")
    assert stored["handle"] in result["content"][0]["text"]
    assert f"{len(picture)} bytes" in shell.run("output", stored["handle"], "--save", "a.png")
    assert (tmp_path / "a.png").read_bytes() == picture
    assert shell.json("output", stored["handle"], "--save", "a.png", code=4)["error"]["code"] == "OUTPUT_ERROR"
    assert "\ufffd" not in shell.run("output", stored["handle"], "what", "is", "it")
    shell.run("output", stored["handle"], code=2)
    small = shell.json("call", "large.echo", '{"text": "hi"}')
    assert "stored" not in small


def test_an_unknown_handle_is_an_error_with_the_next_step(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.run("build")
    error = shell.json("output", "12345678-1234-4234-9234-123456789012", "x", code=4)["error"]
    assert error["code"] == "UNKNOWN_HANDLE"
    assert error["next_action"]
    assert not (tmp_path / "base").exists()
