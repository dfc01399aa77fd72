"""`toolfold doctor` attacks a confined child for real and says what holds."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

import fork_server
from toolfold.sandbox.probe import probe


@pytest.mark.requirement("U-10")
def test_the_doctor_says_which_layers_stopped_the_attacks(tmp_path: Path) -> None:
    done = fork_server.run(
        [sys.executable, "-m", "toolfold", "--home", str(tmp_path), "-v", "doctor", "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    findings = [each for each in json.loads(done.stdout)["findings"] if each["subject"] == "sandbox"]
    assert {each["verdict"] for each in findings} <= {"well", "mind"}
    assert "attacks stopped by" in findings[0]["text"]
    assert "landlock" in findings[0]["text"]
    assert [each for each in findings if each["text"].startswith("no script can connect over TCP")]


def test_every_attack_of_the_doctor_is_stopped_with_and_without_namespaces() -> None:
    for namespaces in (True, False):
        report = asyncio.run(probe(namespaces=namespaces))
        assert report.holds, report
        assert len(report.attacks) >= 14
