"""`toolfold import`: what it shows, when it writes, and which client files it leaves alone."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from toolfold.__main__ import main


def client_file(folder: Path, servers: dict[str, Any]) -> Path:
    path = folder / "client.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


def imported(folder: Path, file: Path, *options: str) -> tuple[int, Path]:
    target = folder / "toolfold.toml"
    return main(["--home", str(folder / "home"), "import", str(file), "--to", str(target), *options]), target


def test_in_a_pipe_it_only_shows_and_says_how_to_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, target = imported(tmp_path, client_file(tmp_path, {"notes": {"command": "notes-server"}}))
    shown = capsys.readouterr()
    assert code == 0
    assert f"1 of 1 servers would be added to {target}" in shown.out
    assert "nothing was written; run it again with --yes" in shown.err
    assert not target.exists()


def test_a_second_import_adds_what_is_new_and_keeps_the_file_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, target = imported(tmp_path, client_file(tmp_path, {"notes": {"command": "notes-server"}}), "--yes")
    before = target.read_text()
    both = {"notes": {"command": "notes-server"}, "mail": {"command": "mail-server"}}
    imported(tmp_path, client_file(tmp_path, both), "--yes")
    shown = capsys.readouterr().out
    assert "mail-server" in target.read_text()
    backup = shown.rpartition("the file as it was: ")[2].splitlines()[0]
    assert Path(backup).read_text() == before


def test_a_client_file_with_a_server_that_cannot_be_read_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = client_file(tmp_path, {"notes": {"command": "notes-server"}, "odd": {"neither": 1}})
    before = file.read_text()
    code, target = imported(tmp_path, file, "--yes", "--replace")
    assert code == 2
    assert "odd cannot be taken over, so nothing is replaced" in capsys.readouterr().err
    assert file.read_text() == before
    assert not target.exists()


def test_what_a_client_is_given_starts_toolfold_with_the_home_that_was_named(tmp_path: Path) -> None:
    server = {"command": sys.executable, "args": ["-m", "toolfold.demo.files", "."]}
    file = client_file(tmp_path, {"files": server})
    assert imported(tmp_path, file, "--yes", "--replace")[0] == 0
    args = json.loads(file.read_text())["mcpServers"]["toolfold"]["args"]
    assert args[-5:] == ["--config", str(tmp_path / "toolfold.toml"), "--home", str(tmp_path / "home"), "serve"]


def test_without_replace_it_says_what_is_missing_and_what_comes_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported(tmp_path, client_file(tmp_path, {"notes": {"command": "no-such-notes"}}), "--yes")
    shown = capsys.readouterr()
    assert "notes: the program 'no-such-notes' is not on PATH" in shown.err
    assert "nothing was started: toolfold build does that, and says what it costs in tokens" in shown.err


def test_no_argument_forges_a_line_of_the_listing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["a\n  + forged  git\tstatus\r"]
    file = client_file(tmp_path, {"notes": {"command": "notes-server", "args": args}})
    imported(tmp_path, file, "--yes")
    assert r"notes-server a\n  + forged  git\tstatus\r" in capsys.readouterr().out
    for words in (["servers"], ["doctor"], ["disable", "notes"]):
        main(["--home", str(tmp_path / "home"), "--config", str(tmp_path / "toolfold.toml"), *words])
        shown = capsys.readouterr()
        assert "\n  + forged" not in shown.out + shown.err


SILENT = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"]}


def test_a_trial_gives_a_server_the_time_to_start_that_is_configured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = client_file(tmp_path, {"silent": SILENT})
    monkeypatch.setenv("TOOLFOLD_LIMITS__START_TIMEOUT_S", "2")
    assert imported(tmp_path, file, "--yes", "--replace")[0] == 3
    assert "2 s" in capsys.readouterr().err
    monkeypatch.delenv("TOOLFOLD_LIMITS__START_TIMEOUT_S")
    (tmp_path / "toolfold.toml").write_text("[limits]\nstart_timeout_s = 3\n")
    assert imported(tmp_path, file, "--yes", "--replace")[0] == 3
    assert "3 s" in capsys.readouterr().err


def test_a_second_replacement_that_leaves_only_what_fails_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    works = {"command": sys.executable, "args": ["-m", "toolfold.demo.files", str(tmp_path)]}
    file = client_file(tmp_path, {"files": works, "broken": {"command": "no-such-program-here"}})
    imported(tmp_path, file, "--yes", "--replace")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and "logs" not in path.parts}
    capsys.readouterr()
    imported(tmp_path, file, "--yes", "--replace")
    shown = capsys.readouterr()
    assert "replaced:" not in shown.out
    assert "nothing was written" in shown.err
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and "logs" not in path.parts}
    assert after == before


def test_a_server_that_was_never_read_is_not_said_to_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"command": sys.executable, "args": ["-m", "toolfold.demo.files", "."]}
    _, target = imported(tmp_path, client_file(tmp_path, {"files": files}), "--yes")
    options = ["--config", str(target), "--home", str(tmp_path / "home")]

    def states() -> dict[str, str]:
        capsys.readouterr()
        main([*options, "servers", "--json"])
        return {state["name"]: state["status"] for state in json.loads(capsys.readouterr().out)}

    assert states() == {"files": "not read"}
    assert main([*options, "build", "--no-search"]) == 0
    both = {"files": files, "broken": {"command": "no-such-program"}}
    assert imported(tmp_path, client_file(tmp_path, both), "--yes", "--replace", "--even-failed")[0] == 3
    assert states() == {"files": "idle", "broken": "not read"}
    main([*options, "servers"])
    assert "the catalogue is older than toolfold.toml (broken is new): toolfold build" in capsys.readouterr().err
    main([*options, "build", "--no-search"])
    assert states() == {"files": "idle", "broken": "failed"}


def test_a_trial_has_the_secret_that_moves_and_leaves_alone_what_the_client_asks_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTES_API_KEY", raising=False)
    program = (
        "import os, runpy; os.environ['NOTES_API_KEY']; runpy.run_module('toolfold.demo.files', run_name='__main__')"
    )
    notes = {"command": sys.executable, "args": ["-c", program], "env": {"NOTES_API_KEY": "sk-0123456789abcdef0123"}}
    asking = {**notes, "args": ["-c", program, "-"], "env": {"NOTES_API_KEY": "${input:notes-key}"}}
    file = tmp_path / "mcp.json"
    inputs = [{"id": "notes-key", "type": "promptString", "password": True}]
    file.write_text(json.dumps({"servers": {"notes": notes, "asking": asking}, "inputs": inputs}))
    code, target = imported(tmp_path, file, "--yes", "--replace", "--secrets", "env")
    shown = capsys.readouterr()
    assert code == 0, shown.err
    assert "1 of 1 servers started" in shown.out
    assert "asking is not tried: its client asks for TOOLFOLD_INPUT_NOTES_KEY" in shown.err
    assert {"[servers.notes]", "[servers.asking]"} <= set(target.read_text().splitlines())
    assert list(json.loads(file.read_text())["servers"]) == ["toolfold"]


def test_an_undo_names_secrets_only_in_the_copies_that_hold_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, secret in enumerate(({}, {"API_KEY": "sk-0123456789abcdef0123"})):
        folder = tmp_path / str(number)
        folder.mkdir()
        _, target = imported(folder, client_file(folder, {"notes": {"command": "notes", "env": secret}}), "--yes")
        target.write_text(target.read_text() + "# mine\n")
        imported(folder, client_file(folder, {"mail": {"command": "mail"}}), "--yes")
        target.write_text(target.read_text() + "# mine, too\n")
        capsys.readouterr()
        assert main(["--home", str(folder / "home"), "import", "--undo"]) == 0
        said = capsys.readouterr().err
        assert "copies of it are left" in said
        assert ("with the secrets that stood in it" in said) == bool(secret)
