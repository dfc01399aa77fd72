"""`toolfold enrich` as a person runs it: with an endpoint that speaks OpenAI's protocol, and without a model."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from model_endpoint import model_endpoint

import fork_server
from toolfold.demo.data import make_demo_data


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    data = make_demo_data(folder / "data")
    arguments = json.dumps(["-P", "-m", "toolfold.demo.files", str(data.files)])
    (folder / "toolfold.toml").write_text(
        f"[servers.files]\ncommand = {json.dumps(sys.executable)}\nargs = {arguments}\n", encoding="utf-8"
    )
    assert toolfold(folder, "build", "--no-search")[0] == 0
    return folder


def toolfold(folder: Path, *arguments: str) -> tuple[int, Any]:
    done = fork_server.run(
        [sys.executable, "-m", "toolfold", "--home", "state", *arguments, "--json"],
        cwd=folder,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


def test_16_07_without_a_model_the_error_says_what_to_configure(place: Path) -> None:
    code, answer = toolfold(place, "enrich")
    assert code == 2
    assert answer["error"]["message"] == "no model is configured"
    assert "[model] name" in answer["error"]["next_action"]


def test_16_07_requests_come_over_the_wire_and_are_counted_and_forgotten(place: Path) -> None:
    plain = (place / "toolfold.toml").read_text(encoding="utf-8")
    says = [{"type": "text", "text": "look for the word apple in my notes\nwhere did I write that down"}] * 2
    with model_endpoint(says) as endpoint:
        (place / "with.toml").write_text(f'{plain}[model]\nname = "x"\nbase_url = "{endpoint}"\n', encoding="utf-8")
        code, report = toolfold(place, "enrich", "--server", "files", "--limit", "2", "--config", "with.toml")
    assert (code, report["enriched"], report["tools_enriched"]) == (0, 2, 2)
    assert report["tools"] > 2
    # Each configuration has a catalogue of its own.
    assert toolfold(place, "stats")[1]["enriched"] == 0
    assert toolfold(place, "stats", "--config", "with.toml")[1]["enriched"] == 2
    findings = toolfold(place, "doctor", "--config", "with.toml")[1]["findings"]
    assert [one["text"] for one in findings if one["subject"] == "search"] == [
        f"2 of {report['tools']} tools enriched with requests that a model wrote"
    ]
    assert toolfold(place, "enrich", "--forget", "--config", "with.toml") == (
        0,
        {"forgotten": 2, "tools": report["tools"], "tools_enriched": 0},
    )


def test_16_08_choices_of_processes_of_their_own_are_counted_and_forgotten(place: Path) -> None:
    assert toolfold(place, "learn") == (0, {"choices": 0})
    for words in (
        ["search", "read the content of a file"],
        ["expand", "files.read"],
        ["call", "files.read", '{"path": "README.md"}'],
    ):
        assert toolfold(place, *words)[0] == 0
    assert toolfold(place, "learn") == (0, {"choices": 1})
    assert toolfold(place, "learn", "--forget") == (0, {"forgotten": 1})
    assert toolfold(place, "learn") == (0, {"choices": 0})


def test_16_07_a_person_reads_sentences(place: Path) -> None:
    def said(*arguments: str) -> str:
        command = [sys.executable, "-m", "toolfold", "--home", "state", *arguments]
        done = fork_server.run(command, cwd=place, capture_output=True, text=True, timeout=60, check=True)
        return str(done.stdout)

    assert said("learn").startswith("search has learned from 0 choices; forget them with `toolfold learn --forget`")
    assert said("learn", "--forget") == "forgot 0 choices\n"
    assert said("enrich", "--forget").splitlines() == ["forgot the requests of 0 tools", "0 of 6 tools enriched"]
