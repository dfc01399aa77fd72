"""`toolfold demo`: each of the five ideas with its tokens, and the console with what the walk did."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from toolfold.__main__ import main

pytestmark = pytest.mark.requirement("G-07")

IDEAS = ["catalogue", "output schema", "large result", "script", "live Python"]


def test_22_each_idea_is_told_with_the_tokens_of_the_full_way(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [idea["idea"] for idea in report["ideas"]] == IDEAS
    for idea in report["ideas"]:
        assert 0 < idea["read_tokens"] < idea["full_tokens"], idea
    assert report["ideas"][0]["full_tokens"] == report["definition_tokens"]
    calls = sum(call["calls"] for call in report["script"]["calls"])
    assert report["ideas"][3]["read"] == f"a script and its answer, not {calls} results"


def test_22_without_git_the_walk_goes_on_with_the_ideas_that_need_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["demo"]) == 0
    told = capsys.readouterr()
    assert "`git` program is not installed" in told.err
    rows = re.findall(r"^   (\S+(?: \S+)?) +[\d,]+ +[\d,]+  ", told.out, re.MULTILINE)
    assert rows == ["catalogue", "large result", "live Python"]


def test_22_the_console_follows_with_the_walk_in_it(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = {**os.environ, "HOME": str(tmp_path), "TMPDIR": str(temporary)}
    env.pop("TOOLFOLD_HOME", None)
    command = [sys.executable, "-m", "toolfold", "demo", "--serve", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env) as process:
        assert process.stdout is not None
        try:
            assert json.loads(process.stdout.readline())["failed"] == {}
            address = json.loads(process.stdout.readline())["url"]
            with httpx2.Client(follow_redirects=True) as browser:
                home = browser.get(address)
                site = address.partition("/enter/")[0]
                walk = browser.get(f"{site}/traces/session", params={"caller": "local", "session": "demo"}).text
                token = re.search(r'name="token" value="([^"]+)"', home.text)
                assert token is not None
                # What is hidden here goes into the file of the demo, and into no other.
                hidden = browser.post(f"{site}/hide", data={"tool": "git.blame", "hide": "yes", "token": token[1]})
        finally:
            process.terminate()
            assert process.wait(30) == 0
    assert home.status_code == hidden.status_code == 200
    assert all(text in walk for text in ("git.blame", "sqlite.query", "who wrote this line of code", "run_script"))
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / ".toolfold").exists()
