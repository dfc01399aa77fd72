"""What a killed process left of its questions and its notes is swept by the next one."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import toolfold
from toolfold.outputs.store import OutputStore
from toolfold.types import LOCAL

KILLED = """
import os, tempfile
from toolfold.outputs.extraction import _open_document
with _open_document("a text", exact=False) as document:
    print(document.path, flush=True)
    os._exit(9)
"""


def test_15_18_a_text_that_a_killed_process_was_asked_about_is_removed_by_the_next_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", KILLED], env=environment, capture_output=True, text=True, check=False)
    left = Path(done.stdout.strip())
    assert left.read_text(encoding="utf-8") == "a text"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert "Ada" in toolfold.extract("name,town\nAda,Graz\n", "lines 2-2")
    assert list(tmp_path.iterdir()) == []


def test_15_18_a_note_that_a_killed_process_did_not_finish_is_removed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name, age in ((".outputs-session.0000", 3600), (".outputs-session.1111", 0)):
        (home / name).write_text("ai-agent-x")
        seen = (home / name).stat().st_mtime - age
        os.utime(home / name, (seen, seen))
    store = OutputStore(tmp_path / "base", note=home / "outputs-session")
    store.draft(LOCAL).discard()
    assert sorted(file.name for file in home.iterdir()) == [".outputs-session.1111", "outputs-session"]
    store.close()
