"""The bench of scripts runs, measures what it says, and tells which peers are absent."""

import asyncio
from pathlib import Path

import pytest

from benchmarks import script_peers, scripts


def test_it_measures_starts_calls_and_wrappers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "STARTS", 2)
    monkeypatch.setattr(scripts, "CALLS", 5)
    monkeypatch.setattr(scripts, "BATCHES", 1)
    found = asyncio.run(scripts.first_lines(tmp_path / "start"))
    for kind in ("pre_forked", "cold_fork"):
        lines = found[kind]
        assert 0 < lines["first_line"]["p50"] <= lines["three_functions"]["p50"] <= lines["three_models_built"]["p50"]
    spec = scripts.servers()["bare"]
    calls = asyncio.run(scripts.calls(tmp_path / "calls", 30, "bare", spec, None))
    assert calls["inside_ms"]["p50"] > 0
    assert calls["plain_ms"]["p50"] > 0
    wrappers = scripts.wrappers(None)
    assert wrappers["tools"] > 20
    assert wrappers["build_models_ms"]["p50"] > 0


def test_peers_that_are_absent_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(script_peers.PEERS, raising=False)
    assert all(text.startswith("not measured") for text in script_peers.peers().values())
    assert script_peers.ours()["ms_per_tool_p50"] > 0
