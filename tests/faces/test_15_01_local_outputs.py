"""What a person stored with `toolfold call` is there for their scripts and their prompt; a model is named once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fork_server
from toolfold.search.enrichment import Enrichment
from toolfold.storage.sqlite.store import SqliteStore

HOUSE = '''
def boiler_log() -> str:
    """Fetch the log of the boiler."""
    return "\\n".join(f"line {n} of the boiler" for n in range(20_000))
'''


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "house.py").write_text(HOUSE, encoding="utf-8")
    (tmp_path / "toolfold.toml").write_text('[servers.house]\nfunctions = "house"\n', encoding="utf-8")
    assert toolfold(tmp_path, "build", "--no-search").returncode == 0
    return tmp_path


def toolfold(folder: Path, *arguments: str, says: str = "") -> "subprocess.CompletedProcess[str]":
    return fork_server.run(
        [sys.executable, "-m", "toolfold", "--home", "state", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        input=says,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_15_01_a_handle_of_a_call_opens_in_scripts_and_at_the_prompt(place: Path) -> None:
    called = json.loads(toolfold(place, "call", "house.boiler_log", "{}", "--json").stdout)
    handle = called["stored"][0]["handle"]
    (place / "script.py").write_text(f'print(len(open_output("{handle}").text().splitlines()))\n', encoding="utf-8")
    assert "20000" in toolfold(place, "run", "script.py").stdout
    prompt = toolfold(place, "repl", says=f'len(open_output("{handle}").text().splitlines())\n')
    assert "20000" in prompt.stdout + prompt.stderr
    assert toolfold(place, "output", handle, "line 7 of").returncode == 0


def test_15_01_enrich_takes_the_model_that_its_error_asks_for(place: Path) -> None:
    assert "--model" in toolfold(place, "enrich").stderr
    assert "unrecognized" not in toolfold(place, "enrich", "--model", "nobody:nothing").stderr


async def test_15_01_only_tools_with_requests_count_as_forgotten(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "store.sqlite") as store:
        enrichment = Enrichment(store)
        for name, requests in {"one": ["find my order"], "two": [], "three": []}.items():
            await enrichment._put(name, requests)
        assert await enrichment.forget(["one", "two", "three", "four"]) == 1
        assert await enrichment.requests() == {}
