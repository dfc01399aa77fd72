"""The demo's data: the same each time, and made without git where git is missing."""

import hashlib
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from toolfold.demo.data import demo_servers, make_demo_data


def contents(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(root).parts
    }


def test_the_data_is_the_same_each_time_and_replaces_what_was_there(tmp_path: Path) -> None:
    make_demo_data(tmp_path / "a")
    (tmp_path / "a" / "files" / "stray.txt").write_text("from an earlier demo")
    make_demo_data(tmp_path / "a")
    make_demo_data(tmp_path / "b")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert "files/README.md" in contents(tmp_path / "a")


@pytest.mark.skipif(shutil.which("git") is None, reason="the git program is not installed")
def test_the_history_has_always_the_same_hashes_whoever_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def head(root: Path) -> str:
        done = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    first = make_demo_data(tmp_path / "a").repository
    monkeypatch.setenv("GIT_AUTHOR_DATE", "2001-01-01T00:00:00Z")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    second = make_demo_data(tmp_path / "b").repository
    monkeypatch.delenv("GIT_DIR")
    assert first is not None
    assert second is not None
    assert head(first) == head(second)


def test_the_shop_holds_together(tmp_path: Path) -> None:
    data = make_demo_data(tmp_path)
    with closing(sqlite3.connect(data.database)) as database:
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        assert database.execute("SELECT count(*) FROM orders").fetchone() == (300,)
        assert len(database.execute("SELECT * FROM revenue").fetchall()) == 20


def test_without_git_the_demo_says_so_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    data = make_demo_data(tmp_path / "demo")
    assert data.repository is None
    assert "not installed" in data.notes[0]
    assert [spec.name for spec in demo_servers(data)] == ["files", "sqlite"]


def test_a_git_that_fails_is_told_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "bin" / "git"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho 'git is broken here' >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken.parent}:/usr/bin:/bin")
    data = make_demo_data(tmp_path / "demo")
    assert data.repository is None
    assert "git is broken here" in data.notes[0]
