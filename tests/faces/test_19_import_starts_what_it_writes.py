"""`toolfold import --replace --secrets env` starts what it writes, and not what the client had."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from toolfold.__main__ import main

KEY = "sk-1Xb7Qm9Zt4Lw2Rk8Vd3Ys6Pf0"


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TOOLFOLD_HOME", raising=False)
    monkeypatch.delenv("API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    server = {"command": sys.executable, "args": ["-m", "toolfold.demo.files", "."]}
    plain, keyed = {**server, "env": {"MODE": "a"}}, {**server, "env": {"API_KEY": KEY}}
    path = tmp_path / "client.json"
    path.write_text(json.dumps({"mcpServers": {"plain": plain, "keyed": keyed, "again": keyed}}), encoding="utf-8")
    return path


def run(client: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str, dict[str, Any]]:
    code = main(["import", str(client), "--replace", "--secrets", "env", "--yes", *more])
    said = capsys.readouterr()
    return code, said.out + said.err, json.loads(client.read_text(encoding="utf-8"))["mcpServers"]


def test_17_a_trial_start_has_the_secret_that_moves_to_a_variable(
    client: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said, left = run(client, capsys)
    assert code == 0
    assert "set this before you go on: export API_KEY=" in " ".join(said.split())
    assert "2 of 2 servers started" in said
    assert KEY not in said
    assert set(left) == {"toolfold"}


def test_19_with_the_variable_it_starts_and_what_a_desktop_does_not_see_is_told(
    client: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", KEY)
    code, said, left = run(client, capsys)
    assert code == 0
    assert "2 of 2 servers started" in said
    assert "started from the desktop does not see" in " ".join(said.split())
    assert "(2 servers)" in said
    assert set(left) == {"toolfold"}


def test_17_a_variable_that_holds_something_else_stands_for_no_secret(
    client: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "zzzz9999other")
    before = client.read_text(encoding="utf-8")
    _, said, _ = run(client, capsys)
    assert "keyed: API_KEY has another value in this environment" in " ".join(said.split())
    assert "KEYED_API_KEY" in said
    shutil.rmtree(client.parent / ".toolfold")
    client.write_text(before, encoding="utf-8")
    monkeypatch.setenv("KEYED_API_KEY", KEY)
    code, said, left = run(client, capsys)
    assert code == 0
    assert set(left) == {"toolfold"}
    assert "set here as the client has it: KEYED_API_KEY" in " ".join(said.split())
    written = (client.parent / ".toolfold" / "toolfold.toml").read_text(encoding="utf-8")
    assert "${KEYED_API_KEY}" in written
    assert "${API_KEY}" not in written
